"""How an iteration of PPO scales to two processes, what they send each other, and what Ray costs.

    uv run python -m benchmarks.scaling --save          # some minutes; nothing else should run meanwhile

1. Strong scaling: the same prompts in one process and in two. Weak: two processes with twice the prompts of one. Each process
   has one thread and a core of its own, so one process leaves the second core idle. As two cores share the memory's bandwidth
   and the clock of the chip, two processes that have nothing to do with each other are slower than one, too: that is
   measured beside it ("apart"), and is what no way of parallelising can beat here.
2. Bytes that each process sends in an iteration (4 optimizer steps of actor and critic, one micro-batch each): the least
   possible, what the collectives are asked to move, and what the kernel sent (`benchmarks.traffic`).
3. `benchmarks.ray_overhead`: Ray against torchrun on the same work.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.ray_overhead import overhead
from benchmarks.sides.report import RESULTS, in_words, machine
from benchmarks.sides.work import Work
from benchmarks.traffic import PLUGINS

ROOT = Path(__file__).parents[1]
START = (64, 64, 1)
"""Response tokens, prompts, processes; of these, `grow` changes one at a time."""
CASES = (START, (32, 64, 1), (128, 64, 1), (64, 16, 1), (64, 32, 1), (64, 64, 2))
Row = Mapping[str, Any]


def case(work: Work, batch: int, plugin: str = "ddp", count: bool = False) -> dict[str, Any]:
    """What `benchmarks.sides.cases` does: iterations of so many prompts over all processes."""
    return {"work": asdict(work), "batch": batch, "plugin": plugin, "count": count}


def launch(
    cases: Sequence[Row], iterations: int, cores: Sequence[int] = (), processes: int = 1
) -> subprocess.Popen[str]:
    """Start the cases in so many processes, on these cores."""
    request = {"cores": list(cores), "iterations": iterations, "cases": list(cases)}
    command = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, *command, "-m", "benchmarks.sides.cases", json.dumps(request)],
        env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def results(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """Of each case as it is done; raises RuntimeError if the processes fail, and ends them if nobody asks for more."""
    assert process.stdout is not None
    with process:
        try:
            for line in process.stdout:
                found = json.loads(line)
                say(
                    f"  {found['plugin']}, {found['work']['precision']}, {found['batch']} prompts: {found['seconds']:.2f} s"
                )
                yield found
        except BaseException:
            process.terminate()
            raise
    if process.returncode:
        raise RuntimeError(f"the processes ended with {process.returncode}")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def scale(work: Work, batch: int, plugins: Sequence[str], iterations: int) -> list[dict[str, Any]]:
    """A row for each plugin: seconds in one process and in two, and what two processes without each other take."""
    first, second = sorted(os.sched_getaffinity(0))[:2]
    small = [case(work, batch // 2, plugin) for plugin in plugins]
    both = [case(work, batch, plugin) for plugin in plugins]
    say("one process")
    alone = list(results(launch([*small, *both], iterations, [first])))
    say("two processes")
    two = list(results(launch(both, iterations, [first, second], 2)))
    say("two that have nothing to do with each other")
    other = launch([small[0]] * 2, iterations, [second])  # longer than what it disturbs
    [apart] = results(launch(small[:1], iterations, [first]))
    list(results(other))
    return [
        scaled(*of_plugin, apart, alone[0])
        for of_plugin in zip(alone[: len(small)], alone[len(small) :], two, strict=True)
    ]


def scaled(half: Row, whole: Row, two: Row, apart: Row, beside: Row) -> dict[str, Any]:
    """One line of the table.

    Args:
        half, whole: one process with half of the prompts, and with all.
        two: two processes with all.
        apart: one process with half of them while another has the other half; `beside` the same alone.
    """
    ceiling = beside["seconds"] / apart["seconds"]
    return {
        "plugin": two["plugin"],
        "1 process s": round(whole["seconds"], 3),
        "2 processes s": round(two["seconds"], 3),
        "speed-up": round(whole["seconds"] / two["seconds"], 2),
        "half the prompts, 1 process s": round(half["seconds"], 3),
        "weak efficiency": round(half["seconds"] / two["seconds"], 2),
        "apart": round(ceiling, 2),
        "weak efficiency of apart": round(half["seconds"] / two["seconds"] / ceiling, 2),
        "processor time": round(two["cpu_seconds"] / whole["cpu_seconds"], 2),
    }


def traffic(work: Work, plugins: Sequence[str]) -> list[dict[str, Any]]:
    """A row for each plugin and precision: megabytes that a process sends in an iteration."""
    say("bytes sent, two processes")
    works = [Work(work.size, 16, "fixed", precision) for precision in ("fp32", "bf16")]
    cases = [case(each, 16, plugin, count=True) for each in works for plugin in plugins]
    return [counted(found) for found in results(launch(cases, 1, processes=2))]


def counted(found: Row) -> dict[str, Any]:
    """One line of the table."""
    t = found["traffic"]
    return {
        "plugin": found["plugin"],
        "precision": found["work"]["precision"],
        "least MB": round(t["least"] / 1e6, 2),
        "asked MB": round(t["asked"] / 1e6, 2),
        "asked / least": round(t["asked"] / t["least"], 3),
        "sent MB": round(t["sent"] / 1e6, 2),
        "sent / least": round(t["sent"] / t["least"], 3),
        "of whole tensors, MB": ", ".join(f"{name} {size / 1e6:.2f}" for name, size in t["operations"].items()),
    }


def grow(size: str, precision: str, recipe: str, iterations: int) -> list[dict[str, Any]]:
    """A row for each of `CASES`: seconds of an iteration by the clock and of all processes' threads, beside the first's."""
    found: list[dict[str, Any]] = []
    for processes in (1, 2):
        cases = [
            case(Work(size, tokens, "fixed", precision, recipe), batch)
            for tokens, batch, count in CASES
            if count == processes
        ]
        found += results(launch(cases, iterations, processes=processes))
    first = found[0]
    return [
        {
            "response tokens": row["work"]["response_tokens"], "prompts": row["batch"], "processes": row["processes"],
            "seconds": round(row["seconds"], 3), "CPU seconds": round(row["cpu_seconds"], 3),
            "tokens/s": round(row["work"]["response_tokens"] * row["batch"] / row["seconds"]),
            "times the first": round(row["seconds"] / first["seconds"], 2),
            "times the first's CPU": round(row["cpu_seconds"] / first["cpu_seconds"], 2),
        }
        for row in found
    ]  # fmt: skip


def show(title: str, rows: Sequence[Row]) -> None:
    table = Table(title=title)
    for column in rows[0]:
        table.add_column(column, justify="left" if isinstance(rows[0][column], str) else "right")
    for row in rows:
        table.add_row(*map(str, row.values()))
    Console(width=150).print(table)


def save(found: Mapping[str, Sequence[Row]]) -> None:
    """Write results/scaling.md and scaling.json."""
    RESULTS.mkdir(exist_ok=True)
    about = machine()
    (RESULTS / "scaling.json").write_text(json.dumps({"machine": about, **found}, indent=1) + "\n")
    lines = ["# scaling", "", in_words(about), ""]
    for title, rows in found.items():
        table = [list(rows[0]), ["---"] * len(rows[0]), *([str(value) for value in row.values()] for row in rows)]
        lines += [f"## {title}", "", *("| " + " | ".join(cells) + " |" for cells in table), ""]
    (RESULTS / "scaling.md").write_text("\n".join(lines).rstrip() + "\n")


def main() -> None:
    given = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends what it has started
    work = Work(given.size, given.tokens, "fixed", given.precision)
    found = {
        f"strong and weak scaling, model {given.size}, {given.prompts} prompts, {given.tokens} tokens, {given.precision}": scale(
            work, given.prompts, given.plugins, given.iterations
        ),
        f"bytes that each of two processes sends in an iteration, model {given.size}": traffic(work, given.plugins),
    }
    if given.ray:
        say("Ray and torchrun in turn")
        on_ray = Work(given.ray, 32, "fixed", "bf16")
        sides = overhead(on_ray, 2, one_core=True)
        found[f"Ray against torchrun, model {given.ray}, 64 prompts, 32 tokens, bf16, all on one core"] = [
            {"time": name, **{k: v for k, v in sides[name].items() if k != "ratios"}}
            for name in ("seconds", "CPU seconds")
        ]
    for title, rows in found.items():
        show(title, rows)
    if given.save:
        save(found)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="S", choices=["S", "M"])
    parser.add_argument("--prompts", type=int, default=64, help="of an iteration, over all processes; a multiple of 16")
    parser.add_argument("--tokens", type=int, default=64, help="of each response")
    parser.add_argument("--precision", default="fp32", choices=["fp32", "bf16"])
    parser.add_argument("--plugins", nargs="+", default=list(PLUGINS), choices=PLUGINS)
    parser.add_argument("--iterations", type=int, default=3, help="timed, after one to warm up")
    parser.add_argument(
        "--ray", default="M", choices=["S", "M", ""], help="the model for Ray against torchrun; '' leaves it out"
    )
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/scaling.md and .json")
    return parser.parse_args()


if __name__ == "__main__":
    main()
