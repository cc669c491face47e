"""Draws what runs of this example learned: right answers and calls, on held-out easy and hard problems.

python curves.py calculator.png runs/calls [runs/calls-seed-1 ...]
"""

import json
import sys
from pathlib import Path
from typing import Any

from rlvr.report.figures import figure

COLOURS = {"easy": "tab:blue", "hard": "tab:orange"}


def evaluations(folder: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if "eval/accuracy" in row]


def draw(path: Path, folders: list[Path]) -> None:
    """A line for each run and kind of problem, over the responses sampled."""
    with figure(path, columns=2, width=10, height=4.2) as (_, (right, calls)):
        for number, folder in enumerate(folders):
            rows = evaluations(folder)
            for kind, colour in COLOURS.items():
                look = {"color": colour, "marker": ".", "label": kind if number == 0 else None, "alpha": 0.85}
                at = [row["episode"] for row in rows]
                right.plot(at, [100 * row[f"eval/{kind}/accuracy"] for row in rows], **look)
                # Each turn but the last is a call.
                calls.plot(at, [row[f"eval/{kind}/turns"] - 1 for row in rows], **look)
        right.set(xlabel="responses sampled", ylabel="right, %", ylim=(0, 102), title="held-out problems")
        calls.set(xlabel="responses sampled", ylabel="calls in an episode", title="the calculator is asked")
        right.legend(loc="lower right")
        calls.legend(loc="center right")


if __name__ == "__main__":
    draw(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
