"""Worded problems from sentence patterns: `Pattern`, and `Worded`, a set of patterns with levels of difficulty.

    Pattern("{name} has {a} {things} and finds {b} more. How many {things} has {name}?", "a + b: {name} has {} {things}.")

drawn with a = 12 and b = 7 asks `Ann has 12 pens and finds 7 more. How many pens has Ann?`, and its solution says
`Ann has 12 + 7 = 19 pens.` A pattern has a step for each operation; the results of the steps are called x, y, z in later ones.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from rlvr.data.drawing import Draw, Drawn, Split, draw_problems
from rlvr.data.problems import Problem

RESULTS = "xyz"
_SYMBOL = re.compile(r"[-+*/=]")
_SLOT = re.compile(r"\{([a-c])\}")
_ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
).split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()


@dataclass(frozen=True)
class Step:
    """One operation: `left` and `right` are slots (a, b, c) or results of earlier steps (x, y)."""

    left: str
    operation: str
    right: str
    says: str


class Pattern:
    """A wording with its working.

    Args:
        text: the question, with the numbers {a}, {b}, {c} and words such as {name} in it.
        steps: `a + b: what the solution says`, where {} is the calculation; operations are + - * and / without a remainder.
    """

    def __init__(self, text: str, *steps: str) -> None:
        self.text = text
        self.steps = [self._step(step) for step in steps]

    @staticmethod
    def _step(step: str) -> Step:
        calculation, _, says = step.partition(": ")
        left, operation, right = calculation.split()
        return Step(left, operation, right, says)

    @cached_property
    def slots(self) -> list[str]:
        """Its numbers, each once, in the order of the text."""
        return list(dict.fromkeys(_SLOT.findall(self.text)))

    @cached_property
    def operations(self) -> frozenset[str]:
        return frozenset(step.operation for step in self.steps)

    @cached_property
    def factors(self) -> frozenset[str]:
        """Slots that multiply, are multiplied or divide, whose numbers are smaller."""
        of_products = {slot for step in self.steps if step.operation == "*" for slot in (step.left, step.right)}
        return frozenset(of_products | {step.right for step in self.steps if step.operation == "/"})


@dataclass(frozen=True)
class Level:
    """What problems of a level have.

    Attributes:
        steps: operations of a problem.
        operations: which.
        amounts: least and greatest number that is added or taken away.
        factors: the same of what multiplies or divides.
        largest: greatest result of a step; the least is 2.
    """

    steps: int
    operations: str
    amounts: tuple[int, int]
    factors: tuple[int, int]
    largest: int

    def takes(self, pattern: Pattern) -> bool:
        return len(pattern.steps) == self.steps and pattern.operations <= set(self.operations)


@dataclass(frozen=True)
class Worded:
    """A set of worded problems.

    Attributes:
        name: of the set.
        patterns: of all levels.
        levels: by name, from easy to hard.
        words: what stands for {name} and so on; {other} is never {name}.
        spelled_share: share of the problems without symbols, and with numbers below 100, in which these are words.
    """

    name: str
    patterns: Sequence[Pattern]
    levels: Mapping[str, Level]
    words: Mapping[str, Sequence[str]]
    spelled_share: float = 0.0

    def problems(self, split: Split, count: int, seed: int = 0, level: str | None = None) -> list[Problem]:
        """`count` different problems of one split and level, or of all levels in turn by chance; fewer where there are no more."""
        name = self.name if level is None else f"{self.name}@{level}"
        return draw_problems(name, split, count, seed, lambda draw: self._one(draw, level))

    def _one(self, draw: Draw, level: str | None) -> Drawn:
        chosen = level or draw.one_of(list(self.levels))
        of_level = self.levels[chosen]
        pattern = draw.one_of([pattern for pattern in self.patterns if of_level.takes(pattern)])
        numbers = _numbers(draw, pattern, of_level)
        words = {name: draw.one_of(choices) for name, choices in self.words.items()}
        while words.get("other") is not None and words["other"] == words["name"]:
            words["other"] = draw.one_of(self.words["other"])
        spelled = draw.chance(self.spelled_share) and not _SYMBOL.search(pattern.text) and max(numbers.values()) < 100
        told = {slot: in_words(number) if spelled else str(number) for slot, number in numbers.items()}
        question = pattern.text.format(**told, **words)
        answer, expression, solution = _work_out(pattern, numbers, words)
        return Drawn(question[0].upper() + question[1:], answer, expression, f"level {chosen}", solution)


def _numbers(draw: Draw, pattern: Pattern, level: Level) -> dict[str, int]:
    """Numbers of the slots with which every step comes out whole, and between 2 and the level's largest."""
    while True:
        numbers: dict[str, int] = {}
        for slot in pattern.slots:
            low, high = level.factors if slot in pattern.factors else level.amounts
            numbers[slot] = draw.integer(low, high + 1)
        for step in pattern.steps:  # what is divided has to be a multiple: by chance it seldom is
            if step.operation == "/" and step.left in numbers:
                numbers[step.left] = numbers[step.right] * draw.integer(level.factors[0], level.factors[1] + 1)
        values = dict(numbers)
        for name, step in zip(RESULTS, pattern.steps, strict=False):
            result = _result(values[step.left], step.operation, values[step.right])
            if result is None or not 2 <= result <= level.largest:
                break
            values[name] = result
        else:
            return numbers


def _result(left: int, operation: str, right: int) -> int | None:
    if operation == "/":
        return left // right if left % right == 0 else None
    return {"+": left + right, "-": left - right, "*": left * right}[operation]


def _work_out(pattern: Pattern, numbers: Mapping[str, int], words: Mapping[str, str]) -> tuple[int, str, str]:
    """Answer, expression and solution. An expression has the smaller number first where that makes no difference, so that a
    sum and its mirror image are in the same split."""
    values, terms = dict(numbers), {slot: str(number) for slot, number in numbers.items()}
    said = []
    for name, step in zip(RESULTS, pattern.steps, strict=False):
        left, right = values[step.left], values[step.right]
        result = _result(left, step.operation, right)
        assert result is not None
        values[name] = result
        said.append(step.says.format(f"{left} {step.operation} {right} = {result}", **words, **values))
        both = [terms[step.left], terms[step.right]]
        if step.operation in "+*" and (len(both[0]), both[0]) > (len(both[1]), both[1]):
            both.reverse()
        terms[name] = f"({both[0]}{step.operation}{both[1]})"
    last = RESULTS[len(pattern.steps) - 1]
    return values[last], terms[last][1:-1], " ".join(said)


def in_words(number: int) -> str:
    """A number from 0 to 99 in words.

    >>> in_words(42)
    'forty-two'
    """
    if number < 20:
        return _ONES[number]
    tens, ones = divmod(number, 10)
    return _TENS[tens - 2] + (f"-{_ONES[ones]}" if ones else "")
