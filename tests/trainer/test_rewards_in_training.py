"""Reward functions inside training: worker processes, whole batches, groups, failures."""

import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from plain_rewards import fails, first_letter_is_b, hangs_on_long, letters
from trainer_harness import LetterTokenizer, loader, make_trainer

from rewards import RewardFunction, Sample
from rewards.pool import RewardPool
from rlvr.errors import UserError
from rlvr.rollout.engine import Engine, Rollout
from rlvr.scorers.rules import RLVRRewardModel
from rlvr.tracking.diagnosis import diagnose
from rlvr.tracking.meter import Meter
from rlvr.trainer.callbacks import Callback

pytestmark = pytest.mark.usefixtures("process")


def in_processes(functions: Sequence[RewardFunction], **limits: Any) -> RewardPool:
    return RewardPool(functions, workers=1, **limits)


def samples(*responses: str, prompt: str = "p") -> list[Sample]:
    return [Sample(response=r, gold="1", prompt=prompt) for r in responses]


def test_a_function_that_hangs_costs_the_sample_and_is_named(tmp_path: Path) -> None:
    make_pool = partial(in_processes, timeout_s=2.0, max_failed_share=1.0)
    model = RLVRRewardModel([hangs_on_long], LetterTokenizer(), make_pool=make_pool)
    results = model.score(samples("BB", "B" * 9, "CC"))
    assert [r.total for r in results] == [1.0, None, 1.0]
    assert results[1].scores["hangs_on_long"].outcome.status == "timed_out"
    warnings: list[str] = []

    class Listen(Callback):
        def on_warning(self, trainer: Any, message: str) -> None:
            warnings.append(message)

    from rlvr.trainer.callbacks import Watch

    trainer = make_trainer(tmp_path, reward_model=model, callbacks=[Watch(), Listen()], max_new_tokens=10)
    trainer.fit(1, 1, 1, loader())
    model.close()
    assert any("'hangs_on_long'" in message for message in warnings)


def test_training_stops_when_a_function_keeps_failing_and_keeps_what_was_learned(tmp_path: Path) -> None:
    sound = RLVRRewardModel([lambda response: float(len(response))], LetterTokenizer())
    trainer = make_trainer(tmp_path, reward_model=sound)
    trainer.fit(1, 1, 1, loader())
    trainer.maker.reward_model = RLVRRewardModel([fails], LetterTokenizer(), make_pool=in_processes)
    with pytest.raises(UserError, match=r"(?s)'fails' failed on .*broken on purpose.*saved in (\S+);") as stop:
        trainer.fit(2, 1, 1, loader())
    trainer.maker.reward_model.close()
    saved = Path(str(stop.value).split("saved in ")[1].split(";")[0])
    assert (saved / "manifest.json").exists() or any(saved.iterdir())


@pytest.mark.parametrize("make_pool", [None, in_processes], ids=["here", "in processes"])
def test_a26_a_batch_function_sees_the_whole_batch_once(make_pool: Any) -> None:
    model = RLVRRewardModel([first_letter_is_b], LetterTokenizer(), make_pool=make_pool)
    scoring = model.begin()
    scoring.add(samples("BA", "AB"))
    scoring.add(samples("BB"))
    assert [r.total for r in scoring.result()] == [4.0, 3.0, 4.0]
    model.close()


class SlowEngine(Engine):
    """Two batches; the second asks whether scoring of the first is done by the time it comes."""

    def __init__(self, model: RLVRRewardModel) -> None:
        self.model, self.scored_meanwhile = model, False

    def stream(self, model: Any, prompts: Any, sampling: Any, seed: Any) -> Iterator[list[Rollout]]:
        import torch

        half = len(prompts) // 2
        answer = torch.tensor([5, 6, 1])
        yield [Rollout(torch.tensor(p.ids), answer, "stop") for p in prompts[:half]]
        assert self.model.pool is not None
        for _ in range(200):
            if self.model.pool.failures["letters"].calls:
                self.scored_meanwhile = True
                break
            time.sleep(0.05)
        yield [Rollout(torch.tensor(p.ids), answer, "stop") for p in prompts[half:]]


def test_scoring_overlaps_generation() -> None:
    model = RLVRRewardModel([letters], LetterTokenizer(), make_pool=partial(in_processes, cache_size=0))
    engine = SlowEngine(model)
    trainer = make_trainer(reward_model=model, engine=engine)
    collected = trainer.maker.make_experience(next(iter(loader())), Meter(), 0)
    model.close()
    assert engine.scored_meanwhile and len(collected.results) == 32
    assert {r.total for r in collected.results} == {2.0}


def test_scores_are_normalised_over_the_responses_to_one_prompt() -> None:
    model = RLVRRewardModel([letters], LetterTokenizer(), aggregation="normalise_then_sum")
    easy, hard = samples("AAAA", "AAAAAA", prompt="easy"), samples("A", "AA", prompt="hard")
    totals = [r.total for r in model.score([easy[0], hard[0], easy[1], hard[1]])]
    assert totals == pytest.approx([-0.7071, -0.7071, 0.7071, 0.7071], abs=2e-4)


def test_failures_are_a_sign_at_once() -> None:
    assert ["mine fails"] == [finding.name for finding in diagnose([{"reward/mine/failed": 0.01}])]
    assert not diagnose([{"reward/mine/failed": 0.0}])
