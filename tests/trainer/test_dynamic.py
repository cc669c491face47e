"""Dynamic sampling: groups without signal give way to further prompts, and everything keeps its size."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import Ranks
from trainer_harness import FixedEngine, LetterTokenizer, StopAfter, loader, make_trainer, weights

from rlvr.scorers.rules import RLVRRewardModel
from rlvr.trainer.base import Interrupted
from rlvr.trainer.ppo import PPOTrainer

pytestmark = pytest.mark.usefixtures("process")
FULL, EMPTY = (5, 5, 1), (7, 8, 1)
"""Responses that are all F, and that have none."""
SAME, MIXED = [FULL, FULL], [FULL, EMPTY]


def make(groups: list[list[tuple[int, ...]]], refills: int = 4, **changes: Any) -> PPOTrainer:
    """Two responses to each prompt; the groups of responses come in this order, again and again."""
    responses = list(itertools.chain.from_iterable(groups))
    of_experience = {"estimator": "grpo", "dynamic_sampling": True, "max_refills": refills}
    return make_trainer(
        engine=FixedEngine(responses),
        num_generations=2,
        kl_coef=0.0,
        initial_model=None,
        train_batch_size=4,
        settings=of_experience | changes.pop("experience", {}),
        **changes,
    )


def collect(trainer: PPOTrainer, per_step: int = 4) -> tuple[list[Any], dict[str, float], Any]:
    prompt_loader = loader(per_step=per_step)
    trainer._take_loaders(prompt_loader, None)
    trainer._make_experience()
    return trainer.buffer.items, trainer.meter.means(), prompt_loader


def test_dropped_groups_are_replaced_by_the_prompts_that_come_next() -> None:
    trainer = make([SAME, MIXED, SAME, MIXED])
    items, means, prompt_loader = collect(trainer)
    assert len(items) == 8 and all(item.mask.all() for item in items)
    responses = [tuple(item.response_ids.tolist()) for item in items]
    assert responses == [FULL, EMPTY] * 4
    # Half of the groups have signal: 2 of the first 4, and of the next batch the first 4 were enough.
    assert means["dynamic/groups_sampled"] == 8 and means["dynamic/refills"] == 1
    assert means["objective/groups_with_signal"] == 0.5 and means["dynamic/groups_missing"] == 0
    assert trainer.progress.samples == 16
    first, second = prompt_loader.sampler.batch(0), prompt_loader.sampler.batch(1)
    wanted = [first[1], first[3], second[1], second[3]]
    got = [tuple(item.prompt_ids.tolist()) for item in items[::2]]
    assert got == [prompt_loader.items[i].ids for i in wanted]
    assert prompt_loader.sampler.counter == 2


def test_prompts_that_were_drawn_and_not_needed_come_first_in_the_next_step() -> None:
    """Each prompt of the stream is sampled once, in its order, whatever the refills leave over."""
    trainer = make([SAME, MIXED, MIXED, MIXED], num_collect_steps=6)
    seen: list[tuple[int, ...]] = []
    respond = trainer.maker.respond

    def watched(prompts: Any, *arguments: Any) -> Any:
        seen.extend(prompt.ids for prompt in prompts[::2])
        return respond(prompts, *arguments)

    trainer.maker.respond = watched  # type: ignore[method-assign]
    prompt_loader = loader(per_step=4)
    trainer._take_loaders(prompt_loader, None)
    for _ in range(6):
        trainer._make_experience()
    sampler = prompt_loader.sampler
    drawn = [prompt_loader.items[i].ids for k in range(sampler.counter) for i in sampler.batch(k)]
    assert len(trainer.buffer.items) == 6 * 8
    assert seen == drawn[: len(seen)] and len(drawn) - len(seen) == len(trainer.unsampled) < 4
    # A third more than 24 groups with signal: 32 prompts, so 8 batches or one more; before, each refill threw 2 away.
    assert sampler.counter <= 9


def test_a30_prompts_that_wait_are_part_of_a_checkpoint(tmp_path: Path) -> None:
    """A run that is stopped while some wait goes on as if it had not been."""

    def two_thirds(response: str, question: str) -> float:
        """Every third problem is never solved."""
        return float(response[:1] < "T") if int(question[1:]) % 3 else 0.0

    def run(folder: Path, stop: int | None) -> tuple[torch.Tensor, list[float]]:
        folder.mkdir(exist_ok=True)
        reward = RLVRRewardModel([two_thirds], LetterTokenizer())
        options: dict[str, Any] = {
            "settings": {"estimator": "grpo", "dynamic_sampling": True, "num_generations": 4}, "train_batch_size": 16,
            "kl_coef": 0.0, "initial_model": None, "reward_model": reward,
        }  # fmt: skip
        trainer = make_trainer(folder, callbacks=[StopAfter(stop)] if stop else [], **options)
        try:
            trainer.fit(2, 2, 1, loader(per_step=8))
        except Interrupted as interrupted:
            assert trainer.unsampled
            trainer = make_trainer(folder, **options)
            trainer.load_checkpoint(interrupted.checkpoint)
            trainer.fit(2, 2, 1, loader(per_step=8))
        rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        return weights(trainer), [row["dynamic/groups_sampled"] for row in rows]

    whole, sampled = run(tmp_path / "whole", None)
    again, resumed = run(tmp_path / "stopped", 1)
    assert torch.equal(again, whole) and resumed == sampled


def test_metrics_count_all_that_was_sampled_and_not_the_chosen_only() -> None:
    _, means, _ = collect(make([SAME, MIXED, SAME, MIXED]))
    assert means["objective/scores"] == pytest.approx(0.75)  # of the chosen it would be 0.5
    assert means["response/length_tokens"] == 3


def test_what_can_not_be_filled_is_filled_without_being_trained_on() -> None:
    trainer = make([SAME, SAME, SAME, MIXED, *[SAME] * 20], refills=2)
    items, means, prompt_loader = collect(trainer)
    assert len(items) == 8 and means["dynamic/refills"] == 2 and means["dynamic/groups_missing"] == 3
    assert sum(bool(item.mask.any()) for item in items) == 2
    assert prompt_loader.sampler.counter == 3
    trainer.fit(1, 1, 1, loader(per_step=4))  # nor does a whole episode of such groups break anything
    assert trainer.progress.optimizer_steps == 4
    assert all(torch.isfinite(p).all() for p in trainer.actor.unwrapped.parameters())


def test_a_full_batch_draws_nothing() -> None:
    _, means, prompt_loader = collect(make([MIXED]))
    assert means["dynamic/refills"] == 0 and means["dynamic/groups_sampled"] == 4
    assert prompt_loader.sampler.counter == 1


def test_a25_a_run_without_any_signal_goes_on() -> None:
    trainer = make([SAME], refills=1)
    before = [p.clone() for p in trainer.actor.unwrapped.parameters()]
    trainer.fit(2, 1, 1, loader(per_step=4))
    assert trainer.progress.optimizer_steps == 4
    after = trainer.actor.unwrapped.parameters()
    assert all(torch.allclose(a, b, rtol=1e-3) for a, b in zip(before, after, strict=True)), "weight decay alone"


def test_scores_that_are_neither_0_nor_1_have_signal_when_they_differ() -> None:
    def continuous(response: str) -> float:
        return 7.5 + 0.01 * response.count("F")

    trainer = make([SAME, MIXED], reward_model=RLVRRewardModel([continuous], LetterTokenizer()))
    items, means, _ = collect(trainer)
    assert all(item.mask.all() for item in items) and means["dynamic/groups_missing"] == 0
    assert all(item.advantages.abs().mean() > 0.5 for item in items)


def test_a_response_without_score_gives_no_signal() -> None:
    def sometimes(response: str) -> float | None:
        return 1.0 if "F" in response else None

    items, means, _ = collect(make([MIXED], 1, reward_model=RLVRRewardModel([sometimes], LetterTokenizer())))
    assert means["dynamic/groups_missing"] == 4 and not any(item.mask.any() for item in items)


@pytest.mark.processes
def test_a24_processes_draw_together_and_end(tmp_path: Path, ranks: Ranks, tiny_cache: Path) -> None:
    """Two processes whose groups differ in number: both take part in every refill, and neither waits for ever."""
    flags = (
        "--reward_functions gsm8k_reward_fn --preset dapo --num_episodes 2 --experience_batch_size 24 --num_generations 2 "
        "--train_batch_size 12 --max_refills 3 --eval_samples 4 --num_threads 1"
    )
    ranks.done(2, "train", *flags.split(), "--save_path", tmp_path / "run")
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    rows = [row for row in rows if "dynamic/refills" in row]
    assert len(rows) == 2
    for row in rows:
        assert row["dynamic/refills"] == int(row["dynamic/refills"]), "both processes count the same refills"
        assert row["dynamic/groups_sampled"] >= 12
