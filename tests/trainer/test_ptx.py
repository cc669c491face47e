"""ptx, `L = L_policy + ptx_coef * L_ptx`: the loss against transformers' own, its weight, and its place in a resumed run."""

import json
from pathlib import Path

import pytest
import torch
from tiny_models import VOCAB, tiny_model
from trainer_harness import loader, make_trainer, weights

from rlvr.checkpoint.storage import list_checkpoints
from rlvr.core.losses import StepSize
from rlvr.data.sampling import Loader, PromptSampler
from rlvr.data.supervised import Example
from rlvr.errors import UserError
from rlvr.tracking.meter import Meter
from rlvr.trainer.ppo_update import Step, ptx_loss

pytestmark = pytest.mark.usefixtures("process")


def examples(count: int = 12, seed: int = 0) -> list[Example]:
    g = torch.Generator().manual_seed(seed)
    made = []
    for i in range(count):
        ids = torch.randint(2, VOCAB, (5 + i % 4,), generator=g).tolist()
        made.append(Example((*ids, 1), prompt_length=i % 4))  # 0: plain text
    return made


def ptx_loader(batch_size: int = 3) -> Loader[Example]:
    return Loader(examples(), PromptSampler(12, batch_size, 0), 0, 1)


def plain_loss(model: torch.nn.Module, rows: list[Example]) -> torch.Tensor:
    """transformers' own loss, row by row without padding, averaged over the tokens that are learned."""
    total, count = torch.zeros(()), 0
    for row in rows:
        ids = torch.tensor([row.ids])
        labels = ids.clone()
        labels[:, : max(1, row.prompt_length)] = -100
        learned = int((labels != -100).sum())
        total, count = total + model(ids, labels=labels).loss * learned, count + learned
    return total / count


def test_the_loss_and_its_gradient_are_those_of_transformers() -> None:
    rows = examples(5)
    trainer = make_trainer(ptx_coef=0.7)
    [batch], size = trainer.learner._ptx(rows)
    assert isinstance(size, StepSize)
    step = Step(trainer.config, 0.0, Meter(), size, ptx_size=size)
    model = tiny_model()
    want = 0.7 * plain_loss(model, rows)
    want.backward()
    got = ptx_loss(batch, step, trainer.actor.forward(batch))
    got.backward()
    assert got.item() == pytest.approx(want.item(), abs=1e-5)
    for own, plain in zip(trainer.actor.unwrapped.model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(own.grad, plain.grad, atol=1e-5, rtol=1e-3)


def run(folder: Path, **settings) -> tuple[torch.Tensor, list[dict[str, float]]]:
    folder.mkdir()
    trainer = make_trainer(folder, **settings)
    trainer.fit(4, 1, 1, loader(), ptx_loader() if settings else None)
    return weights(trainer), [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_the_coefficient_decides_how_much_is_learned_of_the_data(tmp_path) -> None:
    without, rows = run(tmp_path / "without")
    assert "train/ptx_loss" not in rows[-1]
    finals, losses = [without], []
    for coef in (0.01, 10.0):
        final, rows = run(tmp_path / str(coef), ptx_coef=coef)
        finals.append(final)
        losses.append(rows[-1]["train/ptx_loss"])
    assert not torch.equal(finals[0], finals[1]) and not torch.equal(finals[1], finals[2])
    assert losses[1] < losses[0] - 0.1


def test_a30_a_resumed_run_goes_on_in_the_data_where_it_was(tmp_path) -> None:
    whole = make_trainer(tmp_path, ptx_coef=0.5, save_interval=1, keep_checkpoints=9)
    whole.fit(3, 1, 1, loader(), ptx_loader(5))
    again = make_trainer(ptx_coef=0.5)
    again.load_checkpoint(list_checkpoints(tmp_path)[0])
    again.fit(3, 1, 1, loader(), ptx_loader(5))
    assert torch.equal(weights(again), weights(whole))


def test_a_coefficient_without_data_is_refused() -> None:
    with pytest.raises(UserError, match="needs ptx data"):
        make_trainer(ptx_coef=0.5).fit(1, 1, 1, loader())
