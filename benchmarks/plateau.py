"""Does memory stay? A real run over rows of every length, and its peak after the second optimizer step beside the last one's.

    python -m benchmarks.plateau sft --pretrain smollm2-135m --dataset ../shared/data/problems/gsm8k_train.jsonl \\
        --question_column question --answer_column solution --max_length 384 --max_steps 300
    python -m benchmarks.plateau train --pretrain smollm2-135m --preset drgrpo --num_episodes 40 [flags of rlvr train]

Everything after the name of this file is a command of `rlvr`. Its rows of metrics hold the most that the process has taken so far
(`memory/rss_peak_bytes`; on a GPU what its allocator gave out). For `train` a row is an episode. Exits with 1 if the last peak is more than
`--growth` (by default 0.02) above that of row 2; `--save NAME` writes benchmarks/results/NAME.md.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.sides.report import RESULTS, in_words, machine

SHOWN = (1, 2, 3, 4, 5, 10, 20, 50, 100, 200, 300, 500, 1000)


def peaks(rows: Sequence[dict[str, float]]) -> list[float]:
    """Bytes, by row of metrics."""
    name = next(n for n in ("memory/device_peak_bytes", "memory/rss_peak_bytes") if n in rows[-1])
    return [row[name] for row in rows if name in row]


def lines(command: Sequence[str], found: Sequence[float], resident: Sequence[float]) -> list[str]:
    """The report in Markdown."""
    table = ["| row | peak so far, GiB | held then, GiB | growth of the peak from here |", "|---|---|---|---|"]
    for number in sorted({n for n in SHOWN if n <= len(found)} | {len(found)}):
        held = f"{resident[number - 1] / 2**30:.2f}" if resident else ""
        peak = found[number - 1]
        table.append(f"| {number} | {peak / 2**30:.2f} | {held} | {found[-1] / peak - 1:.1%} |")
    return ["# plateau", "", in_words(machine()), "", f"`rlvr {' '.join(command)}`", "", *table, "", verdict(found)]


def verdict(found: Sequence[float]) -> str:
    return f"From row 2 to row {len(found)} the peak grew by {found[-1] / found[1] - 1:.1%}."


def main() -> int:
    """Run the command, print the table; 1 if memory grew."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--growth", type=float, default=0.02)
    parser.add_argument("--save")
    given, command = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        interval = ["--log_interval", "1"] if command[0] == "sft" else []
        flags = [*command, *interval, "--save_path", f"{folder}/run"]
        subprocess.run([sys.executable, "-m", "rlvr", *flags], check=True)
        rows = [json.loads(line) for line in (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()]
    rows = [row for row in rows if "memory/rss_peak_bytes" in row]
    found = peaks(rows)
    report = lines(command, found, [row.get("memory/rss_bytes", 0.0) for row in rows])
    print("\n".join(report[4:]))
    if given.save:
        (RESULTS / f"{given.save}.md").write_text("\n".join(report) + "\n")
    return 1 if found[-1] > (1 + given.growth) * found[1] else 0


if __name__ == "__main__":
    sys.exit(main())
