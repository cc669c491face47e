"""A calculator as an environment: the model writes a call between the template's call tags, and reads what it comes to.

    <call>12 * 48 - 7</call>   ->   569

A turn without a call is the answer, and ends the episode. Sums are read by the parser that reads answers and computed exactly, within the
budget of a verdict: no text is evaluated, whatever a model writes. What can't be computed is said, and the model may try again.
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from rewards.maths.equivalence import tree
from rewards.maths.evaluate import exact
from rewards.maths.limits import Budget, OutOfWorkError
from rewards.maths.normalise import normalise
from rewards.maths.stack import anywhere

MAX_CALLS = 8
"""In one turn; further ones are not answered."""
MAX_DIGITS = 60
"""Of a result."""
SHORT = 12
"""Most decimal places; a number with more of them is given as a fraction."""


class Calculator:
    """Answers calls with exact results.

    Args:
        cost: price of a call.
    """

    def __init__(self, cost: float = 0.0) -> None:
        self.cost = cost

    def reset(self, problem: Mapping[str, Any]) -> None:
        self.tags = problem["tags"]

    def step(self, text: str) -> tuple[str, bool, dict[str, float]]:
        """A line for each call of the turn; over where there is none. Pays minus the cost of the calls, and counts them (`_calls`)."""
        calls = self.tags.calls_of(text)
        scores = {"_calls": float(len(calls))} | ({"cost": -self.cost * len(calls)} if self.cost else {})
        return "\n".join(calculate(call) for call in calls[:MAX_CALLS]), not calls, scores


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
