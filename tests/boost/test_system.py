"""On a system that can't train, the parts that train say so when they are imported, and nothing ends in a traceback."""

import importlib.util
import os
import sys

import pytest

from rewards import resolve
from rewards.pool import RewardPool
from rlvr.boost.system import check_system
from rlvr.cli import doctor
from rlvr.errors import UserError


def test_windows_is_told_at_import(monkeypatch) -> None:
    for platform in ("linux", "darwin"):
        check_system(platform)
    with pytest.raises(UserError, match="not on Windows: ColossalAI does not run there. Take WSL 2"):
        check_system("win32")
    monkeypatch.setattr(check_system, "__defaults__", ("win32",))
    spec = importlib.util.find_spec("rlvr.boost.process")
    assert spec and spec.loader
    with pytest.raises(UserError, match="Take WSL 2"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def test_the_doctor_looks_at_what_can_work_there(monkeypatch, capsys) -> None:
    monkeypatch.setattr(check_system, "__defaults__", ("win32",))
    monkeypatch.setattr(doctor.platform, "system", lambda: "Windows")
    with pytest.raises(SystemExit):
        doctor.doctor_command([])
    out = capsys.readouterr().out
    assert "FAIL Windows" in out and "broken: Windows" in out and "plugins:" not in out


def test_reward_workers_are_refused_where_processes_have_no_groups(monkeypatch) -> None:
    monkeypatch.delattr(os, "killpg")
    with pytest.raises(UserError, match="on Windows take WSL 2, or workers=0"):
        RewardPool([resolve("gsm8k_reward_fn")], workers=1)


def test_math_verify_answers_where_memory_has_no_limit(monkeypatch) -> None:
    import resource

    from rewards.maths import fallback_process

    def refuse(*_: object) -> None:
        raise ValueError("current limit exceeds maximum limit")  # macOS

    monkeypatch.setattr(resource, "setrlimit", refuse)
    monkeypatch.setattr(sys, "platform", "darwin")
    fallback_process._limit_memory()
