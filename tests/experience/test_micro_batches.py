"""Cutting batches into passes: the cheapest cut, within its limits."""

import itertools
import random

import pytest

from rlvr.experience.micro_batches import SLOT_TOKENS, cut


def prefixes(rows: list[list[int]]) -> int:
    return len({tuple(row[:end]) for row in rows for end in range(1, len(row) + 1)})


def tokens_of(rows: list[list[int]], packed: bool) -> int:
    return prefixes(rows) if packed else len(rows) * max(map(len, rows))


def cost_of(rows: list[list[int]], packed: bool, pass_tokens: int) -> float:
    slots = SLOT_TOKENS * len(rows) * max(map(len, rows)) if packed else 0
    return tokens_of(rows, packed) + slots + pass_tokens


def cheapest(rows: list[list[int]], max_rows: int, max_tokens: int | None, packed: bool, pass_tokens: int) -> float:
    """By trying all ways to cut the rows, sorted by length or (without padding) by what they begin with."""
    costs, ordered = [], sorted(rows) if packed else sorted(rows, key=len)
    for cuts in itertools.product([False, True], repeat=len(rows) - 1):
        ends = [i + 1 for i, cut in enumerate(cuts) if cut] + [len(rows)]
        groups = [ordered[a:b] for a, b in zip([0, *ends], ends, strict=False)]
        fits = all(
            len(g) <= max_rows and (max_tokens is None or len(g) == 1 or tokens_of(g, packed) <= max_tokens)
            for g in groups
        )
        if fits:
            costs.append(sum(cost_of(g, packed, pass_tokens) for g in groups))
    return min(costs)


@pytest.mark.parametrize("seed", range(60))
def test_no_cut_is_cheaper(seed: int) -> None:
    rng = random.Random(seed)
    beginnings = [[], *([rng.randint(0, 1) for _ in range(rng.randint(1, 30))] for _ in range(3))]
    rows = [
        rng.choice(beginnings) + [rng.randint(0, 1) for _ in range(rng.randint(1, 30))]
        for _ in range(rng.randint(1, 8))
    ]
    max_rows, max_tokens = rng.randint(1, 8), rng.choice([None, rng.randint(1, 200)])
    pass_tokens, packed = rng.choice([0, 1, 20, 1000]), rng.random() < 0.7
    lengths, sequences = [len(row) for row in rows], rows if packed else None
    passes = cut(lengths, max_rows, max_tokens=max_tokens, sequences=sequences, pass_tokens=pass_tokens)
    assert sorted(i for places in passes for i in places) == list(range(len(rows)))
    groups = [[rows[i] for i in places] for places in passes]
    for group in groups:
        assert len(group) <= max_rows
        assert max_tokens is None or len(group) == 1 or tokens_of(group, packed) <= max_tokens
    found = sum(cost_of(group, packed, pass_tokens) for group in groups)
    best = cheapest(rows, max_rows, max_tokens, packed, pass_tokens)
    # Without padding, rows in the order of their lengths may be cheaper still.
    assert found <= best + 1e-6 if packed else found == best


def test_rows_of_equal_length_are_one_pass_in_order() -> None:
    assert cut([112] * 16, 64) == [list(range(16))]


def test_without_padding_little_is_gained_by_cutting() -> None:
    lengths = [120, 20, 20, 110, 20, 20]
    apart = [[row] * length for row, length in enumerate(lengths)]
    assert len(cut(lengths, 64, sequences=apart)) == 1


def test_a_group_is_one_pass_where_its_problem_is_long() -> None:
    problems = [[1] * 300, [2] * 300]
    rows = [problems[i % 2] + [3] * (i + 1) for i in range(8)]
    assert [sorted(rows) for rows in cut([len(r) for r in rows], 4, sequences=rows)] == [[0, 2, 4, 6], [1, 3, 5, 7]]


def test_a_few_long_rows_go_by_themselves() -> None:
    assert cut([500, 20, 20, 480, 20, 20], 64) == [[1, 2, 4, 5], [3, 0]]


@pytest.mark.parametrize("pieces", [1, 2, 5, 8])
def test_as_many_pieces_as_asked_for(pieces: int) -> None:
    passes = cut([10] * 8, 8, pieces=pieces)
    assert len(passes) == pieces and sorted(sum(passes, [])) == list(range(8))


@pytest.mark.parametrize("wrong", [{"max_rows": 0}, {"max_tokens": 0}, {"pieces": 9}, {"pieces": 0}])
def test_impossible_limits_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="can't cut 8 rows"):
        cut([10] * 8, **{"max_rows": 4, **wrong})
