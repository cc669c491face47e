"""Which problems come next, by what became of those before: `--curriculum`.

Problems are drawn from arms: the data sets of a run, the values of a column (levels, kinds), or each problem for itself. Of each arm it is known
what share of the responses was right lately, and how sure that is; `UTILITIES` make of it how much the arm is worth drawing from:

    target_success       success is near a target, where groups have signal (Florensa et al. 2018, arXiv:1705.06366: goals of
                         intermediate difficulty)
    learning_progress    success changes, in either direction (Matiisen et al. 2017, arXiv:1707.00183)
    zone                 it is neither always nor never solved; an arm that was left alone comes back as what is known of it fades

A part of all draws is even over the problems whatever is known, so that no arm is forgotten. Within an arm problems come in shuffled passes.

What is drawn is a pure function of what was seen, of the seed and of the number of draws, so a resumed run goes on with the same problems, and the
number of processes changes nothing. (Left out: weights that correct the gradient for the draw. They would give back the plain
average over all problems, which whoever sets a curriculum does not want.)
"""

import math
import random
from bisect import bisect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import accumulate
from typing import Any

from rlvr.data.problems import Problem
from rlvr.data.sampling import PromptSampler
from rlvr.errors import UserError, did_you_mean, listed, plain_name

SLOW = 4
"""The longer memory, with which learning progress compares, in lengths of the shorter one."""
WIDTH = 0.15
"""Distance from the target at which an arm is worth e^-1/2 of one that is there."""
NEVER, ALWAYS = 0.05, 0.95
"""An arm is left alone while its success is surely below or above."""
SURE = 1.64
"""Standard deviations on either side of what was seen that count as possible: 90 %."""
MAX_NAMED = 12
"""Arms that have curves of their own."""


@dataclass
class Arm:
    """What is known of an arm: weights of responses, and of those that were right, which halve as time goes by.

    Attributes:
        step: when the weights were of this size.
        tries, right: with the memory that the settings give.
        slow_tries, slow_right: with one that is `SLOW` times as long.
        drawn: problems that were drawn from it.
    """

    step: int = 0
    tries: float = 0.0
    right: float = 0.0
    slow_tries: float = 0.0
    slow_right: float = 0.0
    drawn: int = 0

    def at(self, step: int, memory: float) -> "Arm":
        """The arm as it is known at this step. (In one go from when it was last seen: in two, rounding would tell who looked.)"""
        kept, slow = (0.5 ** ((step - self.step) / length) for length in (memory, SLOW * memory))
        return Arm(
            step, self.tries * kept, self.right * kept, self.slow_tries * slow, self.slow_right * slow, self.drawn
        )

    def add(self, tries: int, right: int) -> None:
        self.tries, self.right = self.tries + tries, self.right + right
        self.slow_tries, self.slow_right = self.slow_tries + tries, self.slow_right + right

    @property
    def success(self) -> float:
        """Mean of the posterior from Jeffreys' prior, Beta(1/2, 1/2): 1/2 where nothing is known."""
        return (self.right + 0.5) / (self.tries + 1)

    @property
    def slow_success(self) -> float:
        return (self.slow_right + 0.5) / (self.slow_tries + 1)

    @property
    def deviation(self) -> float:
        """The posterior's standard deviation."""
        return math.sqrt(self.success * (1 - self.success) / (self.tries + 2))


def near_target(arm: Arm, target: float) -> float:
    """Nearness to the target; doubt makes the bell wider."""
    return math.exp(-((arm.success - target) ** 2) / (2 * (WIDTH**2 + arm.deviation**2)))


def progress(arm: Arm, target: float) -> float:
    """How much success has changed lately; doubt counts as change."""
    return abs(arm.success - arm.slow_success) + arm.deviation


def in_zone(arm: Arm, target: float) -> float:
    """1 unless success is surely about 0 or 1."""
    return float(arm.success + SURE * arm.deviation > NEVER and arm.success - SURE * arm.deviation < ALWAYS)


UTILITIES: Mapping[str, Callable[[Arm, float], float]] = {
    "target_success": near_target,
    "learning_progress": progress,
    "zone": in_zone,
}


