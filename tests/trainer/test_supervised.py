"""SFT and reward-model training against plain loops written out, and independence of how a step is computed."""

import json
import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from supervised_harness import STEPS, StopAfter, StopInEvaluation, examples, make, pairs, reward_model, weights
from tiny_models import tiny_model

from rlvr.boost.optimizer import lr_schedule
from rlvr.checkpoint import storage as checkpoint
from rlvr.data.sampling import PromptSampler
from rlvr.errors import UserError
from rlvr.trainer.base import Interrupted

pytestmark = pytest.mark.usefixtures("process")
BOTH = pytest.mark.parametrize("kind", ["sft", "rm"])


def rows(folder: Path) -> list[dict]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if not k.startswith(("time/", "memory/"))} for line in lines]


def plain_sft(steps: int, batch: int) -> torch.Tensor:
    """One example at a time through transformers' own logits; the mean over all learned tokens of a step."""
    model, items = tiny_model(), examples()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule, sampler = lr_schedule(optimizer, steps), PromptSampler(len(items), batch, 0)
    for step in range(steps):
        losses = []
        for example in (items[i] for i in sampler.batch(step)):
            logits = model(torch.tensor([example.ids])).logits[0]
            losses += [
                F.cross_entropy(logits[place - 1], torch.tensor(example.ids[place])) for place in example.learned
            ]
        torch.stack(losses).mean().backward()
        _step(model, optimizer, schedule)
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def plain_rm(steps: int, batch: int, centering: float) -> torch.Tensor:
    """One response at a time through transformers' own classifier; the mean over the pairs of a step."""
    model, items = reward_model().model, pairs()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule, sampler = lr_schedule(optimizer, steps), PromptSampler(len(items), batch, 0)
    for step in range(steps):
        losses = []
        for pair in (items[i] for i in sampler.batch(step)):
            better, worse = (model(torch.tensor([side])).logits[0, 0] for side in (pair.chosen, pair.rejected))
            losses.append(torch.log1p(torch.exp(-(better - worse - pair.margin))) + centering * (better + worse) ** 2)
        torch.stack(losses).mean().backward()
        _step(model, optimizer, schedule)
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def _step(model, optimizer, schedule) -> None:
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    # AdamW's first steps turn a rounding of the gradient into one of the learning rate's size where it is near 0.
    return bool((a - b).abs().mean() < 2e-6)


def test_sft_equals_a_plain_loop() -> None:
    trainer = make("sft", max_steps=3)
    start = weights(trainer)
    trainer.fit()
    expected = plain_sft(3, 8)
    assert close(weights(trainer), expected) and not close(start, expected)


def test_reward_model_training_equals_a_plain_loop() -> None:
    trainer = make("rm", max_steps=3, center_rewards_coefficient=0.1)
    trainer.fit()
    assert close(weights(trainer), plain_rm(3, 8, 0.1)) and not close(weights(trainer), plain_rm(3, 8, 0.0))


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("sft", {"train_batch_size": 2, "accumulation_steps": 4}),
        ("sft", {"micro_batch_tokens": 30}),
        ("sft", {"packing": True}),
        ("sft", {"packing": True, "attention": "eager"}),
        ("sft", {"packing": True, "attention": "eager", "train_batch_size": 2, "accumulation_steps": 4}),
        ("sft", {"plugin": "zero2"}),
        ("rm", {"train_batch_size": 2, "accumulation_steps": 4}),
        ("rm", {"micro_batch_tokens": 60}),
        ("rm", {"plugin": "zero2"}),
    ],
)
def test_a20_how_a_step_is_computed_changes_nothing(kind: str, changes: dict) -> None:
    usual, other = make(kind, max_steps=3), make(kind, max_steps=3, **changes)
    usual.fit()
    other.fit()
    assert close(weights(usual), weights(other))


def test_packing_makes_fewer_and_fuller_rows() -> None:
    trainer = make("sft", packing=True, attention="eager")
    items = examples()
    packed = [row for rows in trainer._passes(items) for row in rows]
    longest = max(len(e.ids) for e in items)
    assert sorted(e.ids for row in packed for e in row) == sorted(e.ids for e in items)
    assert len(packed) < 0.75 * len(items) and max(sum(len(e.ids) for e in row) for row in packed) == longest


def test_packing_is_refused_where_examples_would_see_each_other() -> None:
    with pytest.raises(UserError, match="--packing: OPTForCausalLM"):
        make("sft", packing=True, family="opt", attention="eager")


