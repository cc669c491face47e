"""The budget of a verdict: drawn on before anything is computed, the same whatever is remembered, and enough for answers."""

import pytest
from processor_time import forget_verdicts, seconds

from rewards import grade
from rewards.maths import equivalent
from rewards.maths.equivalence import _compared
from rewards.maths.evaluate import exact
from rewards.maths.limits import MAX_WORK, Budget, OutOfWorkError, spend
from rewards.maths.parser import parse

COSTLY = {
    "product of factorials": "*".join(["3000!"] * 60),
    "product of quotients": "*".join([r"\frac{7^{14000}}{3^{19000}}"] * 30),
    "sum of quotients": "+".join(rf"\frac{{1}}{{{n}^{{9000}}}}" for n in range(3, 60, 2)),
    "powers of quotients": r"((\frac{7}{3})^{9000})^{9000}",
    "roots of powers": "+".join([r"\sqrt[3]{7^{14000}}"] * 200),
    "huge multiples": "lcm(" + ",".join(f"{n}^{{4000}}" for n in range(3, 60, 2)) + ")",
    "huge remainder": r"7^{14000} \bmod 3^{20000}",
    "huge binomial": r"\binom{10^{30}}{10^{6}}",
    "quotients of powers of ten": "1e4999/" * 200 + "7",
}


def test_a_budget_ends() -> None:
    with Budget(10) as budget:
        spend(9)
        with pytest.raises(OutOfWorkError):
            spend(2)
    assert budget.spent == 9
    spend(1e12)  # outside of all budgets there is no end


def test_a_budget_within_another_has_steps_of_its_own() -> None:
    with Budget(10) as outer:
        with Budget(100):
            spend(50)
        spend(5)
    assert outer.spent == 5


@pytest.mark.parametrize("name", COSTLY)
def test_an_exact_number_is_bounded_before_it_is_computed(name) -> None:
    def value() -> None:
        with Budget():
            try:
                exact(parse(COSTLY[name]))
            except OutOfWorkError:
                pass

    assert seconds(value, limit_s=0.4) < 0.4


@pytest.mark.parametrize("name", COSTLY)
def test_a_costly_answer_is_wrong(name) -> None:
    for gold in ("42", "x^2+1", "[0,1]", "1,2,3"):
        assert seconds(lambda: grade(f"\\boxed{{{COSTLY[name]}}}", gold), limit_s=0.5) < 0.5  # noqa: B023
        assert grade(f"\\boxed{{{COSTLY[name]}}}", gold).status == "wrong"


def test_the_outcome_says_that_it_was_too_much_work() -> None:
    outcome = grade(r"\boxed{" + COSTLY["product of factorials"] + "}", "42")
    assert (outcome.status, outcome.stage) == ("wrong", "budget") and "more work" in outcome.message


def test_a_verdict_does_not_depend_on_what_is_remembered() -> None:
    """A text that was read before costs as much as one that was not."""
    pair = "+".join([r"\sqrt{x+1}"] * 40), "+".join([r"\sqrt{1+x}"] * 40)
    spent = []
    for forget in (True, False):
        if forget:
            forget_verdicts()
        with Budget(10 * MAX_WORK) as budget:
            assert _compared(*pair)[0]
        spent.append(budget.spent)
    assert spent[0] == spent[1] > 1000


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        (r"\frac{2004!}{2003!}", "2004"),
        (r"\binom{10000}{2}", "49995000"),
        (r"\binom{3000}{1500}/\binom{3000}{1499}", r"\frac{1501}{1500}"),
        (r"2^{10000}\cdot 2^{-9999}", "2"),
        ("+".join(f"x^{{{n}}}" for n in range(60)), "+".join(f"x^{{{59 - n}}}" for n in range(60))),
        (",".join(map(str, range(100))), ",".join(map(str, reversed(range(100))))),
    ],
)
def test_the_budget_is_enough_for_answers(answer, gold) -> None:
    assert equivalent(answer, gold)[0]
