"""Rollout workers, and episodes generated ahead: the contract is that a run's weights depend neither on how many workers there are, nor on
who answers first, dies or hangs, nor on stops; and that they are the local trainer's where nothing is generated ahead.

Workers here are late at random. One run (`reference`) has all that draws prompts or responses of its own: further prompts where groups
have no signal, and greedy responses to compare with.
"""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from ray_harness import process_of, rows, same, settings, stopped
from trainer_harness import StopAfter

import rlvr.ray.rollout as pool
import rlvr.ray.train as on_ray
from rlvr.api import train
from rlvr.config import merge, overlay
from rlvr.journal.journal import Journal
from rlvr.ray.experience import ExperienceMaker
from rlvr.ray.groups import Size
from rlvr.ray.roles import RayPPORollout
from rlvr.ray.splitting import Piece, Request
from rlvr.replay.repeat import first_difference
from rlvr.report.timeline import last_rounds, read_spans, shares
from rlvr.run import assembly

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("process")]
REWARD = f"{Path(__file__).parents[1] / 'plain_rewards.py'}:odd_letters"  # half of the groups have no signal
AHEAD = {
    "reward": {"reward_functions": [REWARD], "reward_workers": 0},
    "algo": {"estimator": "remax", "dynamic_sampling": True, "max_refills": 1, "kl_coef": 0.0},
    "rollout": {"experience_batch_size": 8, "generation_batch_size": 4},
    "train": {"num_episodes": 4, "num_collect_steps": 2, "lr": 0.01, "train_batch_size": 16},
    "ray": {"num_rollout_workers": 2, "max_staleness": 2},
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def late_workers(cast) -> Iterator[None]:
    class Late(RayPPORollout):  # in here it is sent to its process whole, which could not import this file
        def answer(self, request: Request) -> Piece:
            time.sleep(random.SystemRandom().uniform(0, 0.2))
            return super().answer(request)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "RayPPORollout", Late)
        yield


def assert_same_metrics(one: Path, other: Path) -> None:
    for mine, theirs in zip(rows(one), rows(other), strict=True):
        assert mine == pytest.approx(theirs, rel=1e-12)  # sums are taken in other orders


@pytest.fixture(scope="module")
def versions() -> dict[str, list[int]]:
    """Of the weights that sampled the responses, by the place that they are for."""
    return {}


@pytest.fixture(scope="module")
def reference(cast, micro_model, tmp_path_factory, versions, process) -> Path:
    respond = ExperienceMaker.respond

    def seen(self: Any, prompts: Any, sampling: Any, seconds: Any, *seed: Any) -> Any:
        responses = respond(self, prompts, sampling, seconds, *seed)
        found = torch.cat([rollout.versions for rollout in responses.rollouts])
        versions["/".join(map(str, seed[1:]))] = found.tolist()
        return responses

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ExperienceMaker, "respond", seen)
        return train(settings(micro_model, tmp_path_factory.mktemp("reference") / "run", remote=True, **AHEAD))


def test_without_staleness_it_is_the_local_run(cast, micro_model, tmp_path) -> None:
    small = {
        "algo": {"estimator": "grpo", "kl_coef": 0.0},
        "rollout": {"generation_batch_size": 4},
        "train": {"num_collect_steps": 2},
    }
    local = train(settings(micro_model, tmp_path / "local", remote=False, **small))
    workers = {"ray": {"num_rollout_workers": 2}}
    remote = train(settings(micro_model, tmp_path / "remote", remote=True, **small, **workers))
    assert same(remote, local)
    assert_same_metrics(remote, local)
    assert "eval/accuracy" in rows(local)[0] and "sampler/kl" in rows(local)[1]
    assert (remote / "samples.jsonl").read_text() == (local / "samples.jsonl").read_text()


