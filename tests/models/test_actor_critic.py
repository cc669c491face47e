"""Actor and critic against the model's own logits on one unpadded sample."""

import copy
import math

import pytest
import torch
from tiny_models import FAMILIES, VOCAB, ragged, tiny_model

from rlvr.errors import UserError
from rlvr.models.actor import Actor, use_float32_head
from rlvr.models.backbone import disable_dropout, prepare
from rlvr.models.batch import collate
from rlvr.models.critic import Critic


@torch.no_grad()
def plain_logprobs(model, prompt: torch.Tensor, response: torch.Tensor, temperature: float) -> list[float]:
    """The logprob of each response token from the logits one place before it, sample by sample, no padding."""
    sequence = torch.cat([prompt, response])
    logits = model(sequence[None]).logits[0].double() / temperature
    return [(logits[t - 1, sequence[t]] - logits[t - 1].logsumexp(0)).item() for t in range(len(prompt), len(sequence))]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_a01_a02_a06_a07_a08_logprobs_equal_the_unpadded_model_whatever_the_padding(family, temperature) -> None:
    model = tiny_model(family)
    actor = Actor(model)
    prompts, responses = ragged()
    expected = [plain_logprobs(model, p, r, temperature) for p, r in zip(prompts, responses, strict=True)]
    for side in ("left", "right"):
        for pad_to in (None, 30):
            for pad_id in (1, 3):  # 1 is EOS: EOS == PAD changes nothing
                batch = collate(prompts, responses, pad_id=pad_id, padding_side=side, pad_to=pad_to)
                out = actor(batch, temperature)
                assert out.logprobs.dtype == torch.float32
                for row, want in enumerate(expected):
                    assert out.logprobs[row, : len(want)].tolist() == pytest.approx(want, abs=2e-5)
                    assert not out.logprobs[row, len(want) :].any()


