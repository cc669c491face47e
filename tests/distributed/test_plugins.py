"""Every plugin in 1, 2 and 4 processes learns what one process under DDP learns, with responses whose lengths are unequal
between the processes; what one plugin has saved, another takes up; and a stopped run ends where it would have ended.

Tolerances. float32: losses and gradient norms 2e-5 relative or 1e-6 absolute (5e-5 for the divergence: a sum of small
differences of either sign), weights on average 1e-7 apart after 4 steps of at most 1e-2: sums are taken in another order.
bf16 against float32: 3 % relative or 2e-2 absolute, weights on average 1e-3 apart: bf16 has 8 bits, and where a gradient is
nearly 0 its rounding decides which way Adam's step goes.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from plugins_worker import CONVERSIONS, KINDS, LAYOUTS, STOPPED, everything
from ranks import Ranks

pytestmark = pytest.mark.processes
COMPARED = (
    "train/actor_loss",
    "train/critic_loss",
    "loss/policy_avg",
    "loss/value_avg",
    "grad_norm/actor",
    "grad_norm/critic",
    "objective/kl",
    "objective/scores",
    "objective/non_score_reward",
    "val/ratio",
    "policy/entropy_avg",
)
EVERY = [(plugin, precision) for precision, plugins in LAYOUTS.items() for plugin in plugins]
SIZES = (1, 2, 4)


class Results(dict[int, dict[str, Any]]):
    """What the worker gives, by number of processes; made when it is first asked for."""

    def __init__(self, folder: Path, ranks: Ranks) -> None:
        super().__init__()
        self.folder, self.ranks = folder, ranks

    def __missing__(self, size: int) -> dict[str, Any]:
        folder = self.folder / str(size)
        folder.mkdir()
        if size == 1:
            self[1] = everything(folder)
            return self[1]
        self.ranks.done(size, "plugins_worker:main", folder, limit_s=800)
        self[size] = torch.load(folder / "results.pt", weights_only=True)
        return self[size]


@pytest.fixture(scope="module")
def results(process, ranks, tmp_path_factory) -> Results:
    return Results(tmp_path_factory.mktemp("plugins"), ranks)


def check(mine: dict[str, Any], theirs: dict[str, Any], rel: float, rounding: float, apart: float) -> None:
    assert len(mine["rows"]) == len(theirs["rows"]) == 2
    for own, other in zip(mine["rows"], theirs["rows"], strict=True):
        for name in COMPARED:
            if name in other:
                least = max(rounding, 5e-5) if name == "objective/kl" else rounding
                assert own[name] == pytest.approx(other[name], rel=rel, abs=least), name
    assert (mine["weights"].float() - theirs["weights"].float()).abs().mean() < apart


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("plugin", "precision"), EVERY)
def test_a13_a20_a24_every_plugin_learns_what_one_process_does(plugin, precision, size, results) -> None:
    tolerance = (2e-5, 1e-6, 1e-7) if precision == "fp32" else (3e-2, 2e-2, 1e-3)
    check(results[size][f"{plugin} {precision}"], results[1]["ddp fp32"], *tolerance)


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize(("plugin", "precision"), EVERY)
def test_a24_a_step_whose_gradient_is_infinite_in_one_process_is_skipped_in_all(
    plugin, precision, size, results
) -> None:
    """As if it had not been: weights, moments and step counts are those of a run without it, bit for bit."""
    found = results[size][f"{plugin} {precision} struck"]
    assert found["skipped"] == [[0, 0, 0, 1, 2, 0]] * size
    assert torch.equal(found["struck"]["weights"], found["quiet"]["weights"])
    assert len(found["struck"]["state"]) == len(found["quiet"]["state"]) > 0
    assert all(map(torch.equal, found["struck"]["state"], found["quiet"]["state"]))


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize(("plugin", "precision"), EVERY)
def test_a16_at_a_learning_rate_of_0_nothing_changes(plugin, precision, size, results) -> None:
    """Policy, sampler and reference compute the same bits, whatever the plugin shards and casts."""
    found = results[size][f"{plugin} {precision} still"]
    assert torch.equal(found["before"], found["after"]) and len(found["rows"]) == 2
    for row in found["rows"]:
        for name in ("objective/kl", "policy/approxkl_avg", "policy/clipfrac_avg", "val/ratio_var"):
            assert row[name] == 0, name
        assert row["val/ratio"] == row["train/max_ratio"] == 1
        assert row["grad_norm/actor"] > 0 and row["skipped_steps/actor"] == 0


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize(("plugin", "precision"), EVERY)
def test_a_reference_that_is_reset_is_the_actor_bit_for_bit(plugin, precision, size, results) -> None:
    for row in results[size][f"{plugin} {precision} reset"]:
        assert row["objective/kl"] == 0 and row["grad_norm/actor"] > 0
    assert results[size][f"{plugin} {precision}"]["rows"][1]["objective/kl"] != 0, (
        "without it the policy has moved away"
    )


def test_there_is_something_to_learn(results) -> None:
    first, last = results[1]["ddp fp32"]["rows"]
    assert first["train/actor_loss"] != last["train/actor_loss"] and last["grad_norm/critic"] > 0.1
    assert "train/critic_loss" in first and results[1]["ddp grouped"]["rows"][0]["grad_norm/actor"] > 0.01


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_sharded_weights_learn_with_groups_with_lora_and_with_a_shared_trunk(kind, size, results) -> None:
    check(results[size][f"fsdp {kind}"], results[1][f"ddp {kind}"], 2e-5, 1e-6, 1e-7)


@pytest.mark.parametrize("size", [2, 4])
def test_a28_groups_are_never_split(size, results) -> None:
    ranks = results[size]["groups"]
    assert len(ranks) == size
    for batches in zip(*ranks, strict=True):
        members = [problem for share in batches for problem in share]
        assert len(members) == 32 and len(set(members)) == 8
        for share in batches:
            assert all(len(set(share[i : i + 4])) == 1 and share.count(share[i]) == 4 for i in range(0, len(share), 4))


@pytest.mark.parametrize("plugin", ["ddp", "fsdp"])
def test_a29_ranks_draw_their_own_random_numbers_and_the_same_again(plugin, results) -> None:
    told = results[2][f"{plugin} sampled"]
    assert told["responses"] == told["again"]
    first, second = told["responses"]
    assert first != second and len({len(response) for response in first + second}) > 2


def test_sharded_weights_generate_what_whole_ones_do(results) -> None:
    """Responses of the ranks end at different lengths, and still none waits for another."""
    assert results[2]["fsdp sampled"]["responses"] == results[2]["ddp sampled"]["responses"]


@pytest.mark.parametrize(("plugin", "precision"), STOPPED)
def test_a30_a_stopped_run_goes_on_bit_for_bit(plugin, precision, results) -> None:
    runs = results[2][f"{plugin} {precision} stopped"]
    assert torch.equal(runs["whole"], runs["resumed"])


@pytest.mark.parametrize(("first", "second", "precision"), CONVERSIONS)
def test_a_plugin_goes_on_from_what_another_has_saved(first, second, precision, results) -> None:
    """As good as if nothing had changed: what remains is the plugins' own difference."""
    goes_on = results[2][f"{first} to {second} {precision}"].float()
    stays = results[2][f"{first} {precision}"]["weights"].float()
    assert (goes_on - stays).abs().mean() < (1e-7 if precision == "fp32" else 5e-4)
