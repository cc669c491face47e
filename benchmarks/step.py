"""Our iteration against what the machine can do: each phase's floor from measured rates, and how time grows.

    python -m benchmarks.step [--sizes M] [--tokens 64] [--lengths fixed realistic] [--precisions fp32 bf16]
    python -m benchmarks.step --scaling

The rates of matrix products and the bandwidth are measured in the same process, before and after each iteration, and the
best of them stand. What a floor counts is said in `floors.py`. Exits with 1 if an iteration of model M in bf16 takes more
than `TARGET` times the sum of its floors by the clock; on a busy machine look at processor time.
"""

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.floors import PHASES, Iteration, Lengths, Shape, costs, distinct, recomputed
from benchmarks.limits import Measured
from benchmarks.scaling import grow
from benchmarks.sides.phases import PhaseClock, watch
from benchmarks.sides.report import RESULTS, in_words, machine
from benchmarks.sides.rlvr_ppo import make_trainer
from benchmarks.sides.work import MINI_BATCHES, PROMPT_TOKENS, PROMPTS, SIZES, Work
from rlvr.trainer.callbacks import Callback

TARGET = 1.6
WIDTHS = {"fp32": 4, "bf16": 2}


@dataclass(frozen=True)
class Phase:
    """One line of the table; floors and times in seconds, by the clock and of processor time."""

    name: str
    gflop: float
    gigabytes: float
    floor: float
    taken: float
    cpu_floor: float
    cpu_taken: float
    bound: str
    gemm_share: float
    bandwidth_share: float


@dataclass(frozen=True)
class Result:
    """One piece of work: its phases in the iteration whose time is the median, and what the machine reached."""

    name: str
    precision: str
    threads: int
    phases: list[Phase]
    recomputed_gflop: float
    gflops: dict[str, float]
    gigabytes_per_second: float
    target: float | None

    @property
    def floor(self) -> float:
        return sum(p.floor for p in self.phases)

    @property
    def taken(self) -> float:
        return sum(p.taken for p in self.phases)

    @property
    def times_floor(self) -> float:
        return self.taken / self.floor

    @property
    def cpu_times_floor(self) -> float:
        return sum(p.cpu_taken for p in self.phases) / sum(p.cpu_floor for p in self.phases)

    @property
    def missed(self) -> bool:
        return self.target is not None and self.times_floor > self.target


class Watcher(Callback):
    """Collects each iteration's lengths and times, and measures the machine between them."""

    def __init__(self, clock: PhaseClock, measured: Measured) -> None:
        self.clock, self.measured = clock, measured
        self.mini_batches: list[list[Lengths]] = []
        self.distinct: list[int] = []
        self.seen: list[tuple[list[list[Lengths]], list[int], dict[str, float], dict[str, float]]] = []

    def on_episode_start(self, trainer: Any, episode: int) -> None:
        self.mini_batches = []
        self.clock.restart()

    def on_make_experience_end(self, trainer: Any, collected: Any) -> None:
        self.distinct = distinct([item.prompt_ids.tolist() for item in collected.experience])

    def on_learn_batch_end(self, trainer: Any, batch: Any) -> None:
        self.mini_batches.append([Lengths(len(item.prompt_ids), len(item.response_ids)) for item in batch])

    def on_episode_end(self, trainer: Any, episode: int, metrics: Any) -> None:
        self.clock.tick()
        self.seen.append((self.mini_batches, self.distinct, dict(self.clock.clock), dict(self.clock.cpu)))
        self.measured.again()


