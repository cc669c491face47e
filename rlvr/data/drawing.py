"""Problems drawn from a seed: the same on every machine, each different, and never a held-out one in training.

Which split a problem belongs to depends on a hash of its *expression* (`12+7-4`) alone, so that no expression of the test split is ever
seen in training, however it is worded, and whatever the seeds.

Random numbers come from `random.Random(text).random()` only, whose sequence Python promises never to change, and from
blake2b.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal, TypeVar

from rlvr.data.problems import Problem
from rlvr.errors import UserError

Split = Literal["train", "test"]

T = TypeVar("T")

TEST_SHARE = 0.1
MAX_MISSES = 1_000
"""Draws in a row that bring nothing new, after which there are taken to be no more problems."""


class Draw:
    """Draws that depend on nothing but the seed and `random.Random.random`."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def integer(self, low: int, high: int) -> int:
        """low <= number < high"""
        return low + int(self._random.random() * (high - low))

    def one_of(self, choices: Sequence[T]) -> T:
        return choices[self.integer(0, len(choices))]


@dataclass(frozen=True)
class Drawn:
    """One problem as it was drawn.

    Attributes:
        question: what is asked.
        answer: the right answer.
        expression: what has to be computed, which decides the split.
        kind: sort of problem, for tables.
        solution: the working, without the answer tags.
    """

    question: str
    answer: int
    expression: str
    kind: str
    solution: str


def split_of(expression: str) -> str:
    """`train` or `test`, by a hash of the expression: no seed can move one of the test split into training."""
    digest = blake2b(expression.encode(), digest_size=8).digest()
    return "test" if int.from_bytes(digest, "big") < TEST_SHARE * 2**64 else "train"


def draw_problems(name: str, split: Split, count: int, seed: int, one: Callable[[Draw], Drawn]) -> list[Problem]:
    """`count` different problems of one split, or as many as there are, each with `expression`, `kind` and `solution` as columns.

    Args:
        name: of the set, with its level; other names draw other numbers.
        seed: other seeds give other problems of the same split. The first problems of a larger count are the same.
        one: draws a problem of any split.
    """
    problems: dict[str, Problem] = {}
    draw, misses = Draw(f"rlvr {name} problems {split} {seed}"), 0
    while len(problems) < count and misses < MAX_MISSES:
        drawn = one(draw)
        misses += 1
        if split_of(drawn.expression) != split or drawn.question in problems:
            continue
        misses = 0
        problems[drawn.question] = Problem(
            id=f"{name}/{split}/{seed}/{len(problems)}",
            question=drawn.question,
            answer=str(drawn.answer),
            columns={"expression": drawn.expression, "kind": drawn.kind, "solution": drawn.solution},
            source=f"{name}:{seed}",
        )
    return list(problems.values())


def worked_example(problem: Problem, *, shortcut: bool = False) -> str:
    """A right response to a problem of `draw_problems`: with its working, or with the answer blurted out.

    Raises:
        UserError: the problem is of a source without workings.
    """
    if "solution" not in problem.columns:
        raise UserError(
            f"{problem.source}: its problems have no worked solutions to learn from; train on them with rewards (rlvr train), or give examples"
        )
    working = "" if shortcut else problem.columns["solution"]
    return f"<think>{working}</think><answer>{problem.answer}</answer>"