@BOTH
def test_learning_shows_in_what_is_logged(kind: str, tmp_path: Path) -> None:
    held_out = examples(12, seed=1) if kind == "sft" else pairs(12, seed=1)
    items = examples(4) if kind == "sft" else None
    trainer = make(kind, tmp_path, max_steps=30, eval_interval=10, held_out=held_out, items=items)
    trainer.fit()
    logged = rows(tmp_path)
    assert [row["step"] for row in logged] == [0, *range(2, 31, 2)]
    assert [row["step"] for row in logged if "eval/loss" in row] == [0, 10, 20, 30]
    assert logged[-1]["samples"] == 240 and logged[-1]["epoch"] == 240 / len(trainer.items)
    assert logged[-1]["train/loss"] < 0.5 * logged[1]["train/loss"] and logged[1]["lr"] > logged[-1]["lr"] > 0
    if kind == "rm":
        assert logged[-1]["eval/accuracy"] == 1.0 and logged[-1]["eval/loss"] < 0.3 * logged[0]["eval/loss"]
        assert logged[-1]["eval/brier"] < 0.1 and 0 <= logged[-1]["eval/calibration_error"] <= 1


def test_held_out_loss_and_perplexity_are_token_means() -> None:
    held_out = examples(11, seed=2)
    model, losses = tiny_model(), []
    with torch.no_grad():
        for e in held_out:
            logp = model(torch.tensor([e.ids])).logits[0].log_softmax(-1)
            losses += [-logp[place - 1, e.ids[place]].item() for place in e.learned]
    metrics = make("sft", held_out=held_out)._evaluate()
    assert metrics["eval/loss"] == pytest.approx(sum(losses) / len(losses), rel=1e-5)
    assert metrics["eval/perplexity"] == pytest.approx(math.exp(metrics["eval/loss"]))


def test_held_out_measures_of_a_reward_model() -> None:
    held_out, model = pairs(13, seed=2), reward_model().model
    with torch.no_grad():
        scores = [[model(torch.tensor([side])).logits.item() for side in (p.chosen, p.rejected)] for p in held_out]
    metrics = make("rm", held_out=held_out, micro_batch_tokens=60)._evaluate()
    p = [1 / (1 + math.exp(r - c)) for c, r in scores]
    flat = [s for pair in scores for s in pair]
    mean = sum(flat) / len(flat)
    assert metrics["eval/accuracy"] == pytest.approx(sum(c > r for c, r in scores) / len(scores))
    assert metrics["eval/brier"] == pytest.approx(sum((1 - x) ** 2 for x in p) / len(p), rel=1e-5)
    assert metrics["eval/score_mean"] == pytest.approx(mean, abs=1e-6)
    assert metrics["eval/score_std"] == pytest.approx((sum((s - mean) ** 2 for s in flat) / len(flat)) ** 0.5, rel=1e-4)
    assert metrics["eval/loss"] == pytest.approx(
        sum(math.log1p(math.exp(r - c + x.margin)) for (c, r), x in zip(scores, held_out, strict=True)) / len(p),
        rel=1e-5,
    )


@BOTH
@pytest.mark.parametrize("stop", [1, 2, 5])
def test_a30_a_stopped_run_goes_on_as_if_nothing_had_happened(kind: str, stop: int, tmp_path: Path) -> None:
    held_out = examples(8, seed=1) if kind == "sft" else pairs(8, seed=1)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    arguments = {"held_out": held_out, "eval_interval": 3}
    uninterrupted = make(kind, whole, **arguments)
    uninterrupted.fit()
    with pytest.raises(Interrupted) as interrupted:
        make(kind, broken, callbacks=[StopAfter(stop)], **arguments).fit()
    torch.rand(5)
    again = make(kind, broken, **arguments)
    again.load_checkpoint(interrupted.value.checkpoint)
    again.fit()
    assert torch.equal(weights(again), weights(uninterrupted))
    assert rows(broken) == rows(whole)


@BOTH
@pytest.mark.parametrize("passes", [1, 5, 9, 10])
def test_a30_a_run_stopped_in_an_evaluation_does_it_again(kind: str, passes: int, tmp_path: Path) -> None:
    """Evaluations take 4 passes of 2 rows: before training, after step 3, and after the last."""
    held_out = examples(8, seed=1) if kind == "sft" else pairs(8, seed=1)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    arguments = {"held_out": held_out, "eval_interval": 3, "train_batch_size": 2}
    make(kind, whole, **arguments).fit()
    with pytest.raises(Interrupted) as interrupted:
        make(kind, broken, callbacks=[StopInEvaluation(passes)], **arguments).fit()
    step = int(Path(str(interrupted.value.checkpoint)).name.removeprefix("step-"))
    assert step == (0 if passes < 4 else 3 if passes < 8 else 6)
    again = make(kind, broken, **arguments)
    again.load_checkpoint(interrupted.value.checkpoint)
    again.fit()
    assert rows(broken) == rows(whole)


