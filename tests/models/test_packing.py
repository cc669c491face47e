"""Packed rows: the layout, the packing, and that examples in one row don't see each other."""

import random

import pytest
import torch
from tiny_models import FAMILIES, VOCAB, tiny_model

from rlvr.data.examples import Example
from rlvr.errors import UserError
from rlvr.models.actor import Actor
from rlvr.models.batch import collate
from rlvr.models.packing import IDLE, check_packing, collate_examples, keeps_packed_examples_apart, pack_by_length

PACKS = ("llama", "gpt2", "qwen2-tied")


def examples(count: int, seed: int = 0) -> list[Example]:
    rng = random.Random(seed)
    made = []
    for _ in range(count):
        length = rng.randint(2, 12)
        ids = tuple(rng.randrange(VOCAB) for _ in range(length))
        prompt = rng.randint(0, length - 1)
        skipped = ((length - 1, length),) if rng.random() < 0.3 and length - prompt > 2 else ()
        made.append(Example(ids, prompt, skipped))
    return made


def test_layout_of_a_packed_row() -> None:
    batch = collate_examples(
        [[Example((5, 6, 7), 1), Example((8, 9), 0)], [Example((4, 3, 2), 1, ((1, 2),))]], pad_id=1
    )
    assert batch.input_ids.tolist() == [[5, 6, 7, 8, 9], [4, 3, 2, 1, 1]]
    assert batch.position_ids.tolist() == [[0, 1, 2, 0, 1], [0, 1, 2, 3, 4]] and batch.shared_rows and batch.tokens == 8
    assert batch.attention_mask.tolist() == [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]
    assert batch.response_mask.tolist() == [[True, True, True], [True, False, False]]
    assert batch.response_ids[batch.response_mask].tolist() == [6, 7, 9, 2]


def test_single_examples_lie_as_collate_lays_them() -> None:
    items = [Example((5, 6, 7, 8), 2), Example((9, 4), 1)]
    ours = collate_examples([[item] for item in items])
    theirs = collate(
        [torch.tensor(i.ids[: i.prompt_length]) for i in items], [torch.tensor(i.ids[i.prompt_length :]) for i in items]
    )
    for name in ("input_ids", "attention_mask", "response_index", "response_mask"):
        assert torch.equal(getattr(ours, name), getattr(theirs, name)), name


@pytest.mark.parametrize("seed", range(20))
def test_every_example_is_packed_once_and_no_row_is_too_long(seed: int) -> None:
    rng = random.Random(seed)
    lengths = [rng.randint(1, 50) for _ in range(rng.randint(1, 60))]
    capacity = max(lengths) + rng.randint(0, 30)
    rows = pack_by_length(lengths, capacity)
    assert sorted(i for row in rows for i in row) == list(range(len(lengths)))
    assert all(sum(lengths[i] for i in row) <= capacity for row in rows)
    assert len(rows) <= 11 / 9 * -(-sum(lengths) // capacity) + 3
    with pytest.raises(ValueError, match="does not fit"):
        pack_by_length(lengths, max(lengths) - 1)


@pytest.mark.parametrize("family", PACKS)
def test_packed_losses_and_gradients_equal_unpacked_ones(family: str) -> None:
    items = examples(14)
    rows = [[items[i] for i in row] for row in pack_by_length([len(e.ids) for e in items], 16)]
    assert len(rows) < len(items) / 1.5
    results = []
    for layout in (rows, [[item] for item in items]):
        model = tiny_model(family)
        actor = Actor(model)
        batch = collate_examples(layout)
        loss = -(actor(batch).logprobs * batch.response_mask).sum()
        loss.backward()
        results.append((loss.detach(), torch.cat([p.grad.flatten() for p in model.parameters()])))
    (packed, packed_gradient), (alone, gradient) = results
    assert packed.item() == pytest.approx(alone.item(), rel=1e-6)
    assert torch.allclose(packed_gradient, gradient, rtol=1e-4, atol=1e-5)
    assert gradient.abs().max() > 0.1


@pytest.mark.parametrize("family", FAMILIES)
def test_models_that_can_not_are_refused(family: str) -> None:
    actor = Actor(tiny_model(family))
    assert keeps_packed_examples_apart(actor) == (family in PACKS)
    if family not in PACKS:
        with pytest.raises(UserError, match="--packing: .*see each other"):
            check_packing(actor)


def test_nothing_to_learn_has_a_path_for_gradients() -> None:
    model = tiny_model()
    Actor(model)(collate_examples([[IDLE]])).logprobs.sum().backward()
    assert all(p.grad is not None and not p.grad.any() for p in model.parameters())


def test_examples_are_computed_without_padding_and_equal_beginnings_once() -> None:
    """Of supervised batches, too; not where rows hold several examples, which are told apart by positions alone."""
    rows: list[int] = []
    actor = Actor(tiny_model())
    actor.model.model.layers[0].mlp.register_forward_hook(lambda module, args, out: rows.append(out.numel() // 16))
    long, short = Example((2, 3, 4, 5, 6, 7, 8), 2), Example((2, 3, 4, 9), 2)
    actor(collate_examples([[long], [short]]))
    actor(collate_examples([[long, short], [short]]))
    assert rows == [7 + 1, 2 * 11]
