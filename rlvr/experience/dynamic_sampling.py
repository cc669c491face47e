"""Dynamic sampling (DAPO, Yu et al. 2025, arXiv:2503.14476, section 3.2): groups without signal give way to further prompts.

When all responses to a prompt are paid the same, comparing them teaches nothing, and the batch is smaller than it looks.
With `--dynamic_sampling` a collect step goes through here instead of `BaseExperienceMaker.make_experience`: such groups are
dropped before any model is run on them, and the batch is refilled from the prompts that come next; those that were drawn and not
needed come first in the next collect step. After `max_refills` rounds
the places that are left go to dropped groups, which are not trained on: batches, optimizer steps and schedules keep their
sizes. (DAPO samples until the batch is full; a policy that gets everything right would never finish.)
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from rewards import Sample
from rewards.combine import Combined
from rlvr.data.prompts import Prompt
from rlvr.experience.maker import BaseExperienceMaker, Collected, count_solved, timed
from rlvr.experience.metrics import record_groups, record_totals
from rlvr.experience.verdicts import Verdicts
from rlvr.rollout.engine import Rollout
from rlvr.tracking.meter import Meter

LEAST_ACCEPTANCE = 0.125
"""Least share of groups with signal that a round reckons with: it samples at most 1 / 0.125 = 8 prompts for a missing group."""


@dataclass
class _Pool:
    """Everything that was sampled so far, groups without signal too; a group is `size` responses in a row."""

    size: int
    rollouts: list[Rollout] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    results: list[Combined] = field(default_factory=list)
    verdicts: list[Verdicts] = field(default_factory=list)
    prompts: list[Prompt] = field(default_factory=list)
    signal: list[bool] = field(default_factory=list)
    """Of each group."""

    @property
    def with_signal(self) -> int:
        return sum(self.signal)

    def choose(self, target: int) -> tuple[list[int], list[bool]]:
        """The rows of `target` groups, and for each row whether its group has signal. Groups without fill what is missing."""
        good = [g for g, signal in enumerate(self.signal) if signal][:target]
        filler = [g for g, signal in enumerate(self.signal) if not signal][: target - len(good)]
        chosen = sorted(good + filler)  # in the order of sampling
        rows = [g * self.size + k for g in chosen for k in range(self.size)]
        return rows, [self.signal[row // self.size] for row in rows]


def collect_with_signal(
    maker: BaseExperienceMaker,
    prompts: Sequence[Prompt],
    waiting: list[Prompt],
    next_prompts: Callable[[], Sequence[Prompt]],
    any_rank: Callable[[bool], bool],
    meter: Meter,
    *seed: int | str,
    monte_carlo: bool = False,
) -> tuple[Collected, int]:
    """Like `maker.make_experience`, with as many groups, and with signal in each as far as `max_refills` allow.

    All ranks draw further prompts together as long as any of them is short, so that each calls `next_prompts` and `any_rank`
    equally often (pitfall A24). What a rank does not need of its share waits for the next collect step.

    Args:
        maker: samples, scores and assembles.
        prompts: this process's share of the collect step, each `num_generations` times in a row.
        waiting: prompts that this process has drawn and not sampled yet, the oldest first; changed in place.
        next_prompts: gives this process's share of the next batch of prompts. Called by all ranks together.
        any_rank: whether any rank says yes. Collective.
        meter: receives the metrics; those of samples and scores count all that was sampled, dropped groups too.
        seed: the place in the run that the sampling belongs to.
        monte_carlo: see `BaseExperienceMaker.make_experience`.

    Returns:
        The experience, and how many responses this process sampled for it.
    """
    max_refills = maker.config.algo.max_refills
    seconds: dict[str, float] = {}
    pool = _Pool(maker.config.rollout.num_generations)
    target, refills = len(prompts) // pool.size, 0
    with maker.sampling_weights():  # for all rounds at once, of which the ranks make different numbers
        _sample(maker, prompts, pool, meter, seconds, *seed)
        while True:
            while waiting and pool.with_signal < target:
                # As many prompts as should suffice, by the share of groups with signal so far; then more only if they did not.
                acceptance = max(LEAST_ACCEPTANCE, pool.with_signal / len(pool.signal))
                some = _take(waiting, math.ceil((target - pool.with_signal) / acceptance))
                repeated = [prompt for prompt in some for _ in range(pool.size)]
                _sample(maker, repeated, pool, meter, seconds, *seed, "refill", len(pool.signal))
            if refills == max_refills or not any_rank(pool.with_signal < target):
                break
            refills += 1
            waiting += next_prompts()
    meter.add("dynamic/refills", refills)
    record_groups(meter, pool.with_signal, len(pool.signal))
    meter.add_count("dynamic/groups_sampled", len(pool.signal))
    meter.add_count("dynamic/groups_missing", max(0, target - pool.with_signal))
    return _finish(maker, pool, target, meter, seconds, *seed, monte_carlo=monte_carlo), len(pool.rollouts)


def _take(waiting: list[Prompt], count: int) -> list[Prompt]:
    """The first prompts, which wait no longer."""
    taken = waiting[:count]
    del waiting[:count]
    return taken


def _sample(
    maker: BaseExperienceMaker,
    prompts: Sequence[Prompt],
    pool: _Pool,
    meter: Meter,
    seconds: dict[str, float],
    *seed: int | str,
) -> None:
    """Sample responses to these prompts, score them, and add them to the pool."""
    greedy = maker.greedy_responses(prompts, seconds, *seed)
    new = maker.respond(prompts, maker.sampling, seconds, *seed)
    with timed(seconds, "reward"):
        results = new.scoring.result()
        verdicts = maker.judge(new.rollouts, results, meter, greedy)
    pool.signal += verdicts.groups_with_signal(pool.size).tolist()
    pool.rollouts += new.rollouts
    pool.samples += new.samples
    pool.results += results
    pool.verdicts.append(verdicts)
    pool.prompts += prompts


def _finish(
    maker: BaseExperienceMaker,
    pool: _Pool,
    target: int,
    meter: Meter,
    seconds: dict[str, float],
    *seed: int | str,
    monte_carlo: bool,
) -> Collected:
    """Run the models over the chosen groups only, and form their experience."""
    rows, signal = pool.choose(target)
    everything = Verdicts.join(pool.verdicts)
    record_totals(meter, everything.totals, everything.scored)
    verdicts = everything.take(rows, torch.tensor(signal))
    rollouts = [pool.rollouts[row] for row in rows]
    scores = maker.run_models(rollouts, seconds)
    experience = maker.assemble(rollouts, scores, verdicts, meter, seconds, *seed, monte_carlo=monte_carlo)
    samples, results = [pool.samples[r] for r in rows], [pool.results[r] for r in rows]
    return Collected(experience, samples, results, seconds, count_solved(pool.prompts, everything))
