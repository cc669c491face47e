"""Properties of every verdict, on random mathematics.

Each property runs a few hundred examples here; for a longer search set how many:

    RLVR_FUZZ_EXAMPLES=20000 pytest tests/fuzz/test_properties.py
"""

import os
import re
from fractions import Fraction

from fuzz_grammar import expressions, golds, mutated, numbers, pieces, written
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from processor_time import seconds

from rewards import STATUSES, Tags, check_gold, equivalent, grade

EXAMPLES = int(os.environ.get("RLVR_FUZZ_EXAMPLES", "150"))
CPU_S = 1.0
GOLDS = golds()
fuzz = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    derandomize=EXAMPLES == 150,
    suppress_health_check=list(HealthCheck),
)
"""The same examples every time, unless more are asked for."""

anything = st.one_of(pieces(), mutated(GOLDS), st.text(max_size=40))


def same(answer: str, gold: str) -> bool:
    return equivalent(answer, gold)[0]


@fuzz
@given(anything, anything)
def test_any_two_texts_get_a_verdict_in_time(response: str, gold: str) -> None:
    for tags in (None, Tags.default()):
        assert grade(response, gold, tags=tags).status in STATUSES
        assert seconds(lambda: grade(response, gold, tags=tags), limit_s=CPU_S) < CPU_S  # noqa: B023


@fuzz
@given(anything)
def test_a_gold_in_a_box_is_right_or_the_gold_is_bad(gold: str) -> None:
    assume(
        _balanced(gold) and "boxed" not in gold and "fbox" not in gold and "####" not in gold and "<think>" not in gold
    )
    assume(gold.strip())
    assert grade(f"It is \\boxed{{{gold}}}.", gold).status in ("correct", "bad_gold")


def _balanced(text: str) -> bool:
    """True where the box around it ends where it should."""
    text = re.sub(r"\\.", "", text, flags=re.DOTALL)
    if text.endswith("\\"):
        return False
    depth = 0
    for character in text:
        depth += (character == "{") - (character == "}")
        if depth < 0:
            return False
    return depth == 0


@fuzz
@given(numbers(), numbers())
def test_exact_numbers_are_compared_exactly_in_both_directions(
    a: tuple[str, Fraction], b: tuple[str, Fraction]
) -> None:
    assert same(a[0], b[0]) == same(b[0], a[0]) == (a[1] == b[1])


@fuzz
@given(numbers(), st.sampled_from([1, -1, 10, Fraction(1, 1000), Fraction(1, 10**9), -(10**12)]))
def test_a_number_is_no_other_number(a: tuple[str, Fraction], difference: Fraction) -> None:
    other = a[1] + difference
    assert not same(a[0], f"\\frac{{{other.numerator}}}{{{other.denominator}}}")
    assert same(a[0], f"\\frac{{{a[1].numerator}}}{{{a[1].denominator}}}")


@fuzz
@given(expressions(), st.integers(0, 99))
def test_an_expression_is_its_polynomial_and_no_other(
    expression: tuple[str, dict[tuple[int, ...], Fraction]], seed: int
) -> None:
    text, polynomial = expression
    plain = written(polynomial, seed)
    assert same(text, plain) and same(plain, text), (text, plain)
    for powers in ((0, 0), (1, 0), (1, 2)):
        other = written({**polynomial, powers: polynomial.get(powers, Fraction(0)) + 1}, seed)
        assert not same(text, other) and not same(other, text), (text, other)


@fuzz
@given(st.lists(numbers(), min_size=2, max_size=5), st.randoms(use_true_random=False))
def test_lists_in_any_order_tuples_in_theirs(parts: list[tuple[str, Fraction]], generator) -> None:  # type: ignore[no-untyped-def]
    texts, values = [p[0] for p in parts if "," not in p[0]], [p[1] for p in parts if "," not in p[0]]
    assume(len(texts) > 1 and len(texts) == len(parts))
    order = list(range(len(texts)))
    generator.shuffle(order)
    shuffled = [texts[i] for i in order]
    assert same("(" + ", ".join(texts) + ")", "(" + ", ".join(shuffled) + ")") == (values == [values[i] for i in order])
    assert same("\\{" + ", ".join(texts) + "\\}", "\\{" + ", ".join(shuffled) + "\\}")
    assert not same(", ".join(texts), ", ".join(texts[:-1])) or len(texts) == 2 and values[0] == values[1]


DRESSES = [
    lambda t: f" {t} ", lambda t: f"${t}$", lambda t: f"\\({t}\\)", lambda t: t if "," in t else f"{{{t}}}", lambda t: t.replace("\\frac", "\\dfrac"), lambda t: t.replace("\\frac", "\\tfrac"),
    lambda t: t.replace("(", "\\left(").replace(")", "\\right)") if "\\left" not in t and "\\right" not in t else t, lambda t: t.replace("+", " + ").replace("=", " = "),
    lambda t: f"\\displaystyle {t}", lambda t: f"{t}.", lambda t: t.replace("+", "\\,+\\;"), lambda t: f"\\boxed{{{t}}}",
]  # fmt: skip


@fuzz
@given(st.sampled_from(GOLDS), st.sampled_from(GOLDS), st.integers(0, len(DRESSES) - 1))
def test_dress_changes_no_verdict(answer: str, gold: str, place: int) -> None:
    assume(
        check_gold(gold) and _balanced(answer) and "$" not in answer and "boxed" not in answer and "####" not in answer
    )
    dressed = DRESSES[place](answer)
    for right in (gold, answer):
        if check_gold(right):
            plain, other = (grade(f"\\boxed{{{text}}}", right).correct for text in (answer, dressed))
            assert plain == other, (answer, dressed, right)
