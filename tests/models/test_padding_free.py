"""Batches without padding: the same states and gradients as with it."""

import pytest
import torch
from supervised_harness import reward_model
from tiny_models import FAMILIES, VOCAB, ragged, tiny_model

from rlvr.memory.footprint import _counting
from rlvr.models import attention, padding_free
from rlvr.models.actor import Actor
from rlvr.models.backbone import prepare
from rlvr.models.batch import SequenceBatch, collate
from rlvr.models.critic import Critic
from rlvr.models.padding_free import can_run_padding_free, is_worth_it, padding_free_hidden_states

WITHOUT_PADDING = ("llama", "gpt2", "qwen2-tied")


@pytest.mark.parametrize("family", [f for f in FAMILIES if f != "opt"])  # OPT can from some version on
def test_who_can_run_padding_free_is_found_out(family) -> None:
    assert can_run_padding_free(tiny_model(family).base_model) == (family in WITHOUT_PADDING)


@pytest.mark.parametrize("family", WITHOUT_PADDING)
def test_states_and_gradients_are_those_of_each_row_alone(family) -> None:
    model = tiny_model(family).double()
    prompts, responses = ragged(3)
    batch = collate(prompts, responses, pad_id=1)
    out = padding_free_hidden_states(model.base_model, batch)
    out[batch.attention_mask.bool()].square().sum().backward()
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    for row, (prompt, response) in enumerate(zip(prompts, responses, strict=True)):
        alone = model.base_model(torch.cat([prompt, response])[None], use_cache=False).last_hidden_state[0]
        assert torch.allclose(out[row, : len(alone)], alone, rtol=0, atol=1e-10)
        alone.square().sum().backward()
    expected = [p.grad for p in model.parameters() if p.grad is not None]
    assert len(gradients) == len(expected)
    for mine, theirs in zip(gradients, expected, strict=True):
        assert torch.allclose(mine, theirs, rtol=1e-10, atol=1e-10)


def test_the_models_settings_are_left_as_they_were() -> None:
    model = tiny_model()
    can_run_padding_free(model.base_model)
    assert model.config._attn_implementation == "sdpa" and "padding_free" not in model.config.to_json_string()


def test_only_what_is_worth_it_is_left_out() -> None:
    ids, others = torch.arange(8), torch.arange(1, 9)
    even, uneven = collate([ids, others], [ids, ids[:7]]), collate([ids, others], [ids, ids[:2]])
    alike = collate([ids, ids], [ids, others])
    left = collate([ids, ids], [ids, ids[:2]], padding_side="left")
    assert [is_worth_it(batch) for batch in (even, uneven, alike, left)] == [False, True, True, False]


