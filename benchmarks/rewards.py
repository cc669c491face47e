"""Rule rewards side by side: how often each grader is right on labelled answers, and how fast it is.

    uv run python benchmarks/rewards.py [--sets gsm8k_rho_outputs ...] [--data DIR] [--json FILE] [--markdown FILE]

One run, one process, one thread. Each grader sees each labelled row once, one row a call. Ours and math-verify, with which it is compared,
take turns every few rows, so that whatever else the machine does meets both; then the others do, of which each leaves the processor's
caches to the next as it needed them. Our own caches are as they are at the start of a training run: empty.
Exits with 1 if a target of `benchmarks/reward_targets.py` is missed.

Left out: the graders of verl and OpenRLHF, which no package installs by themselves.
"""

import argparse
import gc
import json
import logging
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
sys.path[0] = str(ROOT)  # instead of this folder, where "rewards" is this very file

from benchmarks.machine import processor  # noqa: E402
from benchmarks.reward_targets import Result, check, check_together  # noqa: E402
from rlvr.leaderboard import graders as peers  # noqa: E402

DATA = ROOT.parent / "shared" / "data" / "rewards"
TURN = 32
"""Rows that a grader takes before the next one has its turn."""
LIMIT_S = 10.0
"""A verdict that takes longer counts as wrong."""
WARM_UP = [
    (r"so \boxed{\frac{1}{2}}", "0.5"),
    ("it is 7 * 6 = 42", "42"),
    (r"\boxed{(x+1)^2}", "x^2+2x+1"),
    (r"\boxed{\sqrt{2}+\pi}", r"\pi+\sqrt{2}"),
]
OURS, PEER = "rlvr", "math-verify"

Grader = Callable[[str, str], bool]


# -- graders ---------------------------------------------------------------------------------------------------------


def ours() -> Grader:
    from rewards import grade
    from rewards.maths import fallback

    while fallback.verify(r"\frac{1}{1}", r"\frac{2}{2}") is None:
        time.sleep(0.05)  # its process is starting
    return lambda response, gold: grade(response, gold, form="equivalent").correct  # what labels say


GRADERS: dict[str, Callable[[], Grader]] = {
    OURS: ours,
    PEER: lambda: peers.math_verify,
    "TRL": lambda: peers.trl,
    "string": lambda: peers.string,
}


# -- measuring -------------------------------------------------------------------------------------------------------


def measure(dataset: str, rows: Sequence[dict[str, Any]], graders: dict[str, Grader]) -> list[Result]:
    rivals = {name: grader for name, grader in graders.items() if name in (OURS, PEER)}
    others = {name: grader for name, grader in graders.items() if name not in rivals}
    results = in_turns(dataset, rows, rivals) + in_turns(dataset, rows, others)
    own = next((r.items_per_s for r in results if r.grader == OURS), 0.0)
    for result in results:
        result.ratio = own / result.items_per_s
    return results


def in_turns(dataset: str, rows: Sequence[dict[str, Any]], graders: dict[str, Grader]) -> list[Result]:
    verdicts: dict[str, list[bool]] = {name: [] for name in graders}
    times: dict[str, list[float]] = {name: [] for name in graders}
    for start in range(0, len(rows), TURN):
        for name, grader in graders.items():
            gc.collect()  # nobody pays for another's garbage
            for row in rows[start : start + TURN]:
                verdict, elapsed_s = _timed(grader, row)
                verdicts[name].append(verdict)
                times[name].append(elapsed_s)
    labels = [bool(row["label"]) for row in rows]
    return [_result(dataset, name, labels, verdicts[name], times[name]) for name in graders]


def _timed(grader: Grader, row: dict[str, Any]) -> tuple[bool, float]:
    start = time.perf_counter()
    try:
        verdict = bool(grader(row["response"], row["gold"]))
    except Exception as error:  # a peer that raises would give no reward
        print(f"{row.get('id')}: {type(error).__name__}", file=sys.stderr)
        verdict = False
    elapsed_s = time.perf_counter() - start
    # A verdict that comes too late is wrong whatever it says.
    return (verdict, elapsed_s) if elapsed_s <= LIMIT_S else (not row["label"], elapsed_s)


def _result(dataset: str, name: str, labels: list[bool], verdicts: list[bool], times: list[float]) -> Result:
    pairs = list(zip(labels, verdicts, strict=True))
    ordered = sorted(times)
    return Result(
        dataset=dataset,
        grader=name,
        rows=len(labels),
        accuracy=100 * sum(label == verdict for label, verdict in pairs) / len(pairs),
        false_positives=sum(verdict and not label for label, verdict in pairs),
        false_negatives=sum(label and not verdict for label, verdict in pairs),
        negatives=labels.count(False),
        items_per_s=len(times) / sum(times),
        p50_ms=1e3 * ordered[len(ordered) // 2],
        p99_ms=1e3 * ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))],
        max_ms=1e3 * ordered[-1],
    )


