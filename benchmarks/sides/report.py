"""The table of a comparison, and the files that keep it."""

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.machine import processor

RESULTS = Path(__file__).parents[1] / "results"


@dataclass(frozen=True)
class Target:
    """How many times faster ours has to be, and the share of the other side's peak memory that it may take."""

    faster: float
    memory: float = 0.7


@dataclass(frozen=True)
class Case:
    """One piece of work: the medians of both sides, and what ours has to reach."""

    name: str
    ours: dict[str, Any]
    theirs: dict[str, Any]
    target: Target | None = None

    @property
    def ratio(self) -> float:
        return self.theirs["seconds"] / self.ours["seconds"]

    @property
    def memory(self) -> float:
        return self.ours["peak_gb"] / self.theirs["peak_gb"]

    @property
    def asked(self) -> str:
        """The target in words."""
        return "" if self.target is None else f"{self.target.faster}, {self.target.memory}"

    @property
    def missed(self) -> list[str]:
        """What it does not reach."""
        if self.target is None:
            return []
        slow = [self.name] if self.ratio < self.target.faster else []
        return slow + ([f"{self.name} (memory)"] if self.memory > self.target.memory else [])


def print_report(title: str, cases: Sequence[Case]) -> bool:
    """Print the table; whether all targets are met."""
    table = Table(title=title)
    for column in (
        "work",
        "rlvr s",
        "theirs s",
        "times faster",
        "target",
        "peak GB",
        "theirs GB",
        "memory",
        "rlvr by phase",
    ):
        table.add_column(column, justify="left" if column in ("work", "rlvr by phase") else "right")
    for case in cases:
        phases = ", ".join(f"{name} {seconds:.1f}" for name, seconds in case.ours["phases"].items())
        table.add_row(
            case.name, f"{case.ours['seconds']:.2f}", f"{case.theirs['seconds']:.2f}", f"{case.ratio:.2f}",
            case.asked, f"{case.ours['peak_gb']:.2f}", f"{case.theirs['peak_gb']:.2f}", f"{case.memory:.2f}", phases,
        )  # fmt: skip
    Console(width=150).print(table)
    missed = [what for case in cases for what in case.missed]
    print(f"missed: {', '.join(missed)}" if missed else "all targets met")
    return not missed


def result_name(name: str, model: str | None) -> str:
    """Of a benchmark's results, for a real model or for those of its own."""
    return f"{name}_{model.replace('/', '_')}" if model else name


def save_report(name: str, cases: Sequence[Case]) -> None:
    """Write results/NAME.json with machine and versions, and NAME.md for people."""
    RESULTS.mkdir(exist_ok=True)
    about = machine()
    rows = [asdict(c) | {"times_faster": c.ratio, "memory_ratio": c.memory} for c in cases]
    (RESULTS / f"{name}.json").write_text(json.dumps({"machine": about, "cases": rows}, indent=1) + "\n")
    lines = [
        f"# {name}",
        "",
        in_words(about),
        "",
        "| work | rlvr s | theirs s | times faster | target | peak GB | theirs | memory |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for c in cases:
        cells = (
            c.name,
            f"{c.ours['seconds']:.2f}",
            f"{c.theirs['seconds']:.2f}",
            f"{c.ratio:.2f}",
            c.asked,
            f"{c.ours['peak_gb']:.2f}",
            f"{c.theirs['peak_gb']:.2f}",
            f"{c.memory:.2f}",
        )
        lines.append("| " + " | ".join(cells) + " |")
    (RESULTS / f"{name}.md").write_text("\n".join(lines) + "\n")


def machine() -> dict[str, str]:
    """Processor, cores and versions."""
    import psutil

    packages = {name: version(name) for name in ("torch", "transformers", "colossalai")}
    return {"cpu": processor(), "cores": str(psutil.cpu_count()), "python": platform.python_version(), **packages}


def in_words(about: Mapping[str, str]) -> str:
    """Machine and versions in a line."""
    return ", ".join(f"{name} {value}" for name, value in about.items())
