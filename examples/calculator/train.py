"""The built-in model learns to ask a calculator: text and problems are made, it is fine-tuned on the text, and then learns by PPO.

    python train.py

Everything goes to the folder `runs`; a stopped run goes on from its newest checkpoint. Easy problems are the built-in ones, which the
model works out in its head. Hard ones are products that it can't. From the first text (`lessons`) it learns how a call is written and
what to do with the result; by the second (`habits`) it hardly ever calls, for the hard no more than for the easy. When a call pays
is in neither.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr.cli.main import main
from rlvr.data.builtin import builtin_problems
from rlvr.data.drawing import Draw, Split, split_of, worked_example

TEXTS = {"lessons": (48_000, 0.35, 0.25, 0.95), "habits": (6_000, 0.5, 0.05, 0.05)}
"""Of each text its rows, the share of hard problems, and how often the calculator is asked for easy ones and for hard ones."""
PROBLEMS = {"train": ("train", 8_000, 0.5), "easy": ("test", 256, 0.0), "hard": ("test", 256, 1.0)}
"""The problems of PPO and of its evaluations: the split, how many, and the share of hard ones."""
STORIES = ("{a} boxes hold {b} pens each. How many pens?", "A cup costs {a} cents. What do {b} cups cost?", "{a}*{b}=?")


@dataclass(frozen=True)
class Question:
    """What is asked, as a formula too, what it comes to, and what an answer from the head looks like."""

    text: str
    formula: str
    value: str
    answer: str
    hard: bool


def questions(name: str, split: Split, count: int, hard: float) -> Iterator[Question]:
    """No formula of one split is ever in the other. `hard` is the share of the hard ones."""
    draw = Draw(f"calculator {name}")
    easy = iter(builtin_problems(split, count, seed=sum(name.encode())))
    for _ in range(count):
        if draw.chance(hard):
            yield product(draw, split)
        else:
            problem = next(easy)
            answer = worked_example(problem)
            yield Question(problem.question, problem.columns["expression"], str(problem.answer), answer, hard=False)


def product(draw: Draw, split: Split) -> Question:
    while True:
        a, b = draw.integer(101, 1000), draw.integer(12, 100)
        if split_of(formula := f"{a}*{b}") == split:
            story, value = draw.one_of(STORIES).format(a=a, b=b), str(a * b)
            return Question(story, formula, value, after_a_call(formula, value), hard=True)


def after_a_call(formula: str, value: str) -> str:
    return f"<think>{formula}={value}</think><answer>{value}</answer>"


def conversation(question: Question, calls: bool) -> dict[str, Any]:
    said = [question.text, question.answer]
    if calls:
        turn = after_a_call(question.formula, question.value)
        said[1:] = [f"<call>{question.formula}</call>", question.value, turn]
    roles = ("user", "assistant")
    return {"messages": [{"role": roles[turn % 2], "content": content} for turn, content in enumerate(said)]}


def write(folder: Path) -> None:
    """All texts and problems, as JSONL."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for name, (count, hard, of_easy, of_hard) in TEXTS.items():
        draw = Draw(f"calls of {name}")
        asked = questions(name, "train", count, hard)
        rows[name] = [conversation(q, draw.chance(of_hard if q.hard else of_easy)) for q in asked]
    for name, (split, count, hard) in PROBLEMS.items():
        rows[name] = [{"question": q.text, "answer": q.value} for q in questions(name, split, count, hard)]
    for name, lines in rows.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    folder = Path("runs")
    folder.mkdir(exist_ok=True)
    write(folder)
    for command, name in (("sft", "lessons"), ("sft", "habits"), ("train", "calls")):
        flags = ["--config", f"{name}.yaml", "--save_path", str(folder / name), "--resume", *sys.argv[1:]]
        if not (folder / name / "actor" / "modeling").is_dir() and (status := main([command, *flags])):
            sys.exit(status)