@pytest.mark.parametrize("family", FAMILIES)
def test_a07_a09_values_belong_to_the_state_before_the_action(family) -> None:
    critic = Critic(tiny_model(family).base_model, seed=3)
    with torch.no_grad():
        critic.value_head.weight.mul_(100)
    prompts, responses = ragged(1)
    for side in ("left", "right"):
        for pad_to in (None, 30):
            out = critic(collate(prompts, responses, pad_id=1, padding_side=side, pad_to=pad_to))
            for row, (prompt, response) in enumerate(zip(prompts, responses, strict=True)):
                sequence = torch.cat([prompt, response])
                hidden = critic.backbone(sequence[None]).last_hidden_state[0]
                values = critic.value_head(hidden).squeeze(-1)
                start = len(prompt) - 1
                torch.testing.assert_close(
                    out.values[row, : len(response)], values[start : start + len(response)], atol=2e-5, rtol=1e-4
                )
                torch.testing.assert_close(out.last_values[row], values[-1], atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_a17_dropout_is_off_in_train_mode_too(family) -> None:
    model = tiny_model(family, dropout=0.5)
    disable_dropout(model)
    model.train()
    actor = Actor(model)
    batch = collate(*ragged(2))
    assert torch.equal(actor(batch).logprobs, actor(batch).logprobs)


def test_a17_the_check_above_can_fail() -> None:
    actor = Actor(tiny_model("gpt2", dropout=0.5).train())
    actor.train()
    batch = collate(*ragged(2))
    assert not torch.equal(actor(batch).logprobs, actor(batch).logprobs)


def test_gradient_checkpointing_gives_the_same_gradient() -> None:
    gradients = []
    for checkpointing in (False, True):
        actor = Actor(prepare(tiny_model(), checkpointing))
        actor(collate(*ragged(3))).logprobs.sum().backward()
        gradients.append(torch.cat([p.grad.flatten() for p in actor.parameters()]))
    torch.testing.assert_close(*gradients)


def test_a36_no_tensor_over_all_positions_and_words_is_kept() -> None:
    actor = Actor(tiny_model(), chunk_tokens=4)
    prompts, responses = ragged(4, count=16)
    largest = 0

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal largest
        if tensor.dim() >= 2 and tensor.shape[-1] == VOCAB and tensor.data_ptr() not in parameters:
            largest = max(largest, tensor.numel())
        return tensor

    parameters = {p.data_ptr() for p in actor.parameters()}
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        actor(collate(prompts, responses)).logprobs.sum().backward()
    assert largest <= 4 * VOCAB


def test_a37_log_softmax_is_float32_under_bf16() -> None:
    model = tiny_model()
    prompts, responses = ragged(5)
    exact = Actor(model)(collate(prompts, responses))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = Actor(model)(collate(prompts, responses))
    assert low.logprobs.dtype == low.entropy.dtype == torch.float32
    # Values that bf16 can't hold: the softmax was not rounded to it.
    mask = collate(prompts, responses).response_mask
    assert not torch.equal(low.logprobs[mask], low.logprobs[mask].bfloat16().float())
    torch.testing.assert_close(low.logprobs, exact.logprobs, atol=0.1, rtol=0.05)


def test_a_head_that_is_more_than_a_matrix_falls_back_to_the_models_own_logits() -> None:
    model = tiny_model()
    assert Actor(model)._plain_head
    forward = model.forward

    def scaled(*args, **kwargs):
        out = forward(*args, **kwargs)
        out.logits = out.logits * 3
        return out

    model.forward = scaled
    actor = Actor(model)
    assert not actor._plain_head
    prompts, responses = ragged(6)
    want = plain_logprobs(model, prompts[0], responses[0], 1.0)
    assert actor(collate(prompts, responses)).logprobs[0, : len(want)].tolist() == pytest.approx(want, abs=2e-5)


def test_entropy_is_that_of_the_sampling_distribution() -> None:
    model = tiny_model()
    prompts, responses = ragged(7, count=1)
    sequence = torch.cat([prompts[0], responses[0]])
    logits = model(sequence[None]).logits[0].double() / 0.5
    p = logits[len(prompts[0]) - 1].softmax(0)
    want = -sum(x * math.log(x) for x in p.tolist())
    assert Actor(model)(collate(prompts, responses), 0.5).entropy[0, 0].item() == pytest.approx(want, abs=1e-5)


def test_critic_round_trip(tmp_path) -> None:
    critic = Critic(tiny_model().base_model, seed=5)
    critic.save_pretrained(tmp_path)
    again = Critic.from_pretrained(tmp_path)
    batch = collate(*ragged(8))
    assert torch.equal(critic(batch).values, again(batch).values)


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one token"):
        collate([torch.tensor([], dtype=torch.long)], [torch.tensor([1])])


def test_empty_responses_give_nothing_and_no_nan() -> None:
    batch = collate([torch.tensor([1, 2])], [torch.tensor([], dtype=torch.long)])
    assert batch.response_mask.shape == (1, 1) and not batch.response_mask.any()
    assert Actor(tiny_model())(batch).logprobs.tolist() == [[0.0]]


@torch.no_grad()
def test_a_float32_head_is_one_in_the_actor_and_in_the_model_that_generates() -> None:
    model = use_float32_head(tiny_model("llama").bfloat16())
    names = list(model.state_dict())
    actor = copy.deepcopy(Actor(model))  # as plugins copy it
    prompts, responses = ragged()
    sequence = torch.cat([prompts[0], responses[0]])
    logits = actor.model(sequence[None]).logits[0]
    assert logits.dtype == torch.float32 and list(actor.model.state_dict()) == names
    out = actor(collate(prompts[:1], responses[:1])).logprobs[0]
    whole = logits.log_softmax(-1)
    expected = [whole[t - 1, sequence[t]].item() for t in range(len(prompts[0]), len(sequence))]
    assert out.tolist() == pytest.approx(expected, abs=1e-5)


def test_a_head_that_is_no_matrix_can_not_be_float32() -> None:
    model = tiny_model("llama")
    model.set_output_embeddings(torch.nn.Sequential(torch.nn.Linear(2, 2)))
    with pytest.raises(UserError, match="--float32_head: the model's head is no plain matrix, but Sequential"):
        use_float32_head(model)
