"""The metrics that the references name are logged under these names, with the numbers that their names say."""

import itertools
import json

import pytest
import torch
from tiny_models import tiny_model
from trainer_harness import FixedEngine, loader, make_trainer

from rlvr.data.supervised import Example
from rlvr.trainer.callbacks import Callback

pytestmark = pytest.mark.usefixtures("process")

TRL = """
objective/kl objective/entropy objective/non_score_reward objective/rlhf_reward objective/scores policy/approxkl_avg
policy/clipfrac_avg policy/entropy_avg loss/policy_avg loss/value_avg val/clipfrac_avg val/ratio val/ratio_var
val/num_eos_tokens lr episode
""".split()
COATI = """
train/max_ratio train/actor_loss train/critic_loss train/ptx_loss train/lr_actor train/lr_critic reward approx_kl value
advantages token_cost
""".split()
# ColossalChat skips batches whose ratio is large. Nothing is skipped here: beyond the clip range a token has no gradient.
NOT_LOGGED = ["train/skip_ratio"]


class Ptx:
    """Rows for the ptx loss, for ever."""

    def __iter__(self):
        while True:
            yield [Example((5, 6, 7, 8), 2)]


class Ratios(Callback):
    """The experience of an episode, as it was learned from."""

    def __init__(self) -> None:
        self.items = []

    def on_learn_batch_end(self, trainer, batch) -> None:
        self.items += batch


def test_metrics_have_the_references_names(tmp_path) -> None:
    trainer = make_trainer(tmp_path, settings={}, ptx_coef=0.1, initial_model=tiny_model(seed=3))
    trainer.fit(1, 1, 2, loader(), Ptx())
    (row,) = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert set(TRL + COATI) <= set(row) and not set(NOT_LOGGED) & set(row)
    # What the sums say of each other
    assert row["objective/rlhf_reward"] == pytest.approx(row["objective/scores"] + row["objective/non_score_reward"])
    assert row["objective/non_score_reward"] == pytest.approx(-0.01 * row["objective/kl"])
    assert row["train/max_ratio"] >= row["val/ratio"] and row["val/ratio_var"] >= 0
    assert row["token_cost"] == row["response/length_tokens"] and row["reward"] == row["objective/scores"]
    assert row["train/lr_actor"] == row["lr"]


def test_approx_kl_is_colossalchats_of_policy_and_reference(tmp_path) -> None:
    """`compute_reward` of coati/models/utils.py gives it; it is logged as the mean over tokens of what was learned from."""
    seen = Ratios()
    trainer = make_trainer(tmp_path, settings={}, callbacks=[seen], initial_model=tiny_model(seed=3))
    trainer.fit(1, 1, 1, loader())
    (row,) = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    log_ratio = torch.cat([item.logprobs - item.ref_logprobs for item in seen.items])
    assert row["approx_kl"] == pytest.approx((log_ratio.exp() - 1 - log_ratio).mean().item(), rel=1e-4)
    assert row["approx_kl"] > 1e-3 and abs(row["approx_kl"] - row["policy/approxkl_avg"]) > 1e-3


def test_the_largest_ratio_is_that_over_all_tokens_of_the_episode() -> None:
    largest = []
    for size in (32, 4):  # however the step is cut
        seen = {}

        class Keep(Callback):
            def on_episode_end(self, trainer, episode, metrics, seen=seen) -> None:
                seen.update(metrics)

        trainer = make_trainer(train_batch_size=size, accumulation_steps=32 // size, callbacks=[Keep()])
        trainer.fit(1, 1, 2, loader())
        largest.append(seen["train/max_ratio"])
    assert largest[0] > 1.0 and largest[1] == pytest.approx(largest[0], rel=1e-4)


def test_advantages_are_averaged_before_they_are_whitened() -> None:
    trainer = make_trainer()
    trainer._take_loaders(loader(), None)
    trainer._make_experience()
    every = torch.cat([item.advantages for item in trainer.buffer.items])
    assert trainer.meter.means()["advantages"] == pytest.approx(every.mean().item(), abs=1e-6)


def test_memory_is_a_curve(tmp_path) -> None:
    """Of whole runs and of supervised ones; what is resident now is not more than what was at most."""
    import resource

    from supervised_harness import make as make_supervised

    make_trainer(tmp_path).fit(2, 1, 1, loader())
    (tmp_path / "sft").mkdir()
    make_supervised("sft", tmp_path / "sft", max_steps=2).fit()
    written = [json.loads(line) for f in (tmp_path, tmp_path / "sft") for line in (f / "metrics.jsonl").open()]
    assert len(written) >= 3
    peaks = [row["memory/rss_peak_bytes"] for row in written]
    # Linux keeps its counts by thread and adds them up now and then.
    inexact = 2**20
    assert all(2**27 < row["memory/rss_bytes"] <= row["memory/rss_peak_bytes"] + inexact for row in written)
    assert all(later >= earlier - inexact for earlier, later in itertools.pairwise(peaks))
    assert peaks[-1] <= 1.05 * 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert ("memory/device_peak_bytes" in written[0]) == torch.cuda.is_available()


@pytest.mark.parametrize("estimator", ["gae", "grpo"])
def test_groups_with_signal_wherever_there_are_groups(estimator) -> None:
    """Two groups of four: one with a better response, one where all are alike."""
    seen = {}

    class Keep(Callback):
        def on_episode_end(self, trainer, episode, metrics) -> None:
            seen.update(metrics)

    same, better = [7, 8, 1], [5, 5, 1]
    engine = FixedEngine([same, same, better, same, same, same, same, same])
    settings = {"estimator": estimator}
    arguments = {"engine": engine, "num_generations": 4, "train_batch_size": 8, "callbacks": [Keep()]}
    make_trainer(settings=settings, **arguments).fit(1, 1, 1, loader(per_step=2))
    assert seen["objective/groups_with_signal"] == 0.5
    seen.clear()
    make_trainer(callbacks=[Keep()]).fit(1, 1, 1, loader())
    assert "objective/groups_with_signal" not in seen, "single responses are no groups"


def test_the_divergence_can_be_watched(tmp_path) -> None:
    """Of the best practices: too high a divergence is told while the run goes on."""
    from rlvr.tracking.diagnosis import diagnose

    assert not diagnose([{"objective/kl": 0.5, "response/length_tokens": 10.0}] * 3)
    found = diagnose([{"objective/kl": 1e4, "response/length_tokens": 10.0}] * 3)
    assert any("KL" in str(finding) for finding in found)
