"""A calculator as an environment: the model writes a call between the template's call tags, and reads what it comes to.

    <call>12 * 48 - 7</call>   ->   569

Sums are read by the parser that reads answers and computed exactly, within the budget of a verdict: no text is evaluated, whatever a
model writes. What can't be computed is said.
"""

from collections.abc import Sequence
from fractions import Fraction

from rewards.maths.equivalence import tree
from rewards.maths.evaluate import exact
from rewards.maths.limits import Budget, OutOfWorkError
from rewards.maths.normalise import normalise
from rewards.maths.stack import anywhere
from rewards.tool import Result, Tool

MAX_DIGITS = 60
"""Of a result."""
SHORT = 12
"""Most decimal places; a number with more of them is given as a fraction."""


class Calculator(Tool):
    """Answers calls with exact results. Arguments as for `Tool`."""

    def answer(self, calls: Sequence[str]) -> list[Result]:
        """A line for each call."""
        lines = [calculate(call) for call in calls]
        return [Result(line, failed=line.startswith("error: ")) for line in lines]


@anywhere
def calculate(text: str) -> str:
    """What a sum comes to, or why it comes to nothing.

    >>> calculate("12 * 48 - 7"), calculate("1/8 + 1"), calculate("1/3"), calculate(r"\\frac{2^{10}}{3!}"), calculate("sqrt(49)")
    ('569', '1.125', '1/3', '512/3', '7')
    >>> calculate("1/0"), calculate("2 +* 3"), calculate("9^9^9"), calculate("x + 1")
    ('error: no exact number', 'error: not readable', 'error: no exact number', 'error: no exact number')
    """
    try:
        with Budget():
            node = tree(normalise(text))
            value = None if node is None else exact(node)
    except OutOfWorkError:
        return "error: too much work"
    if node is None:
        return "error: not readable"
    return "error: no exact number" if value is None else _written(value)


def _written(value: Fraction) -> str:
    """As a whole number, a decimal that ends soon, or a fraction."""
    shifted = value * 10**SHORT
    if shifted.denominator == 1 and value.denominator > 1:
        whole, places = divmod(abs(int(shifted)), 10**SHORT)
        said = f"{'-' if value < 0 else ''}{whole}.{places:0{SHORT}}".rstrip("0")
    elif max(abs(value.numerator), value.denominator) >= 10**MAX_DIGITS:
        return "error: too long"
    else:
        said = str(value)
    return said if len(said) <= 2 * MAX_DIGITS else "error: too long"
