"""TRL's functions on padded batches, against TRL's own code (written out below) and against single rows without padding."""

import pytest
import torch
from tiny_models import FAMILIES, VOCAB, tiny_model
from torch import Tensor
from transformers import GenerationConfig

import rlvr
from rlvr.core.logprobs import selected_logprobs

PAD = 1
ROWS = [[5, 6, 7, 8], [9, 10], [11, 12, 13, 14, 15, 16]]
GREEDY = GenerationConfig(max_new_tokens=6, do_sample=False)


def padded(rows: list[list[int]], left: int = 0, right: int = 0) -> Tensor:
    """Rows aligned on the right, with further padding on either side."""
    size = max(map(len, rows)) + left
    return torch.tensor([[PAD] * (size - len(row)) + row + [PAD] * right for row in rows])


def trl_forward(model, query_responses: Tensor, pad_token_id: int):
    """`forward` of trl 1.12, experimental/ppo/ppo_trainer.py."""
    attention_mask = query_responses != pad_token_id
    position_ids = attention_mask.cumsum(1) - attention_mask.long()
    input_ids = torch.masked_fill(query_responses, ~attention_mask, 0)
    return model(
        input_ids=input_ids,
        attention_mask=attention_mask,
        position_ids=position_ids,
        return_dict=True,
        output_hidden_states=True,
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_forward_gives_each_row_what_it_gives_alone(family) -> None:
    model = tiny_model(family)
    out = rlvr.forward(model, padded(ROWS, left=2, right=3), PAD)
    assert len(out.hidden_states) == 3
    for i, row in enumerate(ROWS):
        alone = model(torch.tensor([row])).logits[0]
        torch.testing.assert_close(out.logits[i, 8 - len(row) : 8], alone, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_forward_is_trls_where_trls_is_right(family) -> None:
    model, ids = tiny_model(family), padded(ROWS, left=1, right=2)
    ours, theirs = rlvr.forward(model, ids, PAD), trl_forward(model, ids, PAD)
    real = ids != PAD
    torch.testing.assert_close(ours.logits[real], theirs.logits[real])
    torch.testing.assert_close(ours.hidden_states[-1][real], theirs.hidden_states[-1][real])


def test_forward_keeps_end_tokens_that_are_also_the_pad_token() -> None:
    model, rows = tiny_model("gpt2"), [[5, PAD, 7, 8, PAD], [9, 10, PAD]]
    ids = torch.tensor([[PAD, *rows[0], PAD], [*rows[1], PAD, PAD, PAD, PAD]])
    out = rlvr.forward(model, ids, PAD, lengths=torch.tensor([5, 3]), left_padding=torch.tensor([1, 0]))
    for i, start in ((0, 1), (1, 0)):
        alone = model(torch.tensor([rows[i]])).logits[0]
        torch.testing.assert_close(out.logits[i, start : start + len(rows[i])], alone, atol=1e-5, rtol=1e-5)
    # Without lengths, what stands before the last end token is right; TRL's way loses the one in the middle.
    inner = rlvr.forward(model, ids, PAD).logits[0, 1:5]
    torch.testing.assert_close(inner, out.logits[0, 1:5], atol=1e-5, rtol=1e-5)
    assert not torch.allclose(trl_forward(model, ids, PAD).logits[0, 3:5], out.logits[0, 3:5], atol=1e-3)


@pytest.mark.parametrize("family", ["llama", "gpt2", "bloom"])
def test_generate_does_not_look_at_padding(family) -> None:
    model = tiny_model(family)
    model.generation_config.eos_token_id = None
    ids, logits = rlvr.generate(model, padded(ROWS), PAD, GREEDY)
    assert ids.shape == (3, 12) and logits.shape == (3, 6, VOCAB)
    assert torch.equal(ids[:, :6], padded(ROWS))
    for i, row in enumerate(ROWS):
        alone = model.generate(
            torch.tensor([row]), attention_mask=torch.ones(1, len(row)), generation_config=GREEDY, pad_token_id=PAD
        )
        assert ids[i, 6:].tolist() == alone[0, len(row) :].tolist()
        before = model(alone).logits[0, len(row) - 1 : -1]
        torch.testing.assert_close(logits[i], before, atol=1e-4, rtol=1e-4)


def test_generate_gives_what_was_drawn_from() -> None:
    model = tiny_model()
    model.generation_config.eos_token_id = None
    model.generation_config.repetition_penalty = 1.5  # a model's own habit: not what was asked for
    config = GenerationConfig(max_new_tokens=5, do_sample=True, temperature=0.5, top_k=0, top_p=1.0)
    torch.manual_seed(0)
    ids, logits = rlvr.generate(model, padded(ROWS), PAD, config)
    out = rlvr.forward(model, ids, PAD)
    expected = selected_logprobs(out.logits[:, 5:-1], ids[:, 6:], temperature=0.5)[0]
    torch.testing.assert_close(selected_logprobs(logits, ids[:, 6:])[0], expected, atol=1e-4, rtol=1e-4)
    assert model.generation_config.repetition_penalty == 1.5


def test_generate_keeps_an_end_token_within_a_query() -> None:
    model = tiny_model()
    model.generation_config.eos_token_id = None
    query = [PAD, 5, PAD, 6]
    ids, _ = rlvr.generate(model, torch.tensor([query, [PAD, PAD, 7, 8]]), PAD, GREEDY, lengths=torch.tensor([4, 2]))
    alone = model.generate(torch.tensor([query]), attention_mask=torch.ones(1, 4), generation_config=GREEDY)
    assert ids[0].tolist() == alone[0].tolist()


def test_generate_stops_at_the_models_end_token_and_pads() -> None:
    model = tiny_model()
    model.generation_config.eos_token_id = None
    free, _ = rlvr.generate(model, padded(ROWS), PAD, GREEDY)
    end = int(free[0, 8])  # the third token of the first response
    model.generation_config.eos_token_id = end
    ids, logits = rlvr.generate(model, padded(ROWS), PAD, GREEDY)
    first = free[0, 6:].tolist().index(end) + 1
    assert ids[0, 6 : 6 + first].tolist() == free[0, 6 : 6 + first].tolist()
    assert set(ids[0, 6 + first :].tolist()) <= {PAD}
    truncated = rlvr.truncate_response(end, PAD, free[:, 6:])
    assert torch.equal(ids[:, 6:], truncated[:, : ids.size(1) - 6])


def test_batch_generation_is_generation_in_parts() -> None:
    model = tiny_model()
    model.generation_config.eos_token_id = None
    free, _ = rlvr.generate(model, padded(ROWS), PAD, GREEDY)
    model.generation_config.eos_token_id = int(free[0, 7])
    whole, logits = rlvr.generate(model, padded(ROWS), PAD, GREEDY)
    parts, of_parts = rlvr.batch_generation(model, padded(ROWS), 1, PAD, GREEDY)
    assert torch.equal(parts, whole)
    assert of_parts.shape == logits.shape
    end = free[0, 6:].tolist().index(int(free[0, 7])) + 1
    torch.testing.assert_close(of_parts[0, :end], logits[0, :end], atol=1e-4, rtol=1e-4)
    assert not of_parts[0, end:].any()  # the first part had ended


def test_what_can_not_be_told_is_refused() -> None:
    model, ids = tiny_model(), padded(ROWS)
    with pytest.raises(ValueError, match="nothing but the pad token"):
        rlvr.forward(model, torch.full((2, 4), PAD), PAD)
    with pytest.raises(ValueError, match="nothing but the pad token"):
        rlvr.generate(model, torch.full((2, 4), PAD), PAD, GREEDY)
    with pytest.raises(ValueError, match="don't fit"):
        rlvr.forward(model, ids, PAD, lengths=torch.tensor([6, 7, 6]))
    with pytest.raises(ValueError, match="give lengths too"):
        rlvr.forward(model, ids, PAD, left_padding=torch.tensor([0, 1, 2]))
    with pytest.raises(ValueError, match="at least 1"):
        rlvr.batch_generation(model, ids, 0, PAD, GREEDY)
