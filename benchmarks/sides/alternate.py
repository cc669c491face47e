"""Runs two sides in turn, an iteration each, and compares the times of the same run on the same machine."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.sides.work import Work

ROOT = Path(__file__).parents[2]


class Runner:
    """A side's process.

    Raises:
        RuntimeError: it ended before it should; with its last words.
    """

    def __init__(self, name: str, command: Sequence[str], work: Work, threads: int) -> None:
        self.name = name
        environment = {
            **os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONPATH": str(ROOT), "TOKENIZERS_PARALLELISM": "false",
            "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", ""),
        }  # fmt: skip
        self.log = open(f"/tmp/benchmark_{os.getpid()}_{name}.log", "w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            [*command, json.dumps(asdict(work))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env=environment,
            cwd=ROOT,
        )
        self.facts = self.hear()

    def hear(self) -> dict[str, Any]:
        """Its next line."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.log.seek(0)
            raise RuntimeError(f"{self.name} ended:\n{self.log.read()[-3000:]}")
        return json.loads(line)

    def iterate(self) -> dict[str, Any]:
        """One iteration."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return self.hear()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.log.close()


def ours(module: str) -> list[str]:
    """The command of our side."""
    return [sys.executable, "-m", f"benchmarks.sides.{module}"]


def theirs(module: str, *packages: str) -> list[str]:
    """The command of a side that has an environment of its own, made by uv."""
    given = [word for package in packages for word in ("--with", package)]
    return [
        "uv",
        "run",
        "--isolated",
        "--no-project",
        "--python",
        sys.executable,
        *given,
        "python",
        "-m",
        f"benchmarks.sides.{module}",
    ]


def alternate(runners: Sequence[Runner], iterations: int, warm_up: int = 1) -> dict[str, dict[str, Any]]:
    """Let each do an iteration in turn; medians by side, the first `warm_up` left out."""
    seen: dict[str, list[dict[str, Any]]] = {runner.name: [] for runner in runners}
    try:
        for _ in range(warm_up + iterations):
            for runner in runners:
                seen[runner.name].append(runner.iterate())
                print(f"  {runner.name}: {seen[runner.name][-1]['seconds']:.2f} s", file=sys.stderr, flush=True)
    finally:
        for runner in runners:
            runner.end()
    return {name: _summary(reports[warm_up:]) for name, reports in seen.items()}


def _summary(reports: Sequence[dict[str, Any]]) -> dict[str, Any]:
    phases = {name: median(r["phases"].get(name, 0.0) for r in reports) for name in reports[0]["phases"]}
    return {
        "seconds": median(r["seconds"] for r in reports),
        "cpu_seconds": median(r["cpu_seconds"] for r in reports),
        "phases": phases,
        "peak_gb": max(r["peak"] for r in reports) / 2**30,
        "tokens": median(r["tokens"] for r in reports),
    }
