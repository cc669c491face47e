"""The built-in problems, made from a seed: running sums of small numbers, bare or told as a short story.

    12+7-4=?                                          think: 12+7=19;19-4=15   answer: 15
    Ann has 12 pens, buys 7, loses 4. How many now?   think: 12+7=19;19-4=15   answer: 15

`builtin_problems` for PPO, `worked_example` (`rlvr/data/drawing.py`) as a response for fine-tuning, `builtin_pairs` for a reward model.
They are easy on purpose: the built-in model of 0.2M parameters learns to solve them on a CPU.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from rlvr.data.drawing import Draw, Drawn, Split, draw_problems, worked_example
from rlvr.data.problems import Problem
from rlvr.data.rows import Row

MIN_NUMBERS, MAX_NUMBERS = 2, 5
MAX_NUMBERS_IN_STORY = 3
LEVELS = tuple(str(count) for count in range(MIN_NUMBERS, MAX_NUMBERS + 1))
FIRST = (11, 90)
OTHER = (1, 10)
TOTAL = (10, 99)
STORY_SHARE = 0.15

_TERM = re.compile(r"[+-]?\d+")


@dataclass(frozen=True)
class Scene:
    """A kind of story. `{n}` stands for a number, `{name}` and `{things}` for words drawn once for each problem."""

    opening: str
    gains: tuple[str, ...]
    losses: tuple[str, ...]
    question: str


NAMES = ("Ann", "Ben", "Eva", "Max", "Mia", "Sam", "Tom", "Zoe")
THINGS = ("pens", "eggs", "cups", "nuts", "figs", "keys", "caps", "pins")
SCENES = (
    Scene(
        "{name} has {n} {things}",
        ("gets {n}", "buys {n}", "finds {n}"),
        ("loses {n}", "sells {n}", "gives {n}"),
        "How many now?",
    ),
    Scene("A bus has {n} people", ("{n} get on",), ("{n} get off",), "How many stay?"),
    Scene("A box holds {n} {things}", ("add {n}", "put in {n}"), ("take {n}", "remove {n}"), "How many?"),
)


def builtin_problems(split: Split, count: int, seed: int = 0, level: str | None = None) -> list[Problem]:
    """`count` different problems of one split.

    Args:
        split: "train" or "test"; no expression occurs in both.
        count: how many.
        seed: other seeds give other problems of the same split.
        level: sums of so many numbers alone, one of `LEVELS`.
    """
    if level is None:
        return draw_problems("builtin", split, count, seed, _one)

    def of_level(draw: Draw) -> Drawn:
        while len(numbers_of((drawn := _one(draw)).expression)) != int(level):
            pass
        return drawn

    return draw_problems(f"builtin@{level}", split, count, seed, of_level)


def expression_of(numbers: Sequence[int]) -> str:
    """[12, 7, -4] -> "12+7-4" """
    return str(numbers[0]) + "".join(f"{number:+d}" for number in numbers[1:])


def numbers_of(expression: str) -> list[int]:
    """ "12+7-4" -> [12, 7, -4]"""
    return [int(term) for term in _TERM.findall(expression)]


def _one(draw: Draw) -> Drawn:
    story = draw.chance(STORY_SHARE)
    numbers = _numbers(draw, draw.integer(MIN_NUMBERS, (MAX_NUMBERS_IN_STORY if story else MAX_NUMBERS) + 1))
    expression = expression_of(numbers)
    question = _tell(draw, numbers) if story else expression + "=?"
    return Drawn(question, sum(numbers), expression, "story" if story else "sum", working_of(numbers))


def _numbers(draw: Draw, count: int) -> list[int]:
    numbers = [draw.integer(*FIRST)]
    while len(numbers) < count:
        number = draw.integer(*OTHER) * draw.one_of((1, -1))
        if TOTAL[0] <= sum(numbers) + number <= TOTAL[1]:
            numbers.append(number)
    return numbers


def _tell(draw: Draw, numbers: Sequence[int]) -> str:
    scene = draw.one_of(SCENES)
    name, things = draw.one_of(NAMES), draw.one_of(THINGS)
    parts = [scene.opening] + [draw.one_of(scene.gains if n > 0 else scene.losses) for n in numbers[1:]]
    told = [part.format(n=abs(n), name=name, things=things) for part, n in zip(parts, numbers, strict=True)]
    return f"{', '.join(told)}. {scene.question}"


def working_of(numbers: Sequence[int]) -> str:
    """Step by step: [12, 7, -4] -> "12+7=19;19-4=15"."""
    totals = list(accumulate(numbers))
    return ";".join(
        f"{before}{n:+d}={after}" for before, n, after in zip(totals, numbers[1:], totals[1:], strict=False)
    )


# Preference pairs: worked right answers against answers that are worse in one of four ways.

# Slips are few: the built-in model does not learn to see them in a few minutes.
KINDS = (
    "wrong answer", "wrong guess", "no working", "wrong answer",
    "slip", "no working", "wrong guess", "wrong answer",
)  # fmt: skip
# Distances of a wrong number from the right one. Far ones too: the built-in model learns to compare numbers by them.
_OFFSETS = tuple(off for off in range(-40, 41) if off)


def builtin_pairs(problems: Sequence[Problem], seed: int = 0) -> list[Row]:
    """A row of `question`, `chosen`, `rejected` and `kind` for each problem; the kinds come in turn.

    Of `12+7-4=?` the chosen response is `12+7=19;19-4=15 -> 15` and the rejected one, by kind:

        slip            12+7=18;18-4=14 -> 14    a wrong step, carried on to a wrong answer
        wrong answer    12+7=19;19-4=15 -> 17    the working is right and the answer is another
        wrong guess     -> 17                    no working, and wrong
        no working      -> 15                    right, but not shown

    Which number is wrong and by how much comes from the problem and the seed, on every machine alike.
    """
    return [_pair(problem, KINDS[number % len(KINDS)], seed) for number, problem in enumerate(problems)]


def _pair(problem: Problem, kind: str, seed: int) -> Row:
    # Only `random()` itself is promised never to change.
    draw = random.Random(f"worse response {problem.question} {seed}").random
    values = {
        "question": problem.question,
        "chosen": worked_example(problem),
        "rejected": _worse(problem, kind, draw(), draw()),
        "kind": kind,
    }
    return Row(values, f"{problem.source}, {problem.id}")


def _worse(problem: Problem, kind: str, where: float, which: float) -> str:
    off = _OFFSETS[int(which * len(_OFFSETS))]
    if kind == "no working":
        return worked_example(problem, shortcut=True)
    numbers = numbers_of(str(problem.columns["expression"]))
    wrong_step = int(where * (len(numbers) - 1)) if kind == "slip" else None
    working, total = _working(numbers, wrong_step, off)
    if kind == "wrong guess":
        working = ""
    answer = total if kind == "slip" else total + off
    return f"<think>{working}</think><answer>{answer}</answer>"


def _working(numbers: Sequence[int], wrong_step: int | None, off: int) -> tuple[str, int]:
    """Steps, with the result of one of them off by `off` and carried on, and where they end."""
    total, steps = numbers[0], []
    for step, number in enumerate(numbers[1:]):
        before, total = total, total + number + (off if step == wrong_step else 0)
        steps.append(f"{before}{number:+d}={total}")
    return ";".join(steps), total
