"""Whole runs of the commands on a second device type, whose tensors do not mix with the CPU's (`second_device`).

Its arithmetic and its random numbers are the CPU's, so that a run on it must compute what the same run on the CPU does.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import second_device_worker
import torch
from saved_models import save_micro_model

from rlvr.boost import process
from rlvr.boost.boosted import Boosted
from rlvr.boost.optimizer import adamw
from rlvr.boost.plugins import make_booster, resolve_precision
from rlvr.config import ParallelConfig
from rlvr.core import seeding

WORKER = Path(second_device_worker.__file__)
COMPARED = (
    "train/actor_loss",
    "train/critic_loss",
    "grad_norm/actor",
    "grad_norm/critic",
    "objective/kl",
    "eval/accuracy",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, clean_env: dict[str, str]) -> Path:
    """Where the worker's runs are."""
    where = tmp_path_factory.mktemp("second")
    done = subprocess.run(
        [sys.executable, str(WORKER), str(where)], env=clean_env, capture_output=True, text=True, timeout=800
    )
    assert (where / "found.json").exists(), done.stdout[-2000:] + done.stderr[-3000:]
    return where


@pytest.fixture(scope="module")
def found(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "found.json").read_text())


def rows_of(run: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.processes
def test_the_device_is_as_strict_as_a_gpu(found: dict[str, Any]) -> None:
    assert all(found["strict"].values()), found["strict"]


@pytest.mark.processes
def test_every_command_and_plugin_runs_there(found: dict[str, Any], folder: Path) -> None:
    assert set(found["status"]) == {*second_device_worker.commands(folder), "resumed"}
    assert set(found["status"].values()) == {0}, found["status"]
    assert found["calls"] == ["empty_cache", "pin_memory"]
    for name in second_device_worker.commands(folder):
        if name != "reward-model":
            assert rows_of(folder / name)[-1]["memory/device_bytes"] > 0, name


@pytest.mark.processes
def test_a_run_there_computes_what_it_does_on_the_cpu(
    found: dict[str, Any], folder: Path, process: object, tmp_path: Path
) -> None:
    settings = {
        "pretrain": save_micro_model(tmp_path / "model"),
        "save_path": tmp_path / "run",
        **second_device_worker.WHOLE,
    }
    assert second_device_worker.call("train", settings) == 0
    for there, here in zip(found["first"], rows_of(tmp_path / "run"), strict=True):
        names = [name for name in COMPARED if name in here]
        assert len(names) >= 4 or "eval/accuracy" in names
        assert {n: there[n] for n in names} == pytest.approx({n: here[n] for n in names}, rel=1e-4, abs=1e-6)


@pytest.mark.processes
def test_a_run_goes_on_there_from_a_checkpoint_to_the_last_bit(found: dict[str, Any], folder: Path) -> None:
    before, after = found["first"][-1], rows_of(folder / "whole")[-1]
    names = [name for name in after if not name.startswith(("time/", "memory/"))]
    assert {*COMPARED} <= {*names} and {n: after[n] for n in names} == {n: before[n] for n in names}


def test_seeding_leaves_the_random_state_of_other_processes_gpus_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    class Module:
        @staticmethod
        def device_count() -> int:
            return 8

        @staticmethod
        def get_rng_state(device: int) -> torch.Tensor:
            asked.append(device)
            return torch.get_rng_state()

        @staticmethod
        def set_rng_state(state: torch.Tensor, device: int) -> None:
            torch.set_rng_state(state)

    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 3)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda *a, **k: torch.device("cuda"))
    monkeypatch.setattr(torch, "get_device_module", lambda *a: Module)
    with seeding.seeded("a", 1):
        pass
    assert asked == [3]


def test_auto_takes_bf16_only_where_the_gpu_multiplies_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = torch.device("cuda")
    assert resolve_precision("auto", cuda) == "bf16"  # Ray's driver, on a machine without a GPU: its workers have one
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation)  # a T4
    assert resolve_precision("auto", cuda) == "fp32"


def test_work_is_placed_on_no_kind_of_device_that_was_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "2")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    for cuda, expected in ((False, torch.device("cpu")), (True, torch.device("cuda", 2))):
        monkeypatch.setattr(torch.cuda, "is_available", lambda cuda=cuda: cuda)
        assert process.local_device() == expected


def test_torch_2_5_which_has_no_accelerator_module_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is what plain pip installs."""
    monkeypatch.delattr(torch, "accelerator")
    assert process.local_device() == torch.device("cpu") and seeding._accelerator() == []


@pytest.mark.filterwarnings("ignore:.*CUDA is not available:UserWarning")
@pytest.mark.usefixtures("process")
def test_fp16_steps_have_a_norm_of_gradients() -> None:
    model = torch.nn.Linear(3, 1, bias=False)
    boosted = Boosted(
        make_booster(ParallelConfig(mixed_precision="fp16"), torch.device("cuda"), 1.0),
        model,
        adamw(model, "fp16", lr=0.1),
        grad_clip=1.0,
        precision="fp16",
    )
    assert boosted.learn([lambda: boosted.forward(torch.full((1, 3), 2.0)).sum()]) == pytest.approx(12**0.5)
