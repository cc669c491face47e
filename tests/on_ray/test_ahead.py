"""Responses that were generated ahead, when the reward fails: nothing of them is lost. Without a cluster: what would be
elsewhere is played by objects of this process."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from trainer_harness import LetterTokenizer, loader

import rlvr.ray.experience as experience
from rewards import Sample
from rewards.combine import Combined
from rlvr.config import base_config
from rlvr.data.prompts import Prompt
from rlvr.errors import UserError
from rlvr.experience.scoring import ModelScores
from rlvr.ray.experience import ExperienceMaker, Roles
from rlvr.ray.splitting import Piece
from rlvr.ray.trainer import Learners, RayPPOTrainer
from rlvr.rollout.engine import Rollout, Sampling
from rlvr.run.parts import training_sampling
from rlvr.trainer.online import _cycle

SETTINGS = {
    "algo": {"estimator": "grpo", "kl_coef": 0.0},
    "rollout": {"num_generations": 2, "experience_batch_size": 8},
    "train": {"train_batch_size": 8, "num_update_steps": 1},
    "ray": {"ray": True, "one_step_off_policy": True},
}


class Group:
    """A role without processes; nobody asks it anything here."""

    world_size, names = 1, ("nobody",)

    def ask(self, method: str, *arguments: Any) -> list[Any]:
        return [{}]

    def collect(self, refs: Sequence[Any]) -> list[Any]:
        return list(refs)


class Stream:
    """Responses on their way, which come once, as Ray's do."""

    def __init__(self, prompts: Sequence[Prompt], text: int) -> None:
        self.prompts, self.text, self.taken = prompts, text, False

    def pieces(self) -> Iterator[tuple[list[int], Piece, Piece]]:
        if self.taken:
            return
        self.taken = True
        for row, prompt in enumerate(self.prompts):
            ids = torch.tensor([self.text + row, 1])
            rollout = Rollout(torch.tensor(prompt.ids), ids, "stop", logprobs=torch.zeros(2))
            piece = Piece([rollout], [Sample(LetterTokenizer().decode(ids.tolist()), gold=None)])
            yield [row], piece, piece


class Scorer:
    """Fails while it is told to; else pays by the row."""

    def __init__(self) -> None:
        self.fails = True

    def begin(self) -> Any:
        rows: list[int] = []

        def result() -> list[Combined]:
            if self.fails:
                raise UserError("the reward function is broken")
            return [Combined(float(row), {}) for row in sorted(rows)]

        return SimpleNamespace(add_piece=lambda ref, places: rows.extend(places), complete=lambda: None, result=result)

    def close(self) -> None: ...


@pytest.fixture
def trainer(tmp_path: Path, monkeypatch) -> RayPPOTrainer:
    monkeypatch.setattr(experience, "import_ray", lambda: SimpleNamespace(put=lambda value: value))
    group = Group()
    config = base_config(SETTINGS)
    conversation = SimpleNamespace(stop_ids=(1,), stop_strings=())
    made = RayPPOTrainer(
        config,
        ExperienceMaker(Roles(group, None, None, group), Scorer(), training_sampling(config, conversation), config),  # type: ignore[arg-type]
        Learners(group, None, group),  # type: ignore[arg-type]
        LetterTokenizer(),
        conversation=conversation,  # type: ignore[arg-type]
        save_dir=tmp_path,
    )
    streams = iter(range(5, 40, 10))

    def generate(prompts: Sequence[Prompt], sampling: Sampling, *seed: Any) -> Stream:
        return Stream(prompts, next(streams))

    def run_models(rollouts: Sequence[Rollout], seconds: Any) -> ModelScores:
        shape = (len(rollouts), 2)
        return ModelScores(torch.zeros(shape), None, None, None, None, torch.ones(shape, dtype=torch.bool))

    monkeypatch.setattr(made.maker, "generate", generate)
    monkeypatch.setattr(made.maker, "run_models", run_models)
    made.prompt_loader = loader(per_step=4)
    made._prompts, made._ptx = _cycle(made.prompt_loader), _cycle(None)
    return made


def ahead(trainer: RayPPOTrainer) -> list[dict[str, Any]]:
    """As a checkpoint keeps it, in plain numbers."""
    return [
        {"problems": one["problems"], "responses": [r["response_ids"].tolist() for r in one["responses"]]}
        for one in trainer.maker.ahead_state()
    ]


def test_a_reward_that_fails_leaves_what_was_generated_ahead(trainer: RayPPOTrainer, monkeypatch) -> None:
    trainer.plan = SimpleNamespace(num_episodes=3, num_collect_steps=2, num_update_steps=1)  # type: ignore[assignment]
    for _ in range(2):  # two collect steps are on their way
        prompts = [p for p in next(trainer._prompts) for _ in range(2)]
        trainer.maker.ahead.append(trainer.maker.generate(prompts, trainer.maker.sampling))
    position, meter = trainer.prompt_loader.state_dict(), trainer.meter.state_dict()
    asked = [[prompt.problem.id for prompt in one.prompts] for one in trainer.maker.ahead]
    trainer.progress.optimizer_steps = 1
    saved: list[Any] = []

    def save() -> Path:
        saved.extend(ahead(trainer))
        return Path("checkpoint")

    monkeypatch.setattr(trainer, "save_checkpoint", save)
    with pytest.raises(UserError, match=r"is broken\nWhat was learned is saved in checkpoint"):
        trainer._collect()
    assert [one["problems"] for one in saved] == asked
    assert [one["responses"] for one in saved] == [[[n + row, 1] for row in range(8)] for n in (5, 15)]
    assert trainer.prompt_loader.state_dict() == position and trainer.meter.state_dict() == meter
    assert trainer.progress.samples == 0 and len(trainer.buffer) == 0
    # Mended, the run takes up both, in their order, and asks for nothing anew.
    trainer.scorer = trainer.maker.scorer
    trainer.maker.scorer.fails = False  # type: ignore[attr-defined]
    for first in (5, 15):
        trainer._collect()
        newest = trainer.buffer.items[-8:]
        assert [item.response_ids.tolist() for item in newest] == [[first + row, 1] for row in range(8)]
    assert not trainer.maker.ahead and trainer.prompt_loader.state_dict() == position
