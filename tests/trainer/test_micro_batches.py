"""How an optimizer step is cut into passes changes nothing."""

import pytest
import torch
from tiny_models import tiny_model
from trainer_harness import FixedEngine, loader, make_trainer, weights

from rlvr.trainer.ppo_update import train_actor

pytestmark = pytest.mark.usefixtures("process", "exact_norms")

RESPONSES = [[7, 8, 1], [9] * 10, [5, 1], [6, 6, 6, 6, 6, 1], [8] * 10]


def trained(**settings: object) -> torch.Tensor:
    """Weights after two episodes in float64."""
    torch.set_default_dtype(torch.float64)
    try:
        trainer = make_trainer(
            engine=FixedEngine(RESPONSES), settings=settings, initial_model=tiny_model("llama").double(), lr=1e-3
        )
        for role in (trainer.actor, trainer.critic):
            role.unwrapped.double()
        trainer.fit(2, 1, 1, loader())
        return weights(trainer)
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("tokens", [12, 24, 60])
def test_a20_the_token_budget_changes_nothing(tokens) -> None:
    whole = trained()
    assert torch.allclose(trained(micro_batch_tokens=tokens), whole, rtol=0, atol=1e-10)
    assert not torch.allclose(
        trained(micro_batch_tokens=tokens, loss_reduction="sequence_mean"), whole, rtol=0, atol=1e-10
    )


@pytest.mark.parametrize("family", ["llama", "bloom"])  # without padding, and with it
def test_no_pass_holds_more_tokens_than_the_budget(family, monkeypatch) -> None:
    sizes = []

    def watched(actor, micro_batches, *args, **kwargs):
        for sequences in (batch.sequences for batch in micro_batches):
            sizes.append(sequences.tokens if actor.unwrapped.packs else sequences.input_ids.numel())
        train_actor(actor, micro_batches, *args, **kwargs)

    def passes(**settings: int) -> list[int]:
        sizes.clear()
        make_trainer(family=family, engine=FixedEngine(RESPONSES), settings=settings).fit(1, 1, 1, loader())
        return list(sizes)

    monkeypatch.setattr("rlvr.trainer.ppo_update.train_actor", watched)
    assert max(passes(micro_batch_tokens=40)) <= 40
    assert len(passes()) == 2 and max(passes()) > 40