def shape_of(size: str) -> Shape:
    """Of the benchmark's model S or M."""
    vocabulary, hidden, intermediate, layers, heads = SIZES[size]
    return Shape(vocabulary, hidden, intermediate, layers, heads, heads, hidden // heads)


def measure(work: Work, iterations: int) -> Result:
    """Run the iterations after one to warm up."""
    rows = PROMPTS // MINI_BATCHES
    responses = rows * work.response_tokens
    tokens = rows * (PROMPT_TOKENS + work.response_tokens)
    measured = Measured(shape_of(work.size), tokens, min(1024, responses), PROMPTS, work.precision)
    trainer, loader = make_trainer(work)
    clock = PhaseClock()
    watch(trainer, clock)
    watcher = Watcher(clock, measured)
    trainer.callbacks.append(watcher)
    trainer.fit(iterations + 1, 1, 1, loader)
    runs = [make_result(work, measured, *seen) for seen in watcher.seen[1:]]
    return sorted(runs, key=lambda run: run.times_floor)[(len(runs) - 1) // 2]


def make_result(
    work: Work,
    measured: Measured,
    mini_batches: Sequence[Sequence[Lengths]],
    distinct_prompts: Sequence[int],
    clock: Mapping[str, float],
    cpu: Mapping[str, float],
) -> Result:
    """An iteration's times beside its floors."""
    sequences = [lengths for batch in mini_batches for lengths in batch]
    has = {"critic": work.recipe == "ppo", "reference": work.recipe == "ppo", "recompute": "actor logprobs" in clock}
    shape = shape_of(work.size)
    passes = costs(shape, Iteration(sequences, distinct_prompts, mini_batches, **has), WIDTHS[work.precision])
    limits, cpu_limits = measured.limits(), measured.limits(cpu=True)
    phases = []
    for name in [p for p in PHASES if p in clock] + [name for name in clock if name not in PHASES]:
        parts = passes.get(name, [])
        moved, computing = sum(c.moved for c in parts), sum(c.computing(limits) for c in parts)
        moving = moved / limits.bandwidth
        phases.append(
            Phase(
                name,
                sum(c.flops for c in parts) / 1e9,
                moved / 1e9,
                sum(c.at(limits) for c in parts),
                clock[name],
                sum(c.at(cpu_limits) for c in parts),
                cpu[name],
                "" if not parts else "products" if computing > moving else "memory",
                computing / clock[name],
                moving / clock[name],
            )
        )
    again = recomputed(shape, sequences).flops / 1e9
    rates = {f"{p.tall}, {p.kind}, {p.form}": measured.rate(p) / 1e9 for p in measured.products}
    name = f"{work.recipe} {work.size} {work.response_tokens} {work.lengths} {work.precision}"
    target = TARGET if (work.size, work.precision) == ("M", "bf16") else None
    bandwidth = limits.bandwidth / 1e9
    return Result(name, work.precision, torch.get_num_threads(), phases, again, rates, bandwidth, target)


COLUMNS = (
    "phase", "GFLOP", "GB", "bound by", "floor s", "taken s", "times", "floor CPU s", "CPU s", "times", "GEMM rate", "bandwidth",
)  # fmt: skip


def cells(result: Result) -> list[list[str]]:
    """The table's rows; the last is the sum."""
    rows = [
        [
            p.name, f"{p.gflop:.1f}" if p.gflop else "", f"{p.gigabytes:.2f}" if p.gigabytes else "", p.bound,
            f"{p.floor:.3f}", f"{p.taken:.3f}", _times(p.taken, p.floor), f"{p.cpu_floor:.3f}", f"{p.cpu_taken:.3f}",
            _times(p.cpu_taken, p.cpu_floor), f"{p.gemm_share:.0%}", f"{p.bandwidth_share:.0%}",
        ]
        for p in result.phases
    ]  # fmt: skip
    sums = [sum(getattr(p, name) for p in result.phases) for name in ("gflop", "gigabytes", "cpu_floor", "cpu_taken")]
    rows.append([
        "all", f"{sums[0]:.1f}", f"{sums[1]:.2f}", "", f"{result.floor:.3f}", f"{result.taken:.3f}",
        f"{result.times_floor:.2f}", f"{sums[2]:.3f}", f"{sums[3]:.3f}", f"{result.cpu_times_floor:.2f}", "", "",
    ])  # fmt: skip
    return rows


def _times(taken: float, floor: float) -> str:
    return f"{taken / floor:.2f}" if floor else ""


def notes(result: Result) -> list[str]:
    """What stands below the table."""
    rates = "; ".join(f"{name} {rate:.0f}" for name, rate in result.gflops.items())
    target = "" if result.target is None else f", target {result.target}: {'missed' if result.missed else 'met'}"
    return [
        f"GFLOP/s of products in {result.precision}: {rates}. Bandwidth {result.gigabytes_per_second:.1f} GB/s.",
        f"Not in the floor: {result.recomputed_gflop:.1f} GFLOP of the head's logits, computed again in the backward pass.",
        f"{result.times_floor:.2f} times the sum of the floors by the clock, {result.cpu_times_floor:.2f} by processor time"
        f"{target}.",
    ]


def print_result(result: Result) -> None:
    table = Table(title=f"{result.name}, {result.threads} thread(s), load {os.getloadavg()[0]:.1f}")
    for column in COLUMNS:
        table.add_column(column, justify="left" if column in ("phase", "bound by") else "right")
    for row in cells(result):
        table.add_row(*row)
    console = Console(width=150)
    console.print(table)
    for note in notes(result):
        console.print(note, highlight=False)


def save(results: Sequence[Result], grown: Sequence[Mapping[str, Any]]) -> None:
    """Write results/step.md and step.json."""
    RESULTS.mkdir(exist_ok=True)
    about = machine()
    facts = [asdict(r) | {"times_floor": r.times_floor, "cpu_times_floor": r.cpu_times_floor} for r in results]
    (RESULTS / "step.json").write_text(json.dumps({"machine": about, "work": facts, "scaling": grown}, indent=1) + "\n")
    lines = ["# step", "", in_words(about), ""]
    for result in results:
        lines += [f"## {result.name}, {result.threads} thread(s)", "", *_markdown(COLUMNS, cells(result)), ""]
        lines += [line for note in notes(result) for line in (note, "")]
    if grown:
        lines += ["## Growth", "", *_markdown(list(grown[0]), [[str(v) for v in row.values()] for row in grown])]
    (RESULTS / "step.md").write_text("\n".join(lines).rstrip() + "\n")


def _markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(row) + " |" for row in (columns, ["---"] * len(columns), *rows)]


def print_growth(grown: Sequence[Mapping[str, Any]]) -> None:
    table = Table(title="How an iteration grows, one thread a process")
    for column in grown[0]:
        table.add_column(column, justify="right")
    for row in grown:
        table.add_row(*(str(value) for value in row.values()))
    Console(width=150).print(table)


def main() -> int:
    arguments = parse()
    torch.set_num_threads(arguments.threads)
    results = []
    for size in arguments.sizes:
        for tokens in arguments.tokens:
            for lengths in arguments.lengths:
                for precision in arguments.precisions:
                    work = Work(size, tokens, lengths, precision, arguments.recipe)
                    print(f"{arguments.recipe} {size}, {tokens} tokens, {lengths}, {precision}", file=sys.stderr)
                    results.append(measure(work, arguments.iterations))
                    print_result(results[-1])
    grown = []
    if arguments.scaling:
        grown = grow(arguments.sizes[0], arguments.precisions[0], arguments.recipe, arguments.iterations)
        print_growth(grown)
    if arguments.save:
        save(results, grown)
    missed = [f"{r.name}: {r.times_floor:.2f} times the floors, not {r.target}" for r in results if r.missed]
    print("\n".join(missed) or "no target missed")
    return 1 if missed else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["M"], choices=["S", "M"])
    parser.add_argument("--tokens", nargs="+", type=int, default=[64])
    parser.add_argument("--lengths", nargs="+", default=["fixed", "realistic"], choices=["fixed", "realistic"])
    parser.add_argument("--precisions", nargs="+", default=["fp32", "bf16"], choices=["fp32", "bf16"])
    parser.add_argument("--recipe", default="ppo", choices=["ppo", "grpo"])
    parser.add_argument("--iterations", type=int, default=3, help="of each work, after one to warm up")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--scaling",
        action="store_true",
        help="also the growth with tokens, batch and processes, of the first size and precision",
    )
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/step.md and .json")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