def test_the_decoder_sees_no_padding_and_equal_beginnings_once() -> None:
    """Counted where it matters: the rows of its first matrix product."""
    ids, rows = torch.arange(8), []
    actor = Actor(tiny_model())
    actor.model.model.layers[0].mlp.register_forward_hook(lambda module, args, out: rows.append(out.numel() // 16))
    actor(collate([ids, ids + 1], [ids, ids[:2]]))
    actor(collate([ids, ids, ids], [ids, ids[:2], ids + 1]))
    assert rows == [26, 8 + 8 + 8]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_groups_gradients_add_up_where_they_begin_alike(dtype, exact_norms) -> None:
    """Sixty-four responses to one problem: the same as each by itself, and in bfloat16 no further from it than with padding."""
    prompt, generator = torch.arange(9) + 2, torch.Generator().manual_seed(0)
    responses = [torch.randint(2, VOCAB, (1 + i % 7,), generator=generator) for i in range(64)]

    def gradient(dtype: torch.dtype, shared: bool) -> torch.Tensor:
        actor = Actor(tiny_model().to(dtype))
        if not shared:
            actor.keep_padding()
        actor(collate([prompt] * 64, responses)).logprobs.sum().backward()
        return torch.cat([p.grad.flatten().double() for p in actor.parameters()])

    exact, shared = gradient(torch.float64, False), gradient(dtype, True)
    error = (shared - exact).norm() / exact.norm()
    bound = 1e-12 if dtype == torch.float64 else (gradient(dtype, False) - exact).norm() / exact.norm()
    assert error <= 1.1 * bound


@pytest.mark.parametrize("blocks", [True, False])
def test_a_shared_beginning_is_kept_once_for_the_backward_pass(blocks, monkeypatch) -> None:
    """What a pass keeps goes by the tokens that are computed, as the memory estimate has it, not by the rows they are laid out in."""
    if not blocks:  # as on a GPU
        monkeypatch.setattr(attention, "dtype_of_products", lambda *given: None)
    decoder, beginning = tiny_model().base_model, torch.arange(60) % VOCAB

    def kept(batch: SequenceBatch) -> float:
        """Bytes for each token that is computed."""
        with _counting(decoder) as count:
            states = padding_free_hidden_states(decoder, batch)
            kept_bytes = count()
            del states  # only now: while they live, so do the tensors
        return kept_bytes / batch.tokens

    shared = collate([beginning] * 40, [torch.tensor([i % VOCAB, i // VOCAB]) for i in range(40)])
    alone = collate([(beginning + i) % VOCAB for i in (1, 2)], [torch.arange(5), torch.arange(15)])
    assert alone.tokens == 140 and 100 < shared.tokens < 145
    assert kept(shared) < 1.1 * kept(alone)


def test_rows_longer_than_a_piece_ask_piece_by_piece(monkeypatch) -> None:
    """Rows of 2 to 61 tokens in pieces of 16, two of which begin alike, in float64."""
    monkeypatch.setattr(padding_free, "PIECE", 16)
    model = tiny_model().double()
    rows = [torch.randint(2, VOCAB, (n,), generator=torch.Generator().manual_seed(n)) for n in (61, 2, 33, 48)]
    rows.append(torch.cat([rows[0][:40], rows[2][:7]]))
    batch = collate([row[:1] for row in rows], [row[1:] for row in rows])
    assert max(block.queries for block in padding_free._Layout.of(batch).blocks.blocks) == 16
    states = padding_free_hidden_states(model.base_model, batch)
    for row, mine in zip(rows, states, strict=True):
        alone = model.base_model(row[None], use_cache=False).last_hidden_state[0]
        torch.testing.assert_close(mine[: len(row)], alone, rtol=1e-10, atol=1e-10)


def test_equal_beginnings_are_found() -> None:
    rows = [[5, 6, 7], [5, 6, 8, 9], [4], [5, 6, 7, 1], [5, 6, 7], [4]]
    batch = collate([torch.tensor(row[:1]) for row in rows], [torch.tensor(row[1:], dtype=torch.long) for row in rows])
    beginnings = [[tuple(row[: t + 1]) for t in range(len(row))] for row in rows]
    places = batch.first_places.tolist()
    for row, ends in enumerate(beginnings):
        for t, beginning in enumerate(ends):
            other, column = divmod(places[row][t], 4)
            assert column == t and beginnings[other][t] == beginning and places[other][t] == places[row][t]
    assert batch.tokens == len({beginning for ends in beginnings for beginning in ends})


def test_a_reward_model_runs_without_padding_too_and_gives_the_same() -> None:
    model, rows = reward_model(), []
    generator = torch.Generator().manual_seed(0)
    ids = [torch.randint(2, VOCAB, (n,), generator=generator) for n in (9, 3, 14)]
    batch = collate(ids, [row[:0] for row in ids], pad_id=1)
    model.decoder.layers[0].mlp.register_forward_hook(lambda module, args, out: rows.append(out.numel() // 16))
    scores = model(batch)
    (scores * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    model.keep_padding()
    padded = model(batch)
    (padded * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert rows == [26, 42]
    assert torch.allclose(scores, padded, atol=1e-6)
    assert all(torch.allclose(a, p.grad, atol=1e-5) for a, p in zip(gradients, model.parameters(), strict=True))


def test_not_where_activations_are_computed_again() -> None:
    actor, critic = Actor(tiny_model()), Critic(tiny_model().base_model)
    assert actor.packs and critic.packs
    prepare(actor.model, grad_checkpoint=True)
    prepare(critic.backbone, grad_checkpoint=True)
    assert not actor.packs and not critic.packs


def test_sliding_windows_keep_their_padding() -> None:
    model = tiny_model("qwen2-tied")
    assert Actor(model).packs
    model.config.use_sliding_window, model.config.sliding_window = True, 4
    assert not can_run_padding_free(model.base_model) and not Actor(model).packs
