"""Verdicts on cases whose right verdict is known; the same few every time. `python -m tests.fuzz` tries others for hours."""

import json
from pathlib import Path

import pytest
from fuzz_cases import KINDS, PAIRS, Case
from fuzz_search import fault, search
from fuzz_terms import IDENTITIES, constants, differ, expressions, num, plus, rewritten, spoilt, write
from hypothesis import assume, given, settings
from hypothesis import strategies as st

EXAMPLES = 40
STRATEGIES = [(kind, name) for kind, named in KINDS.items() for name in named]
OPEN: set[tuple[str, str]] = set()
"""Strategies that find faults which are not mended yet; an entry goes with its fault."""
FOUND = [json.loads(line) for line in (Path(__file__).parent / "found.jsonl").read_text(encoding="utf-8").splitlines()]


def _marks(is_open: bool) -> list[pytest.MarkDecorator]:
    return [pytest.mark.xfail(strict=True, reason="not mended yet")] if is_open else []


@pytest.mark.parametrize(
    ("kind", "name"), [pytest.param(*one, id="-".join(one), marks=_marks(one in OPEN)) for one in STRATEGIES]
)
def test_cases_of_every_kind(kind: str, name: str) -> None:
    case, tried = search(KINDS[kind][name], 1, EXAMPLES, known=lambda case: False)
    assert case is None, (fault(case), case.line())
    assert tried >= EXAMPLES // 2


NESTINGS = [(*pair, count) for pair in PAIRS for count in (24, 330)]


@pytest.mark.parametrize(
    ("before", "after", "count"),
    [pytest.param(*one, id="{}{}-{}".format(*one)) for one in NESTINGS],
)
def test_every_nesting(before: str, after: str, count: int) -> None:
    """Depths at which twice the work for each level takes minutes, and at which a reader that recurses overflows."""
    case = Case("hostile", "nested", "42", before * count + "1" + after * count, None)
    assert fault(case) is None


@pytest.mark.parametrize("row", [pytest.param(row, marks=_marks("open" in row)) for row in FOUND])
def test_what_fuzzing_found(row: dict) -> None:  # type: ignore[type-arg]
    case = Case.of(row)
    assert fault(case) is None, (fault(case), case.line())


# The cases themselves.

anything = settings(max_examples=100, deadline=None, database=None, derandomize=True)


@anything
@given(st.one_of(constants(), expressions()), st.data())
def test_identities_keep_the_value(term, data) -> None:  # type: ignore[no-untyped-def]
    other = rewritten(term, IDENTITIES, lambda ways: data.draw(st.sampled_from(ways)))
    assert not differ(term, other), (write(term), write(other))


@anything
@given(st.one_of(constants(), expressions()), st.data())
def test_what_is_spoilt_differs_or_is_left_out(term, data) -> None:  # type: ignore[no-untyped-def]
    other = spoilt(term, lambda ways: data.draw(st.sampled_from(ways)))
    assume(differ(term, other))
    assert differ(plus(term, num(1)), plus(other, num(1))) and write(term) != write(other)
