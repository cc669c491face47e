"""Generation ahead as a queue: seconds of each episode, given how long requests, updates and weights take.

The same rules as `rlvr.ray`: a request goes to whichever worker is free, in the order in which responses were first asked for; an episode's
responses begin with the weights after max(0, i - staleness) episodes, and with `partial_tokens` the next weights take over after so many
tokens of each; an update begins when all of its episode's responses are there. `tests/benchmarks/test_pipeline.py` holds it against the runs of
`benchmarks.asynchronous`, whose times are made up; `benchmarks.scaling_model` asks it about many GPUs.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from statistics import NormalDist

import numpy as np

from rlvr.core.seeding import derive_seed


@dataclass(frozen=True)
class Lengths:
    """A response's tokens: log-normal, cut at the longest.

    Attributes:
        median, spread: exp and standard deviation of the logarithm; without spread all have the median.
        longest: most tokens.
    """

    median: float
    spread: float
    longest: int

    def draw(self, count: int, before: int, *seed: int | str) -> np.ndarray:
        """[count] lengths of responses that are longer than `before`."""
        if not self.spread:
            return np.full(count, min(math.ceil(self.median), self.longest))
        normal = NormalDist(math.log(self.median), self.spread)
        below = normal.cdf(math.log(before)) if before else 0.0
        shares = np.random.default_rng(derive_seed("lengths", *seed)).uniform(below, 1.0, count)
        drawn = [math.exp(normal.inv_cdf(min(max(share, 1e-12), 1 - 1e-12))) for share in shares]
        return np.clip(np.ceil(drawn), before + 1, self.longest).astype(int)


@dataclass(frozen=True)
class Pipeline:
    """What a run consists of, in seconds.

    Attributes:
        lengths: of responses.
        responses, rows: of an episode, and of a request.
        workers: that generate.
        request_s: of a request, given the tokens so far of its responses and those that follow, [rows] each.
        update_s: of everything between an episode's last response and the next weights.
        publish_s, take_s: until new weights are on their way, and until a worker has them.
        staleness, partial_tokens: as `--max_staleness` and `--partial_rollout_tokens`.
        seed: of the lengths.
    """

    lengths: Lengths
    responses: int
    rows: int
    workers: int
    request_s: Callable[[int, np.ndarray], float]
    update_s: float
    publish_s: float = 0.0
    take_s: float = 0.0
    staleness: int = 0
    partial_tokens: int = 0
    seed: int = 0


@dataclass
class _Episode:
    """The responses of an episode: what is left of them in a row of requests, one version after the other."""

    number: int
    left: int
    before: int = 0
    due: deque[int] = field(default_factory=deque)
    open: int = 0


def episode_seconds(p: Pipeline, episodes: int) -> list[float]:
    """Seconds of each episode of a run."""
    return list(_run(p, episodes))


def _run(p: Pipeline, count: int) -> Iterator[float]:
    episodes: dict[int, _Episode] = {}
    waiting: list[tuple[int, int, int, float]] = []  # episode, number, version, seconds: a heap
    working: list[tuple[float, int, int]] = []  # when it is done, worker, episode: a heap
    free, versions, numbers, now = set(range(p.workers)), dict.fromkeys(range(p.workers), -1), iter(range(10**9)), 0.0

    def ask(episode: _Episode) -> None:
        """The next requests of an episode, if it is time."""
        if episode.open or not episode.due or not episode.left:
            return
        version, longer, begun = episode.due.popleft(), 0, 0
        whole = not p.partial_tokens or version == episode.number
        seed: tuple[int | str, ...] = (p.seed, episode.number, 0, 0)
        seed = (*seed, "after", episode.before) if episode.before else seed
        while begun < episode.left:
            rows = min(p.rows, episode.left - begun)
            new = p.lengths.draw(rows, episode.before, *seed, begun) - episode.before
            share = new if whole else np.minimum(new, p.partial_tokens)
            longer += int((new > share).sum())
            heappush(waiting, (episode.number, next(numbers), version, p.request_s(episode.before, share)))
            begun, episode.open = begun + rows, episode.open + 1
        episode.left = longer
        episode.before += 0 if whole else p.partial_tokens

    def work() -> None:
        """Hand out what waits."""
        while waiting and free:
            number, _, version, seconds = heappop(waiting)
            worker = min(free)
            free.remove(worker)
            heappush(working, (now + seconds + (p.take_s if versions[worker] != version else 0.0), worker, number))
            versions[worker] = version

    def finish_one() -> None:
        nonlocal now
        now, worker, number = heappop(working)
        free.add(worker)
        episodes[number].open -= 1
        ask(episodes[number])
        work()

    def finish_until(end: float) -> float:
        while working and working[0][0] <= end:
            finish_one()
        return end

    for current in range(count):
        begin = now
        now = finish_until(now + p.publish_s)
        for number in range(current, min(current + p.staleness, count - 1) + 1):
            if number not in episodes or p.partial_tokens:
                episodes.setdefault(number, _Episode(number, p.responses)).due.append(current)
            ask(episodes[number])
        work()
        while episodes[current].open or (episodes[current].left and episodes[current].due):
            finish_one()
        now = finish_until(now + p.update_s)
        yield now - begin
