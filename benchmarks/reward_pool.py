"""How fast the reward pool is, and what hanging rewards do to it.

    OMP_NUM_THREADS=1 python -m benchmarks.reward_pool [--responses 100000] [--workers 2] [--spinning 1000] [--rounds 2]

Grades LaTeX answers one after the other in this process, then by a pool, in turns: none hanging, and 1 % of them asleep for ever.
Prints responses per second, the ratio to `workers` times the single process, and, of all turns together, what share of its speed
the pool keeps while calls hang. Last, 1 % that spin for ever.

A call that spins has a right to its deadline's worth of processor time like any other, so that the spinning run can't
come near the rest: its floor, also printed, is (grading + spinning calls * deadline) / processors. A call that hangs costs a process:
a fork, the pages that it then copies, its end. By default one processor is left for that and for the pool itself, as `RewardPool` does.
"""

import argparse
import os
import platform
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

from rewards import RewardFunction, Sample, Tags, grade, resolve
from rewards.call import score
from rewards.pool import RewardPool
from rewards.pool.limits import default_workers

TAGS = Tags.default()
SLEEP, SPIN = "sleep for ever", "spin for ever"


def latex(response: str, gold: str, tags: Tags) -> float:
    """The workload: our grader, but for marked responses that hang."""
    if response.endswith(SLEEP):
        time.sleep(1e6)
    while response.endswith(SPIN):
        pass
    return float(grade(response, gold, tags=tags).correct)


def make_samples(count: int, hanging: str = "", hangs: int = 0) -> list[Sample]:
    """LaTeX answers, all different; `hangs` of them, spread at random, end with the mark `hanging`."""
    marked = set(random.Random(0).sample(range(count), hangs))
    return [_sample(i, hanging if i in marked else "") for i in range(count)]


def _sample(i: int, mark: str) -> Sample:
    a, b, c = i % 97 + 2, i % 89 + 3, i
    answers = [
        (rf"\frac{{{a}}}{{{b}}} + {c}", rf"{c} + \dfrac{{{a}}}{{{b}}}"),
        (rf"\sqrt{{{a}}} + {c}", rf"{c} + \sqrt{{{a}}}"),
        (rf"({a}x + {b})(x - {c})", rf"{a}x^2 + {b}x - {a * c}x - {b * c}"),
        (rf"\left({a}, \frac{{{b}}}{{{a}}}, {c}\right)", rf"({a}, {b}/{a}, {c})"),
        (rf"{a}\pi + {c}", rf"{c + 1} + {a}\pi"),
    ]
    answer, gold = answers[i % len(answers)]
    thought = "So we add what is left and simplify the fraction. " * 12
    return Sample(f"<think>{thought}</think><answer>\\boxed{{{answer}}}</answer>{mark}", gold, tags=TAGS)


@dataclass
class Used:
    """What one process took for all samples."""

    wall_s: float
    cpu_s: float


def timed(
    title: str, samples: Sequence[Sample], function: RewardFunction, args: argparse.Namespace, single: Used
) -> Used:
    """Score with a warm pool and print how that compares with one process."""
    with RewardPool([function], workers=args.workers, timeout_s=args.timeout_s, cache_size=0) as pool:
        pool.score(make_samples(200))
        start, cpu = time.perf_counter(), cpu_seconds()
        pool.score(samples)
        took, count = time.perf_counter() - start, pool.failures[function.name]
    cpu = cpu_seconds() - cpu  # the workers' is known when they have ended
    ideal = single.wall_s / args.workers
    print(
        f"{title}: {len(samples) / took:.0f}/s = {ideal / took:.0%} of {args.workers} x one process; {took:.1f} s, processors "
        f"{cpu:.1f} s; {count.timed_out} timed out, {count.error} errors"
    )
    return Used(took, cpu)


def in_turns(
    samples: Sequence[Sample],
    hanging: Sequence[Sample],
    function: RewardFunction,
    args: argparse.Namespace,
    single: Used,
) -> Used:
    """What is left of the pool's speed, by the clock and by processor time, when some of the calls hang."""
    part = -(-len(samples) // args.rounds)
    share = Used(single.wall_s / args.rounds, single.cpu_s / args.rounds)
    totals = {"none hanging": Used(0.0, 0.0), "1 % asleep": Used(0.0, 0.0)}
    for start in range(0, len(samples), part):
        for title, rows in zip(totals, (samples, hanging), strict=True):
            used = timed(title, rows[start : start + part], function, args, share)
            totals[title].wall_s += used.wall_s
            totals[title].cpu_s += used.cpu_s
    plain, slowed = totals.values()
    return Used(plain.wall_s / slowed.wall_s, plain.cpu_s / slowed.cpu_s)


def cpu_seconds() -> float:
    """Of this process and of all that it started and that have ended."""
    return sum(os.times()[:4])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--responses", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=default_workers())
    parser.add_argument("--rounds", type=int, default=2, help="turns of each kind, the responses shared out among them")
    parser.add_argument("--timeout_s", type=float, default=1.0)
    parser.add_argument("--spinning", type=int, help="of the responses in the last run; 1 %% by default")
    args = parser.parse_args()
    function, count, hangs = resolve(f"{os.path.abspath(__file__)}:latex"), args.responses, args.responses // 100
    print(
        f"{platform.machine()}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}"
    )
    samples = make_samples(count)
    score(function, samples[:200])
    start, cpu = time.perf_counter(), cpu_seconds()
    score(function, samples)
    single = Used(time.perf_counter() - start, cpu_seconds() - cpu)
    print(f"one process: {count / single.wall_s:.0f}/s; {single.wall_s:.1f} s, processor {single.cpu_s:.1f} s")
    kept = in_turns(samples, make_samples(count, SLEEP, hangs), function, args, single)
    print(f"kept while 1 % hang asleep: {kept.wall_s:.0%} of the speed, {kept.cpu_s:.0%} by processor time")
    spins = hangs if args.spinning is None else args.spinning
    floor = (single.cpu_s + spins * args.timeout_s) / (os.cpu_count() or 1)
    timed(f"{spins} spinning (at least {floor:.0f} s)", make_samples(count, SPIN, spins), function, args, single)


if __name__ == "__main__":
    main()
