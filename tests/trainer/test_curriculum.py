"""Training with a curriculum: it is told what was solved, and a run that is stopped and goes on draws the same problems."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from trainer_harness import StopAfter, make_trainer, prompts, weights

from rlvr.data.curriculum import Curriculum
from rlvr.data.prompts import PromptLoader
from rlvr.errors import UserError
from rlvr.trainer.base import Interrupted

pytestmark = pytest.mark.usefixtures("process")
PLAN = (4, 2, 2)
SETTINGS: dict[str, Any] = {"curriculum": "target_success", "positive_threshold": 0.2}


def loader() -> PromptLoader:
    sampler = Curriculum([f"level {i % 4}" for i in range(40)], 16, 0, "target_success", memory=4)
    return PromptLoader(prompts(), sampler, 0, 1)


def rows(folder: Path) -> list[dict[str, float]]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if not k.startswith(("time/", "memory/"))} for line in lines]


@pytest.fixture(scope="module")
def whole(process, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    trainer, data = make_trainer(folder, settings=dict(SETTINGS)), loader()
    trainer.fit(*PLAN, data)
    return weights(trainer), rows(folder), data.sampler


def test_it_is_told_what_was_solved(whole) -> None:
    _, metrics, sampler = whole
    assert sampler.step == 8 and sampler.counter == 8
    tries = sum(arm.slow_tries for arm in sampler.known.values())
    faded = sum(16 * 0.5 ** (age / 16) for age in range(8))
    assert 0.8 * faded < tries <= 8 * 16
    assert all(f"curriculum/level_{level}/share" in row for row in metrics for level in range(4))
    assert metrics[-1]["curriculum/known"] == 1
    assert len({row["curriculum/level_0/success"] for row in metrics}) > 1


@pytest.mark.parametrize("stop", [1, 2, 6, 11])
def test_a30_a_stopped_run_goes_on_with_the_same_problems(stop: int, whole, tmp_path) -> None:
    with pytest.raises(Interrupted) as interrupted:
        make_trainer(tmp_path, settings=dict(SETTINGS), callbacks=[StopAfter(stop)]).fit(*PLAN, loader())
    again = make_trainer(tmp_path, settings=dict(SETTINGS))
    again.load_checkpoint(interrupted.value.checkpoint)
    data = loader()
    again.fit(*PLAN, data)
    assert torch.equal(weights(again), whole[0]) and rows(tmp_path) == whole[1]
    assert data.sampler.state_dict() == whole[2].state_dict()


def test_dynamic_sampling_tells_of_all_that_it_sampled(tmp_path) -> None:
    trainer = make_trainer(
        tmp_path,
        settings={**SETTINGS, "estimator": "grpo", "num_generations": 2, "dynamic_sampling": True, "max_refills": 1},
    )
    data = loader()
    trainer.fit(1, 1, 1, data)
    tries = sum(arm.tries for arm in data.sampler.known.values())
    sampled = rows(tmp_path)[0]["dynamic/groups_sampled"] * 2
    assert tries == sampled >= 32


def test_somebody_must_tell_right_from_wrong(tmp_path) -> None:
    trainer = make_trainer(tmp_path, settings={"curriculum": "zone"})
    with pytest.raises(UserError, match="--curriculum zone needs to know which responses are right"):
        trainer.fit(1, 1, 1, loader())