def test_the_timeline_has_all_who_work(reference) -> None:
    spans = read_spans(reference / "trace.json")
    workers = {f"rollout worker {number}": {"generation"} for number in (1, 2)}
    done: dict[str, set[str]] = {}
    for span in spans:
        done.setdefault(span.role, set()).add(span.name.split(",")[0])
    assert {"rollout", "reward", "score", "update"} <= done.pop("trainer") and done == workers
    assert any(span.name == "generation, weights 1" for span in spans)
    assert shares(last_rounds(spans))["trainer", "rollout"] > 0


KINDS: dict[str, dict[str, Any]] = {
    "adapters": {"model": {"lora_config": "lora.json"}, "algo": {"estimator": "grpo", "kl_coef": 0.05}},
    "weights in bf16": {
        "model": {"share_trunk": True}, "algo": {"kl_coef": 0.0}, "parallel": {"plugin": "zero2", "mixed_precision": "bf16"},
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_workers_compute_with_what_the_actor_has(cast, micro_model, tmp_path, monkeypatch, kind) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lora.json").write_text('{"r": 4, "lora_alpha": 8, "target_modules": "all-linear"}')
    small = overlay({"rollout": {"generation_batch_size": 8}}, KINDS[kind])
    local = train(settings(micro_model, tmp_path / "local", remote=False, **small))
    small = overlay(small, {"ray": {"num_rollout_workers": 2}})
    remote = train(settings(micro_model, tmp_path / "remote", remote=True, **small))
    assert same(remote, local)
    assert_same_metrics(remote, local)


@pytest.mark.parametrize(("plugin", "precision"), [("gemini", "bf16"), ("fsdp", "fp32")])
def test_sharded_training_processes_give_their_weights_together(cast, micro_model, tmp_path, plugin, precision) -> None:
    """Two training processes, whose sums are rounded otherwise than one's; their workers sample the same in the first episode."""
    given = {
        "algo": {"estimator": "grpo", "kl_coef": 0.0},
        "parallel": {"plugin": plugin, "mixed_precision": precision},
        "ray": {"num_rollout_workers": 2, "max_staleness": 1},
    }
    folders = []
    for count in (1, 2):
        with pytest.MonkeyPatch.context() as patch:
            groups = {"actor": Size(1, count, 0), "rollout": Size(1, 2, 0)}
            patch.setattr(on_ray, "sizes", lambda *_, groups=groups: groups)
            folders.append(train(settings(micro_model, tmp_path / str(count), remote=True, **given)))
    one, two = (rows(folder)[1] for folder in folders)
    for name in ("objective/scores", "response/length_tokens", "val/num_eos_tokens"):
        assert one[name] == two[name]
    # Workers that had only a shard, or the weights of the start, would be far away.
    assert rows(folders[1])[2]["sampler/kl"] < 0.01


def test_each_sample_has_the_version_that_its_place_says(reference, versions) -> None:
    of_first = {place: set(some) for place, some in versions.items() if "refill" not in place}
    assert of_first == {
        f"{episode}/{step}{greedy}": {max(0, episode - 2)}
        for episode in range(4) for step in range(2) for greedy in ("", "/greedy")
    }  # fmt: skip
    # What is asked only when the rewards are known has the newest weights.
    refills = {place: set(some) for place, some in versions.items() if "refill" in place}
    assert refills and all(some == {int(place[0])} for place, some in refills.items())
    assert len({len(some) for some in versions.values()}) > 1


def test_what_was_sampled_by_an_earlier_policy_is_weighed(reference) -> None:
    first, second, third, fourth = rows(reference)[1:]
    assert first["sampler/weight_avg"] == pytest.approx(1, abs=1e-5)
    assert all(abs(row["sampler/weight_avg"] - 1) > 1e-4 for row in (second, third, fourth))
    assert second["val/ratio"] == pytest.approx(1, abs=1e-6)  # to the policy that learns


def test_who_answers_first_changes_nothing(reference, cast, micro_model, tmp_path) -> None:
    changed = settings(micro_model, tmp_path / "run", remote=True, **AHEAD)
    again = train(changed)
    assert same(again, reference) and rows(again) == rows(reference)


@pytest.mark.parametrize("safe_points", [1, 4, 8])
def test_a_stopped_run_goes_on_bit_for_bit(reference, cast, micro_model, tmp_path, safe_points) -> None:
    config = settings(micro_model, tmp_path / "run", remote=True, **AHEAD)
    folder = stopped(config, safe_points)
    assert not (folder / "actor").exists()
    train(merge(config, {"ckpt": {"resume": True}}))
    assert same(folder, reference)
    assert_same_metrics(folder, reference)


def test_partial_rollouts_depend_on_neither_delays_nor_stops(cast, micro_model, tmp_path) -> None:
    config = overlay(
        AHEAD,
        {
            "train": {"num_episodes": 3, "num_collect_steps": 1, "train_batch_size": 8},
            "ray": {"partial_rollout_tokens": 4},
            "log": {"journal": 9},
        },
    )
    whole = train(settings(micro_model, tmp_path / "whole", remote=True, **config))
    halves = settings(micro_model, tmp_path / "halves", remote=True, **config)
    folder = stopped(halves, 2)
    train(merge(halves, {"ckpt": {"resume": True}}))
    assert same(folder, whole)
    assert_same_metrics(folder, whole)
    assert first_difference(folder, whole).step is None  # the versions of tokens are in the journal, too
    mixed = 0
    for episode in range(3):
        for item in Journal(whole).experience(episode + 1, 0)[0]:
            found, tokens = item.versions, range(len(item.response_ids))
            assert found is not None
            ahead = [min(episode, max(0, episode - 2) + t // 4) for t in tokens]
            assert found.tolist() in (ahead, [episode for _ in tokens])  # of a refill
            mixed += len(set(found.tolist())) == 3
    assert mixed > 2
    # Each token was sampled with the logprobs of its version.
    first, *others = rows(whole)[1:]
    assert first["sampler/kl"] < 1e-9 and first["sampler/staleness_avg"] == 0
    assert all(0 < row["sampler/staleness_avg"] < 2 for row in others) and others[-1]["sampler/staleness_max"] == 2


def claims_another_version() -> Callable[[Any], None]:
    def claim(worker: Any) -> None:  # in here it is sent whole
        type(worker).version = property(lambda self: 99, lambda self, version: None)

    return claim


STRIKES: dict[str, Callable[[Any], Any]] = {
    "is killed": lambda handle: os.kill(process_of(handle, "identity"), signal.SIGKILL),
    "is stopped": lambda handle: os.kill(process_of(handle, "identity"), signal.SIGSTOP),
    "has other weights": lambda handle: handle.__ray_call__.remote(claims_another_version()),
}


class Strike(StopAfter):
    """Strikes a worker once, while what was asked ahead is being answered."""

    def __init__(self, strike: Callable[[], Any]) -> None:
        super().__init__(0)
        self.strike, self.sent = strike, False

    def on_make_experience_end(self, trainer: Any, collected: Any) -> None: ...

    def on_learn_batch_end(self, trainer: Any, batch: Any) -> None:
        if not self.sent:
            self.strike()
        self.sent = True


@pytest.mark.parametrize("what", STRIKES)
def test_a_worker_that_dies_or_hangs_is_replaced(reference, cast, micro_model, tmp_path, capsys, what) -> None:
    config = settings(
        micro_model, tmp_path / "run", remote=True, **AHEAD, parallel={"mixed_precision": "fp32", "dist_timeout": 8}
    )
    workers = cast.group("rollout")(Size(1, 2, 0))
    struck = workers._workers[0]
    strike = Strike(partial(STRIKES[what], struck.handle))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assembly, "Watch", lambda: strike)
        folder = train(config)
    assert strike.sent and struck not in workers._workers and len(workers._workers) == 2
    assert same(folder, reference) and rows(folder) == rows(reference)
    assert "; another takes its place, and its" in capsys.readouterr().out
