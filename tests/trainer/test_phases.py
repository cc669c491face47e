"""Settings between the phases: rewards brought to one scale, the head's chunk, the device's cache, the reference."""

import pytest
import torch
from reference import gae as oracle_gae
from tiny_models import tiny_model
from trainer_harness import FixedEngine, loader, make_trainer, prompts, weights

from rlvr.errors import UserError
from rlvr.tracking.meter import Meter
from rlvr.trainer.callbacks import EmptyDeviceCache

pytestmark = pytest.mark.usefixtures("process")
RESPONSES = [(7, 8, 1), (10, 11, 12, 13, 14, 15), (5, 1), (6, 5, 6, 5, 1), (1,), (9, 9, 9, 9)]


def collect(**experience_settings):
    trainer = make_trainer(
        kl_coef=0.2,
        engine=FixedEngine(RESPONSES),
        initial_model=tiny_model(seed=5),
        settings={"lam": 1.0, **experience_settings},
    )
    return trainer.maker.make_experience(prompts(6), Meter(), 0).experience


def rewards_of(items) -> list[torch.Tensor]:
    """At lambda and gamma 1, returns are sums of the rewards to come."""
    return [item.returns - torch.cat([item.returns[1:], torch.zeros(1)]) for item in items]


def test_whitened_rewards_are_trls() -> None:
    plain, white = (torch.cat(rewards_of(collect(whiten_rewards=w))) for w in (False, True))
    # trl 1.12's masked_whiten(rewards, mask, shift_mean=False), but for its unbiased variance
    expected = (plain - plain.mean()) * torch.rsqrt(plain.var(unbiased=False) + 1e-8) + plain.mean()
    torch.testing.assert_close(white, expected, atol=1e-5, rtol=1e-5)
    assert white.mean() == pytest.approx(plain.mean().item(), abs=1e-5) and white.std() == pytest.approx(1, rel=0.05)


def test_whitened_rewards_leave_out_what_is_not_trained_on() -> None:
    plain, white = (collect(whiten_rewards=w, truncated="mask") for w in (False, True))
    trained = [bool(item.mask.any()) for item in plain]
    assert trained == [True, False, True, True, True, False]
    plain, white = (torch.cat(rewards_of([i for i in x if i.mask.any()])) for x in (plain, white))
    expected = (plain - plain.mean()) * torch.rsqrt(plain.var(unbiased=False) + 1e-8) + plain.mean()
    torch.testing.assert_close(white, expected, atol=1e-5, rtol=1e-5)


def test_advantages_are_made_of_the_whitened_rewards() -> None:
    items = collect(whiten_rewards=True)
    for item, rewards in zip(items, rewards_of(items), strict=True):
        advantages = oracle_gae(rewards.tolist(), item.values.tolist(), [True] * len(rewards), 1.0, 1.0)
        assert item.advantages.tolist() == pytest.approx(list(advantages), abs=1e-4)


@pytest.mark.parametrize("chunk_tokens", [1, 7])
def test_the_chunk_of_the_head_changes_nothing_but_memory(chunk_tokens) -> None:
    results = []
    for chunk in (1024, chunk_tokens):
        trainer = make_trainer(kl_coef=0.0)
        trainer.actor.unwrapped.chunk_tokens = chunk
        trainer.fit(1, 1, 1, prompt_dataloader=loader(16))
        results.append(weights(trainer))
    torch.testing.assert_close(results[1], results[0], atol=2e-5, rtol=1e-4)


def test_the_cache_is_emptied_after_collecting_and_after_learning(monkeypatch) -> None:
    from colossalai.accelerator import get_accelerator

    events = []
    monkeypatch.setattr(type(get_accelerator()), "empty_cache", lambda self: events.append("empty"))

    class Note(EmptyDeviceCache):
        def on_learn_epoch_start(self, trainer, epoch) -> None:
            events.append("learn")

        def on_make_experience_start(self, trainer) -> None:
            events.append("collect")

    make_trainer(callbacks=[Note()]).fit(2, 2, 1, prompt_dataloader=loader(16))
    assert events == ["collect", "empty", "collect", "empty", "learn", "empty"] * 2


def test_another_reference_must_know_the_actors_tokens() -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    from rlvr.run.parts import check_same_vocabulary

    small = LlamaForCausalLM(LlamaConfig(vocab_size=20, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1))  # fmt: skip
    check_same_vocabulary(tiny_model(), small)
    with pytest.raises(UserError, match="--ref_model knows 20 tokens and the actor writes 40"):
        check_same_vocabulary(small, tiny_model())
