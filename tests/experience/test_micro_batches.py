"""Cutting batches by length: the cheapest cut, within its limits."""

import itertools
import random

import pytest

from rlvr.experience.micro_batches import cut_by_length


def tokens_of(rows: list[int], packed: bool) -> int:
    return sum(rows) if packed else len(rows) * max(rows)


def cheapest(lengths: list[int], max_rows: int, max_tokens: int | None, packed: bool, pass_tokens: int) -> int:
    """By trying all ways to cut the sorted rows."""
    ascending = sorted(lengths)
    costs = []
    for cuts in itertools.product([False, True], repeat=len(lengths) - 1):
        ends = [i + 1 for i, cut in enumerate(cuts) if cut] + [len(lengths)]
        groups = [ascending[a:b] for a, b in zip([0, *ends], ends, strict=False)]
        fits = all(
            len(g) <= max_rows and (max_tokens is None or len(g) == 1 or tokens_of(g, packed) <= max_tokens)
            for g in groups
        )
        if fits:
            costs.append(sum(tokens_of(g, packed) + pass_tokens for g in groups))
    return min(costs)


@pytest.mark.parametrize("seed", range(40))
def test_no_cut_is_cheaper(seed: int) -> None:
    rng = random.Random(seed)
    lengths = [rng.randint(1, 60) for _ in range(rng.randint(1, 9))]
    max_rows, max_tokens = rng.randint(1, 9), rng.choice([None, rng.randint(1, 200)])
    pass_tokens, packed = rng.choice([0, 1, 20, 1000]), rng.random() < 0.5
    passes = cut_by_length(lengths, max_rows, max_tokens=max_tokens, packed=packed, pass_tokens=pass_tokens)
    assert sorted(i for rows in passes for i in rows) == list(range(len(lengths)))
    tokens = [tokens_of([lengths[i] for i in rows], packed) for rows in passes]
    for rows, count in zip(passes, tokens, strict=True):
        assert len(rows) <= max_rows and (max_tokens is None or len(rows) == 1 or count <= max_tokens)
    cost = sum(tokens) + pass_tokens * len(passes)
    assert cost == cheapest(lengths, max_rows, max_tokens, packed, pass_tokens)


def test_rows_of_equal_length_are_one_pass_in_order() -> None:
    assert cut_by_length([112] * 16, 64) == [list(range(16))]


def test_without_padding_nothing_is_gained_by_cutting() -> None:
    assert len(cut_by_length([500, 20, 20, 480, 20, 20], 64, packed=True)) == 1


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
