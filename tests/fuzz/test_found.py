"""Findings of fuzzing, each as small as it gets. Those of hedging are in test_hedges.py."""

import pytest
from processor_time import seconds

from rewards import STATUSES, grade

CPU_S = 1.0


def verdict_s(response: str, gold: str) -> float:
    """Processor time of a verdict."""
    assert grade(response, gold).status in STATUSES
    return seconds(lambda: grade(response, gold), limit_s=CPU_S)


@pytest.mark.parametrize("sign", ["%", r"\%", r"\text{ percent}", r"^\circ", "!", "'"])
@pytest.mark.parametrize("inside", ["42", "x"])
def test_repeated_signs(sign: str, inside: str) -> None:
    """Every two percent signs in the gold took four times as long: 18 of them half a minute (atheris)."""
    many = inside + sign * 16
    assert verdict_s("\\boxed{7}", many) < CPU_S
    assert verdict_s(f"\\boxed{{{many}}}", "25%") < CPU_S


DEEP = r"\log\cos" * 12
"""It needs ever more digits, and has none that are real."""


@pytest.mark.parametrize(
    "answer",
    [
        DEEP + "x",
        "+".join(f"{DEEP}({i}x)" for i in range(1, 5)),
        "+".join(f"{DEEP}{i}" for i in range(1, 13)),
        r"\sqrt{\log(\log(\cot(\log(\sqrt{\sqrt{\log(\sqrt{\sqrt{\cot(\pi)}})}}))))}",
    ],
    ids=["one", "sum", "constants", "pole"],
)
@pytest.mark.parametrize("gold", ["x+1", "1, 2, 3, 4"])
def test_deep_functions(answer: str, gold: str) -> None:
    """One term took 2 seconds, a sum of twelve half a minute (pairs of pieces, repeated)."""
    if "," in gold:
        answer = ",".join([answer[:400]] * 4)
    assert verdict_s(f"\\boxed{{{answer}}}", gold) < CPU_S
