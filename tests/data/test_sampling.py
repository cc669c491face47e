"""The order of sampling: complete passes, the same for any number of processes, resumable at any point."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr.data.sampling import Loader, PromptSampler
from rlvr.errors import UserError

sizes = st.integers(1, 40)


@given(size=sizes, batch_size=sizes, seed=st.integers(0, 5), passes=st.integers(1, 3))
def test_every_item_once_in_each_pass(size: int, batch_size: int, seed: int, passes: int) -> None:
    sampler = PromptSampler(size, batch_size, seed)
    batches = -(-size * passes // batch_size)
    stream = [index for _ in range(batches) for index in sampler.indices()]
    for number in range(passes):
        assert sorted(stream[number * size : (number + 1) * size]) == list(range(size))


@given(size=sizes, share=st.integers(1, 5), world_size=st.integers(1, 6), number=st.integers(0, 50))
def test_batch_is_the_same_for_any_number_of_processes(size: int, share: int, world_size: int, number: int) -> None:
    batch_size = share * world_size
    whole = PromptSampler(size, batch_size, 0).batch(number)
    parts = []
    for rank in range(world_size):
        sampler = PromptSampler(size, batch_size, 0)
        sampler.counter = number
        parts.append(sampler.indices(rank, world_size))
        assert sampler.counter == number + 1
    assert [index for group in zip(*parts, strict=True) for index in group] == whole


@given(size=sizes, batch_size=sizes, done=st.integers(0, 30), more=st.integers(1, 5))
def test_a30_resumed_sampler_goes_on_where_it_stopped(size: int, batch_size: int, done: int, more: int) -> None:
    straight, stopped, resumed = (PromptSampler(size, batch_size, 7) for _ in range(3))
    for _ in range(done):
        straight.indices()
        stopped.indices()
    resumed.load_state_dict(stopped.state_dict())
    assert [straight.indices() for _ in range(more)] == [resumed.indices() for _ in range(more)]


def test_passes_and_seeds_differ() -> None:
    sampler = PromptSampler(100, 100, 0)
    assert sampler.indices() != sampler.indices()
    assert (
        PromptSampler(100, 100, 0).batch(0)
        == PromptSampler(100, 100, 0).batch(0)
        != PromptSampler(100, 100, 1).batch(0)
    )
    assert PromptSampler(10, 10, 0).batch(0) == [8, 1, 3, 0, 9, 4, 2, 5, 7, 6]  # the same on every machine


@pytest.mark.parametrize(
    ("size", "batch_size", "seed", "said"),
    [(9, 4, 0, "size was 10 and is 9"), (10, 5, 0, "batch_size"), (10, 4, 1, "seed")],
)
def test_position_in_other_data_is_refused(size: int, batch_size: int, seed: int, said: str) -> None:
    with pytest.raises(UserError, match=f"belongs to other data.*{said}"):
        PromptSampler(size, batch_size, seed).load_state_dict(PromptSampler(10, 4, 0).state_dict())


def test_batches_that_do_not_divide() -> None:
    with pytest.raises(UserError, match="batch of 6 does not divide among 4 processes: give a multiple of 4"):
        PromptSampler(10, 6, 0).indices(0, 4)
    with pytest.raises(UserError, match="multiple of 4"):
        Loader(list("abcdefghij"), PromptSampler(10, 6, 0), 0, 4)


def test_nothing_to_sample() -> None:
    with pytest.raises(UserError, match="data set is empty"):
        PromptSampler(0, 4, 0)
    with pytest.raises(UserError, match="batch of 0"):
        PromptSampler(4, 0, 0)
    with pytest.raises(ValueError, match="5 items, not 4"):
        Loader(list("abcd"), PromptSampler(5, 2, 0))


def test_loader_is_one_endless_stream() -> None:
    items = list("abcdefg")
    loader = Loader(items, PromptSampler(7, 2, 0))
    first = [batch for batch, _ in zip(loader, range(3), strict=False)]
    resumed = Loader(items, PromptSampler(7, 2, 0))
    resumed.load_state_dict(loader.state_dict())
    # Iterating again goes on, and so does a loader that takes over the position.
    assert next(iter(loader)) == next(resumed)
    flat = [item for batch in first for item in batch]
    assert len(flat) == len(set(flat)) == 6
