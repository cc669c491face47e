"""Preference pairs of the built-in problems: worked right answers against answers that are worse in one of four ways.

    12+7-4=?   better: 12+7=19;19-4=15 -> 15
    worse:     slip           12+7=18;18-4=14 -> 14   a wrong step, carried on to a wrong answer
               wrong answer   12+7=19;19-4=15 -> 17   the working is right and the answer is another
               wrong guess    -> 17                   no working, and wrong
               no working     -> 15                   right, but not shown

The kinds come in turn (`KINDS`). Which number is wrong and by how much comes from the problem and the seed, on every
machine alike. Slips are few: the built-in model does not learn to see them in a few minutes.
"""

import random
from collections.abc import Sequence

from rlvr.data.builtin import numbers_of, worked_example
from rlvr.data.problem import Problem
from rlvr.data.rows import Row

KINDS = (
    "wrong answer", "wrong guess", "no working", "wrong answer",
    "slip", "no working", "wrong guess", "wrong answer",
)  # fmt: skip
# Of a wrong number from the right one. Far ones too: the built-in model learns to compare numbers by them.
_OFFSETS = tuple(off for off in range(-40, 41) if off)


def builtin_pairs(problems: Sequence[Problem], seed: int = 0) -> list[Row]:
    """A row of `question`, `chosen`, `rejected` and `kind` for each problem; the kinds come in turn."""
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