def warm_up(names: Sequence[str]) -> tuple[dict[str, Grader], dict[str, float]]:
    """The graders, imported and called a few times, and the seconds that each took for it."""
    graders, seconds = {}, {}
    for name in names:
        start = time.perf_counter()
        graders[name] = GRADERS[name]()
        for response, gold in WARM_UP:
            graders[name](response, gold)
        seconds[name] = time.perf_counter() - start
    gc.collect()
    gc.freeze()
    return graders, seconds


# -- the report ------------------------------------------------------------------------------------------------------


def machine() -> dict[str, str]:
    """What the figures depend on; no name and no path of the machine."""
    packages = {name: version(name) for name in ("math-verify", "sympy", "latex2sympy2_extended", "trl", "mpmath")}
    return {
        "processor": processor(),
        "usable cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        "load at the start": f"{os.getloadavg()[0]:.2f}",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    } | packages


HEADER = "set|grader|rows|accuracy %|FP|FN|items/s|p50 ms|p99 ms|max ms|our speed / its".split("|")


def cells(result: Result) -> list[str]:
    r = result
    times = [f"{r.items_per_s:,.0f}", f"{r.p50_ms:.3f}", f"{r.p99_ms:.2f}", f"{r.max_ms:.1f}", f"{r.ratio:.1f}"]
    return [
        r.dataset,
        r.grader,
        str(r.rows),
        f"{r.accuracy:.2f}",
        str(r.false_positives),
        str(r.false_negatives),
        *times,
    ]


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    drawn = Table(title=title, title_justify="left")
    for place, name in enumerate(header):
        drawn.add_column(name, justify="left" if place < 2 else "right", no_wrap=place < 2)
    for row in rows:
        drawn.add_row(*row)
    return drawn


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * 2 + ["---:"] * (len(header) - 2), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


# -- the command -----------------------------------------------------------------------------------------------------


def main() -> int:
    args = arguments()
    files = chosen(args.data, args.sets)
    logging.disable(logging.ERROR)  # math-verify's warnings about each timeout
    facts = machine()
    graders, seconds = warm_up(args.graders)
    results: list[Result] = []
    for name, file in files.items():
        print(f"{name} ...", file=sys.stderr)
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        results += measure(name, rows, graders)
    verdicts = [v for r in results if r.grader == OURS for v in check(r, of(results, r.dataset, PEER))]
    own, peer = ([r for r in results if r.grader == name] for name in (OURS, PEER))
    verdicts += check_together(own, peer)
    targets = [[*v[:4], "yes" if v[4] else "MISSED"] for v in verdicts]
    warm = [[name, f"{s:.2f}"] for name, s in seconds.items()]
    report = [
        ("Graders", HEADER, [cells(r) for r in results]),
        ("Targets", ["set", "target", "asked", "measured", "met"], targets),
        ("Warm-up", ["grader", "s, imports and processes included"], warm),
        ("Machine", ["what", "value"], [list(fact) for fact in facts.items()]),
    ]
    console = Console(width=None if sys.stdout.isatty() else 150)
    for title, header, lines in report:
        console.print(table(title, header, lines))
    if args.json:
        found = {"machine": facts, "warm_up_s": seconds, "results": [asdict(r) for r in results], "targets": targets}
        args.json.write_text(json.dumps(found, indent=1) + "\n")
    if args.markdown:
        texts = [f"## {title}\n\n{markdown(header, lines)}" for title, header, lines in report]
        args.markdown.write_text("# Rule rewards: a run of `benchmarks/rewards.py`\n\n" + "\n".join(texts))
    return int(not all(v[4] for v in verdicts))


def of(results: Sequence[Result], dataset: str, grader: str) -> Result | None:
    return next((r for r in results if (r.dataset, r.grader) == (dataset, grader)), None)


def chosen(folder: Path, names: Sequence[str]) -> dict[str, Path]:
    """The files of the labelled sets asked for, all of them if none is."""
    there = {file.stem: file for file in sorted(folder.glob("*.jsonl")) if file.stem != "hostile"}
    if not there:
        sys.exit(
            f"no labelled sets (*.jsonl with gold, response and label) in {folder}; say where they are: --data DIR"
        )
    if unknown := [name for name in names if name not in there]:
        sys.exit(f"no set {', '.join(unknown)} in {folder}; there are: {', '.join(there)}")
    return {name: file for name, file in there.items() if not names or name in names}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=[], metavar="SET", help="labelled sets; all by default")
    parser.add_argument("--graders", nargs="+", default=list(GRADERS), choices=list(GRADERS))
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the labelled sets")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--markdown", type=Path, help="write the tables here")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
