"""Our iteration against what the machine can do: each phase's floor from measured rates, and how time grows.

    python -m benchmarks.step [--sizes M] [--tokens 64] [--lengths fixed realistic] [--precisions fp32 bf16]
    python -m benchmarks.step --scaling
    python -m benchmarks.step --model smollm2-135m --recipe grpo --tokens 96 --precisions bf16

The rates of matrix products and the bandwidth are measured in the same process, before and after each iteration, and the
best of them stand. What a floor counts is said in `floors.py`. Exits with 1 if an iteration of model M in bf16 takes more
than `TARGET` times the sum of its floors by the clock, or the update of a real model (`--model`, on SVAMP's problems, responses that
end as they come) more than `UPDATE_TARGET` times its own; on a busy machine look at processor time.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from transformers import AutoConfig

from benchmarks.floors import PHASES, Iteration, Lengths, Shape, costs, distinct, recomputed
from benchmarks.limits import Measured
from benchmarks.scaling import grow
from benchmarks.sides.phases import PhaseClock, watch
from benchmarks.sides.real import write_work
from benchmarks.sides.report import RESULTS, in_words, machine, result_name
from benchmarks.sides.rlvr_ppo import make_trainer
from benchmarks.sides.work import MINI_BATCHES, PROMPT_TOKENS, PROMPTS, SIZES, Work
from rlvr.models.batch import collate, is_first
from rlvr.trainer.callbacks import Callback

TARGET, UPDATE_TARGET = 1.6, 1.8
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
    targets: dict[str, float]

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
    def update_times_floor(self) -> float:
        """Of the phases in which roles learn."""
        parts = [p for p in self.phases if p.name.split()[-1] in ("forward", "backward", "optimizer")]
        return sum(p.taken for p in parts) / sum(p.floor for p in parts)

    @property
    def missed(self) -> list[str]:
        """Which of the targets, with what was reached."""
        times = {"iteration": self.times_floor, "update": self.update_times_floor}
        return [
            f"{self.name}: {what} {times[what]:.2f} times the floors, not {target}"
            for what, target in self.targets.items()
            if times[what] > target
        ]


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
        rows = collate([item.prompt_ids for item in batch], [item.response_ids for item in batch])
        assert rows.first_places is not None
        computed = is_first(rows.first_places, rows.attention_mask).sum(1).tolist()
        lengths = [(len(item.prompt_ids), len(item.response_ids)) for item in batch]
        self.mini_batches.append([Lengths(p, r, p + r - own) for (p, r), own in zip(lengths, computed, strict=True)])

    def on_episode_end(self, trainer: Any, episode: int, metrics: Any) -> None:
        self.clock.tick()
        self.seen.append((self.mini_batches, self.distinct, dict(self.clock.clock), dict(self.clock.cpu)))
        self.measured.again()


def shape_of(work: Work) -> Shape:
    """Of the benchmark's model S or M, or of a real one."""
    if work.folder:
        c = AutoConfig.from_pretrained(work.folder)
        size = c.hidden_size // c.num_attention_heads
        return Shape(
            c.vocab_size, c.hidden_size, c.intermediate_size, c.num_hidden_layers, c.num_attention_heads, c.num_key_value_heads, size
        )  # fmt: skip
    vocabulary, hidden, intermediate, layers, heads = SIZES[work.size]
    return Shape(vocabulary, hidden, intermediate, layers, heads, heads, hidden // heads)


def measure(work: Work, iterations: int) -> Result:
    """Run the iterations after one to warm up."""
    rows = PROMPTS // MINI_BATCHES
    responses = rows * work.response_tokens
    tokens = rows * (PROMPT_TOKENS + work.response_tokens)
    measured = Measured(shape_of(work), tokens, min(1024, responses), PROMPTS, work.precision)
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
    shape = shape_of(work)
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
    targets = {"iteration": TARGET} if (work.size, work.precision) == ("M", "bf16") else {}
    targets |= {"update": UPDATE_TARGET} if work.folder else {}
    bandwidth = limits.bandwidth / 1e9
    return Result(name, work.precision, torch.get_num_threads(), phases, again, rates, bandwidth, targets)


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
    met = "missed" if result.missed else "met"
    target, update = (f", target {t}: {met}" if (t := result.targets.get(of)) else "" for of in ("iteration", "update"))
    return [
        f"GFLOP/s of products in {result.precision}: {rates}. Bandwidth {result.gigabytes_per_second:.1f} GB/s.",
        f"Not in the floor: {result.recomputed_gflop:.1f} GFLOP of the head's logits, computed again in the backward pass.",
        f"{result.times_floor:.2f} times the sum of the floors by the clock, {result.cpu_times_floor:.2f} by processor time"
        f"{target}.",
        f"The update: {result.update_times_floor:.2f} times its floors{update}.",
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


def save(results: Sequence[Result], grown: Sequence[Mapping[str, Any]], name: str) -> None:
    """Write results/`name`.md and .json."""
    RESULTS.mkdir(exist_ok=True)
    about = machine()
    facts = [asdict(r) | {"times_floor": r.times_floor, "cpu_times_floor": r.cpu_times_floor} for r in results]
    (RESULTS / f"{name}.json").write_text(
        json.dumps({"machine": about, "work": facts, "scaling": grown}, indent=1) + "\n"
    )
    lines = [f"# {name}", "", in_words(about), ""]
    for result in results:
        lines += [f"## {result.name}, {result.threads} thread(s)", "", *_markdown(COLUMNS, cells(result)), ""]
        lines += [line for note in notes(result) for line in (note, "")]
    if grown:
        lines += ["## Growth", "", *_markdown(list(grown[0]), [[str(v) for v in row.values()] for row in grown])]
    (RESULTS / f"{name}.md").write_text("\n".join(lines).rstrip() + "\n")


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
    with tempfile.TemporaryDirectory() as folder:
        for work in works(arguments, folder):
            print(
                f"{work.recipe} {work.size}, {work.response_tokens} tokens, {work.lengths}, {work.precision}",
                file=sys.stderr,
            )
            results.append(measure(work, arguments.iterations))
            print_result(results[-1])
    grown = []
    if arguments.scaling:
        grown = grow(arguments.sizes[0], arguments.precisions[0], arguments.recipe, arguments.iterations)
        print_growth(grown)
    if arguments.save:
        save(results, grown, result_name("step", arguments.model))
    missed = [line for result in results for line in result.missed]
    print("\n".join(missed) or "no target missed")
    return 1 if missed else 0


def works(arguments: argparse.Namespace, folder: str) -> list[Work]:
    """What is to be measured; a real model is written to `folder` first."""
    recipe = arguments.recipe
    if arguments.model:
        write_work(arguments.model, recipe, Path(folder), arguments.problems)
    sizes, lengths = ([arguments.model], ["realistic"]) if arguments.model else (arguments.sizes, arguments.lengths)
    return [
        Work(size, tokens, kind, precision, recipe, folder=folder if arguments.model else "")
        for size, tokens, kind, precision in product(sizes, arguments.tokens, lengths, arguments.precisions)
    ]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["M"], choices=["S", "M"])
    parser.add_argument("--tokens", nargs="+", type=int, default=[64])
    parser.add_argument("--lengths", nargs="+", default=["fixed", "realistic"], choices=["fixed", "realistic"])
    parser.add_argument("--precisions", nargs="+", default=["fp32", "bf16"], choices=["fp32", "bf16"])
    parser.add_argument(
        "--model", help="a real model on real prompts, in place of --sizes and --lengths, such as smollm2-135m"
    )
    parser.add_argument("--problems", type=Path, help="JSON lines with question, for --model")
    parser.add_argument("--recipe", default="ppo", choices=["ppo", "grpo"])
    parser.add_argument("--iterations", type=int, default=3, help="of each work, after one to warm up")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--scaling",
        action="store_true",
        help="also the growth with tokens, batch and processes, of the first size and precision",
    )
    parser.add_argument(
        "--save", action="store_true", help="write benchmarks/results/step.md and .json (with --model: step_MODEL)"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
