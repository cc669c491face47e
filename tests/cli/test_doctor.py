"""`rlvr doctor`: what it looks at, and when it exits with 1."""

import json
import sys
from pathlib import Path

import pytest

from rewards.python import bubblewrap
from rlvr.cli import doctor
from rlvr.cli.main import main


def run(capsys, *words: str) -> tuple[int, str]:
    try:
        status = main(["doctor", *words])
    except SystemExit as stop:
        status = stop.code
    return status, capsys.readouterr().out


def test_all_is_looked_at_and_nothing_is_left_behind(tmp_path: Path, capsys, monkeypatch) -> None:
    """The training step is real, in a process of its own, without the warm start, and runs no code of the current folder."""
    planted = [tmp_path / name for name in ("rewards.py", "rlvr.py", "yaml.py")]
    for file in planted:
        file.write_text(f"open({str(tmp_path / 'RAN')!r}, 'a')\n")
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RLVR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    status, out = run(capsys, "--json")
    report = json.loads(out)
    found = {(f["topic"], f["name"]): f for f in report["findings"]}
    assert status == 0 and report["ok"], [f for f in report["findings"] if f["state"] == "broken"]
    for package in ("rlvr", "torch", "transformers", "colossalai"):
        assert found["packages", package]["state"] == "ok"
    assert "pip install" in found["packages", "vllm"]["text"] or found["packages", "vllm"]["state"] == "ok"
    for plugin in ("ddp", "zero2", "fsdp", "gemini"):
        assert found["plugins", plugin]["state"] == "ok"
        assert "1, 2 and 4 processes on the CPU" in found["plugins", plugin]["text"]
    assert "torch" in found["plugins", "tested with"]["text"]
    assert found["engines", "hf"]["state"] == "ok"
    assert found["sandboxes", "interpreter"]["state"] == "ok" and "default" in found["sandboxes", "interpreter"]["text"]
    assert found["sandboxes", "bubblewrap"]["state"] == ("absent" if bubblewrap.why_not() else "ok")
    assert ("devices", "bf16") in found and ("devices", "threads") in found
    assert str(tmp_path / "cache") in found["folders", "models"]["text"]
    assert found["training", "one step"]["state"] == "ok"
    assert sorted(tmp_path.iterdir()) == planted


def test_a_package_may_be_brought_by_a_larger_one(monkeypatch) -> None:
    there = {"mlflow": "3.0"}

    def version(name: str) -> str:
        if name not in there:
            raise doctor.PackageNotFoundError(name)
        return there[name]

    monkeypatch.setattr(doctor, "version", version)
    assert doctor.installed("mlflow-skinny") == "3.0" and doctor.installed("plotly") is None


def test_text(capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    status, out = run(capsys, "--no-step")
    assert status == 0 and out.count("plugins:") == 1 and "training:" not in out
    assert "all that should work here works" in out


def test_what_should_work_and_does_not_gives_1(capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    monkeypatch.setattr(doctor, "NEEDED", ("torch", "no-such-package-at-all"))
    monkeypatch.setattr(doctor, "_not_writable", lambda folder: "Read-only file system")
    status, out = run(capsys, "--no_step")
    assert status == 1
    assert "FAIL no-such-package-at-all" in out and "pip install no-such-package-at-all" in out
    assert "can't be written (Read-only file system): choose another with RLVR_CACHE" in out
    assert out.splitlines()[-1] == "broken: no-such-package-at-all, models, hub, runs"


@pytest.mark.parametrize("way", ["fails", "hangs"])
def test_a_training_step_that_fails_or_hangs(way, capsys, tmp_path, monkeypatch) -> None:
    import subprocess

    def train(folder: Path) -> subprocess.CompletedProcess[str]:
        if way == "hangs":
            raise subprocess.TimeoutExpired("train", 1)
        return subprocess.CompletedProcess("train", 2, "", "Traceback\nerror: no luck\n")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(doctor, "_train", train)
    (finding,) = doctor.training_step()
    assert finding.state == "broken"
    assert ("error: no luck" in finding.text) == (way == "fails")


def test_a_folder_that_can_not_be_written(tmp_path) -> None:
    assert doctor._not_writable(tmp_path / "not" / "yet") is None
    assert not (tmp_path / "not").exists()
    assert doctor._not_writable(Path("/proc/nothing"))
