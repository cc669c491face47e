"""Advantages, targets, losses and gradients are those of TRL's own PPO step, but where a difference is explained."""

import shutil
import subprocess
from dataclasses import replace

import pytest
import torch

from benchmarks.ppo_oracle import COLUMNS, TRL, VARIANTS, Row, compare, make_given, table, their_steps
from benchmarks.sides.alternate import theirs
from benchmarks.sides.versus import PACKAGES


@pytest.fixture(scope="module")
def steps():
    """What TRL's own trainer makes of each variant."""
    if shutil.which("uv") is None:
        pytest.skip("uv, which makes an environment with an older TRL, is not installed")
    # The same environment with a module that only tells whether it can be made: offline there is none.
    command = [*theirs("trl_ppo_step", f"trl=={TRL}", *PACKAGES)[:-2], "-c", "pass"]
    made = subprocess.run(command, capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"no environment with TRL {TRL}: {made.stderr.strip().splitlines()[-1:]}")
    return their_steps(VARIANTS)


@pytest.mark.processes
def test_every_number_of_a_step_is_that_of_trl(steps) -> None:
    rows = [compare(variant, *step) for variant, step in zip(VARIANTS, steps, strict=True)]
    assert not [row for row in rows if not row.expected]


@pytest.mark.processes
def test_every_bound_is_active_somewhere(steps) -> None:
    for variant, (given, found) in zip(VARIANTS, steps, strict=True):
        assert (found["logprobs"] - found["ref_logprobs"])[given["tokens"]].abs().mean() > 0.1, variant.name
        assert all(gradient.any() for gradient in found["gradients"].values()), variant.name
        # A token whose bound is active has no gradient; with wide bounds the loss is another.
        for column, bound in (("policy loss", "cliprange"), ("value loss", "cliprange_value")):
            wide = replace(variant, theirs=variant.theirs | {bound: 1e3})
            assert compare(wide, given, found).off[column] > 1e-5, (variant.name, column)


def test_both_sides_start_from_responses_that_end_and_that_are_cut() -> None:
    cut, ended = make_given(False), make_given(True)
    assert cut["tokens"].all() and not ended["tokens"].all()
    lengths = ended["tokens"].sum(1)
    last = ended["responses"].gather(1, lengths[:, None] - 1)[:, 0]
    assert torch.equal(last == 1, lengths < ended["tokens"].size(1))


def test_a_difference_without_a_reason_and_a_reason_without_a_difference_are_told() -> None:
    none = dict.fromkeys(COLUMNS, 0.0)
    assert Row("a", none, "x").expected
    assert not Row("a", none | {"returns": 1e-3}, "x").expected
    assert not Row("a", none, "x", "never seen", ("returns",)).expected
    found = Row("a", none | {"returns": 1e-3}, "x", "because", ("returns",))
    assert found.expected
    assert "1.0e-03 *" in table([found]) and "- *a*: because." in table([found])
