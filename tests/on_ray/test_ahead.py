"""Responses that were generated ahead, when the reward fails: nothing of them is lost. Without a cluster: what would be
elsewhere is played by objects of this process."""

from collections.abc import Sequence
from concurrent.futures import Future
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
from rlvr.ray.rollout import Part, Weights
from rlvr.ray.splitting import Piece
from rlvr.ray.trainer import Learners, RayPPOTrainer
from rlvr.rollout.engine import Rollout, Sampling
from rlvr.run.parts import training_sampling
from rlvr.trainer.online import _cycle

SETTINGS = {
    "algo": {"estimator": "grpo", "kl_coef": 0.0},
    "rollout": {"num_generations": 2, "experience_batch_size": 8},
    "train": {"train_batch_size": 8, "num_update_steps": 1},
    "ray": {"ray": True, "num_rollout_workers": 1, "max_staleness": 1},
}


class Group:
    """A role without processes; nobody asks it anything here."""

    world_size, names = 1, ("nobody",)

    def ask(self, method: str, *arguments: Any) -> list[Any]:
        return [{}]

    def collect(self, refs: Sequence[Any]) -> list[Any]:
        return list(refs)


class Workers:
    """A pool whose answers are there at once."""

    weights = Weights(0, ())

    def __init__(self) -> None:
        self.asked = 0

    def ask(self, prompts: Sequence[Prompt], sampling: Sampling, seed: Any, *, ahead: bool = False) -> list[Part]:
        self.asked += 1
        parts = []
        for row, prompt in enumerate(prompts):
            ids = torch.tensor([(20, 10)[self.asked % 2] + row, 1])
            rollout = Rollout(torch.tensor(prompt.ids), ids, "stop", logprobs=torch.zeros(2), versions=torch.zeros(2))
            answer: Future[Any] = Future()
            piece = Piece([rollout], [Sample(LetterTokenizer().decode(ids.tolist()), gold=None)])
            answer.set_result((piece, piece))
            parts.append(Part([row], answer))
        return parts


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
    group, workers = Group(), Workers()
    config = base_config(SETTINGS)
    conversation = SimpleNamespace(stop_ids=(1,), stop_strings=())
    made = RayPPOTrainer(
        config,
        ExperienceMaker(Roles(group, None, None, workers), Scorer(), training_sampling(config, conversation), config),  # type: ignore[arg-type]
        Learners(group, None, workers),  # type: ignore[arg-type]
        LetterTokenizer(),
        conversation=conversation,  # type: ignore[arg-type]
        save_dir=tmp_path,
    )

    def run_models(rollouts: Sequence[Rollout], seconds: Any) -> ModelScores:
        shape = (len(rollouts), 2)
        return ModelScores(torch.zeros(shape), None, None, None, None, torch.ones(shape, dtype=torch.bool))

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
    trainer.plan = SimpleNamespace(num_episodes=3, num_collect_steps=1, num_update_steps=1)  # type: ignore[assignment]
    trainer._ask_ahead()  # this episode's collect step and the next one's
    position, meter = trainer.prompt_loader.state_dict(), trainer.meter.state_dict()
    asked = [[prompt.problem.id for prompt in one.prompts] for one in trainer.maker.ahead.values()]
    trainer.progress.optimizer_steps = 1
    saved: list[Any] = []

    def save() -> Path:
        saved.extend(ahead(trainer))
        return Path("checkpoint")

    monkeypatch.setattr(trainer, "save_checkpoint", save)
    with pytest.raises(UserError, match=r"is broken\nWhat was learned is saved in checkpoint"):
        trainer._collect()
    assert [one["problems"] for one in saved] == asked
    assert [one["responses"] for one in saved] == [[[n + row, 1] for row in range(8)] for n in (10, 20)]
    assert trainer.prompt_loader.state_dict() == position and trainer.meter.state_dict() == meter
    assert trainer.progress.samples == 0 and len(trainer.buffer) == 0
    # Mended, the run takes up both, in their order, and asks for nothing anew.
    trainer.maker.scorer.fails = False  # type: ignore[attr-defined]
    for first in (10, 20):
        trainer._collect()
        trainer.progress.episode += 1
        newest = trainer.buffer.items[-8:]
        assert [item.response_ids.tolist() for item in newest] == [[first + row, 1] for row in range(8)]
    assert not trainer.maker.ahead and trainer.prompt_loader.state_dict() == position


def test_no_more_is_asked_ahead_than_the_run_needs(trainer: RayPPOTrainer) -> None:
    trainer.plan = SimpleNamespace(num_episodes=3, num_collect_steps=2, num_update_steps=1)  # type: ignore[assignment]
    trainer.maker.scorer.fails = False  # type: ignore[attr-defined]
    for ends in ([(0, 0), (0, 1), (1, 0), (1, 1)], [(1, 0), (1, 1), (2, 0), (2, 1)], [(2, 0), (2, 1)]):
        trainer._ask_ahead()
        trainer._ask_ahead()  # a run that goes on within an episode
        assert [place[1:] for place in trainer.maker.ahead] == ends
        for step in range(2):
            trainer.progress.collect_step = step
            trainer._collect()
        trainer.progress.end_episode()
    assert not trainer.maker.ahead