class Curriculum(PromptSampler):
    """Batches of indices, drawn from arms by what is known of them.

    Args:
        arms: the arm of each item, by name.
        batch_size, seed: as of `PromptSampler`.
        kind: of `UTILITIES`.
        target: success that `target_success` looks for.
        memory: collect steps after which what was seen counts half.
        even: share of the draws that is even over all items.

    Raises:
        UserError: nothing to sample from, or a batch without items.
    """

    learns = True

    def __init__(
        self,
        arms: Sequence[str],
        batch_size: int,
        seed: int,
        kind: str,
        *,
        target: float = 0.5,
        memory: float = 20.0,
        even: float = 0.2,
    ) -> None:
        super().__init__(len(arms), batch_size, seed)
        self.kind, self.target, self.memory, self.even = kind, target, memory, even
        self.items: dict[str, list[int]] = {}
        for index, name in enumerate(arms):
            self.items.setdefault(name, []).append(index)
        self.arm_of = list(arms)
        self.names = list(self.items)
        self.known = {name: Arm() for name in self.names}
        self.step = 0

    def observe(self, counts: Mapping[int, tuple[int, int]]) -> None:
        """What became of a collect step: for each item, its responses and how many of them were right."""
        self.step += 1
        of_arms: dict[str, list[int]] = {}
        for index, (tries, right) in counts.items():
            tally = of_arms.setdefault(self.arm_of[index], [0, 0])
            tally[0] += tries
            tally[1] += right
        for name, (tries, right) in of_arms.items():
            self.known[name] = self.known[name].at(self.step, self.memory)
            self.known[name].add(tries, right)

    def shares(self) -> dict[str, float]:
        """The chance of each arm at the next draw."""
        worth = self._worth()
        whole = math.fsum(worth)
        evenly = [len(self.items[name]) / self.size for name in self.names]
        if whole == 0:  # all are solved, or none
            return dict(zip(self.names, evenly, strict=True))
        return {
            name: self.even * plain + (1 - self.even) * value / whole
            for name, plain, value in zip(self.names, evenly, worth, strict=True)
        }

    def _worth(self) -> list[float]:
        utility = UTILITIES[self.kind]
        return [utility(self.known[name].at(self.step, self.memory), self.target) for name in self.names]

    def next_batch(self) -> list[int]:
        """No item comes twice in it unless there are too few."""
        ends = list(accumulate(self.shares().values()))
        chance = random.Random(f"curriculum draw {self.counter} with seed {self.seed}")
        left = {name: len(items) for name, items in self.items.items()}
        batch: list[int] = []
        while len(batch) < self.batch_size:
            if not any(left.values()):
                left = {name: len(items) for name, items in self.items.items()}
            name = self.names[min(bisect(ends, chance.random() * ends[-1]), len(ends) - 1)]
            if not left[name]:  # used up: the next arm with some left
                place = self.names.index(name)
                name = next(n for n in (*self.names[place:], *self.names[:place]) if left[n])
            left[name] -= 1
            batch.append(self._next_of(name))
        self.counter += 1
        return batch

    def _next_of(self, name: str) -> int:
        arm, items = self.known[name], self.items[name]
        (place,) = PromptSampler(len(items), 1, self.seed).batch(arm.drawn)
        arm.drawn += 1
        return items[place]

    def metrics(self) -> dict[str, float]:
        """`curriculum/known` (share of the arms that were drawn from), `curriculum/worth` (share of those that are worth drawing from by at least half
        of the best), and for a few arms the success and the share of each, by name."""
        shares, worth = self.shares(), self._worth()
        best = max(worth)
        found = {
            "curriculum/known": sum(arm.slow_tries > 0 for arm in self.known.values()) / len(self.names),
            "curriculum/worth": sum(2 * one >= best > 0 for one in worth) / len(self.names),
        }
        if len(self.names) <= MAX_NAMED:
            for name in self.names:
                label = plain_name(name)
                found[f"curriculum/{label}/success"] = self.known[name].at(self.step, self.memory).success
                found[f"curriculum/{label}/share"] = shares[name]
        return found

    def state_dict(self) -> dict[str, Any]:
        """The position, and what is known of the arms."""
        known = {name: list(astuple(arm)) for name, arm in self.known.items() if arm.drawn or arm.slow_tries}
        return {**self._place(), "curriculum": {"step": self.step, "known": known}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved position; errors are those of `PromptSampler`, and of a run that had no curriculum or other arms."""
        saved = state.get("curriculum") if isinstance(state, Mapping) else None
        if not isinstance(saved, Mapping) or not set(saved.get("known", ())) <= set(self.names):
            raise UserError(
                "the saved position in the data is that of a run without this curriculum; resume with the --curriculum, "
                "--curriculum_by and data that the run was started with"
            )
        super().load_state_dict({name: value for name, value in state.items() if name != "curriculum"})
        self.step = int(saved["step"])
        self.known = {name: Arm(*saved["known"][name]) if name in saved["known"] else Arm() for name in self.names}


def arms_of(problems: Sequence[Problem], by: str) -> list[str]:
    """The arm of each problem.

    Args:
        by: `dataset`, `problem`, or a column.

    Raises:
        UserError: no such column, or all problems are of one arm.
    """
    if by == "dataset":
        arms = [problem.dataset for problem in problems]
    elif by == "problem":
        arms = [problem.id for problem in problems]
    else:
        for problem in problems:
            if by not in problem.columns:
                have = sorted(problem.columns)
                raise UserError(
                    f"--curriculum_by {by}: {problem.source} has no such column; it has {listed(have) if have else 'none'}. Give "
                    f"`dataset`, `problem`, or a column that all problems have.{did_you_mean(by, [*have, 'dataset', 'problem'])}"
                )
        arms = [str(problem.columns[by]) for problem in problems]
    if len(set(arms)) == 1 and len(arms) > 1:
        raise UserError(
            f"--curriculum_by {by}: all problems are of one kind, {arms[0]!r}, so there is nothing to choose; give several data sets, a "
            "column that tells them apart, or `problem`"
        )
    return arms