@pytest.mark.parametrize(
    ("kind", "plugin", "precision"), [("sft", "zero2", "bf16"), ("rm", "zero2", "bf16"), ("sft", "ddp", "bf16")]
)
def test_a30_under_other_plugins_and_precisions(kind: str, plugin: str, precision: str, tmp_path: Path) -> None:
    arguments = {"plugin": plugin, "precision": precision}
    uninterrupted = make(kind, tmp_path / "whole", **arguments)
    uninterrupted.fit()
    with pytest.raises(Interrupted) as interrupted:
        make(kind, tmp_path / "broken", callbacks=[StopAfter(3)], **arguments).fit()
    again = make(kind, tmp_path / "broken", **arguments)
    again.load_checkpoint(interrupted.value.checkpoint)
    again.fit()
    assert torch.equal(weights(again), weights(uninterrupted))


def test_checkpoints_come_at_the_interval_and_belong_to_their_run(tmp_path: Path) -> None:
    make("sft", tmp_path, save_interval=1, keep_checkpoints=2, run_state={"lr": 1}).fit()
    saved = checkpoint.list_checkpoints(tmp_path)
    assert [c.name for c in saved] == [f"step-{STEPS - 1:06d}", f"step-{STEPS:06d}"]
    with pytest.raises(UserError, match="other settings: lr: saved 1, given 2"):
        make("sft", run_state={"lr": 2}).load_checkpoint(saved[-1])
    with pytest.raises(UserError, match="other data or another order .size was 40 and is 39"):
        make("sft", run_state={"lr": 1}, items=examples(39)).load_checkpoint(saved[-1])
    with pytest.raises(UserError, match="another model"):
        make("sft", run_state={"lr": 1}, family="gpt2").load_checkpoint(saved[-1])


def test_the_fine_tuned_model_loads_in_transformers(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    trainer = make("sft", tmp_path)
    trainer.fit()
    loaded = AutoModelForCausalLM.from_pretrained(trainer.result)
    assert torch.equal(torch.cat([p.detach().flatten() for p in loaded.parameters()]), weights(trainer))


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_the_reward_model_loads_in_transformers_with_equal_scores(family: str, tmp_path: Path) -> None:
    from transformers import AutoModelForSequenceClassification

    from rlvr.models.reward_model import RewardModel

    held_out = pairs(6, seed=3)
    trainer = make("rm", tmp_path, family=family, held_out=held_out)
    trainer.fit()
    theirs = AutoModelForSequenceClassification.from_pretrained(trainer.result)
    with torch.no_grad():
        ours = torch.cat(trainer._score(held_out)).tolist()
        sides = [p.chosen for p in held_out] + [p.rejected for p in held_out]
        scores = [theirs(torch.tensor([side])).logits.item() for side in sides]
    assert ours == pytest.approx(scores, rel=1e-5, abs=1e-6) and len(set(scores)) == 12
    statistics = RewardModel.from_pretrained(trainer.result).statistics
    mean = sum(scores) / len(scores)
    assert statistics.mean == pytest.approx(mean, rel=1e-4, abs=1e-6)
    assert statistics.std == pytest.approx((sum((s - mean) ** 2 for s in scores) / len(scores)) ** 0.5, rel=1e-4)


def test_without_held_out_pairs_the_scores_are_measured_on_those_of_training(tmp_path: Path) -> None:
    trainer = make("rm", tmp_path, max_steps=1)
    trainer.fit()
    with torch.no_grad():
        scores = torch.cat(trainer._score(trainer.items))
    assert trainer.role.unwrapped.statistics.mean == pytest.approx(scores.mean().item(), rel=1e-4)


def test_centering_keeps_scores_around_zero() -> None:
    """The Bradley-Terry loss does not see a common offset; the centering does, and takes it away."""
    sums = []
    for coefficient in (0.0, 0.1):
        trainer = make("rm", max_steps=25, center_rewards_coefficient=coefficient)
        with torch.no_grad():
            trainer.role.unwrapped.head.weight.mul_(40)
        trainer.fit()
        with torch.no_grad():
            chosen, rejected = trainer._score(trainer.items)
        assert (chosen > rejected).float().mean() > 0.9
        sums.append((chosen + rejected).abs().mean().item())
    assert sums[1] < 0.5 * sums[0]
