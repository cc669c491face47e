"""Cutting batches by length: the cheapest cut, within its limits."""

import itertools
import random

import pytest

from rlvr.experience.cutting import cut_by_length


def cost(lengths: list[int], passes: list[list[int]], pass_tokens: int) -> int:
    return sum(len(rows) * max(lengths[i] for i in rows) + pass_tokens for rows in passes)


def cheapest(lengths: list[int], max_rows: int, max_tokens: int | None, pass_tokens: int) -> int:
    """By trying all ways to cut the sorted rows."""
    ascending = sorted(lengths)
    costs = []
    for cuts in itertools.product([False, True], repeat=len(lengths) - 1):
        ends = [i + 1 for i, cut in enumerate(cuts) if cut] + [len(lengths)]
        groups = [ascending[a:b] for a, b in zip([0, *ends], ends, strict=False)]
        fits = all(
            len(g) <= max_rows and (max_tokens is None or len(g) == 1 or len(g) * g[-1] <= max_tokens) for g in groups
        )
        if fits:
            costs.append(sum(len(g) * g[-1] + pass_tokens for g in groups))
    return min(costs)


@pytest.mark.parametrize("seed", range(40))
def test_no_cut_is_cheaper(seed: int) -> None:
    rng = random.Random(seed)
    lengths = [rng.randint(1, 60) for _ in range(rng.randint(1, 9))]
    max_rows, max_tokens = rng.randint(1, 9), rng.choice([None, rng.randint(1, 200)])
    pass_tokens = rng.choice([0, 1, 20, 1000])
    passes = cut_by_length(lengths, max_rows, max_tokens=max_tokens, pass_tokens=pass_tokens)
    assert sorted(i for rows in passes for i in rows) == list(range(len(lengths)))
    for rows in passes:
        longest = max(lengths[i] for i in rows)
        assert len(rows) <= max_rows and (max_tokens is None or len(rows) == 1 or len(rows) * longest <= max_tokens)
    assert cost(lengths, passes, pass_tokens) == cheapest(lengths, max_rows, max_tokens, pass_tokens)


def test_rows_of_equal_length_are_one_pass_in_order() -> None:
    assert cut_by_length([112] * 16, 64) == [list(range(16))]


def test_a_few_long_rows_go_by_themselves() -> None:
    assert cut_by_length([500, 20, 20, 480, 20, 20], 64) == [[1, 2, 4, 5], [3, 0]]


@pytest.mark.parametrize("pieces", [1, 2, 5, 8])
def test_as_many_pieces_as_asked_for(pieces: int) -> None:
    passes = cut_by_length([10] * 8, 8, pieces=pieces)
    assert len(passes) == pieces and sorted(sum(passes, [])) == list(range(8))


@pytest.mark.parametrize("wrong", [{"max_rows": 0}, {"max_tokens": 0}, {"pieces": 9}, {"pieces": 0}])
def test_impossible_limits_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="can't cut 8 rows"):
        cut_by_length([10] * 8, **{"max_rows": 4, **wrong})
