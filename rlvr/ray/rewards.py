"""The scorers of a run on Ray: a pool of CPU workers for rules, and the group of the neural reward model.

They score responses while further ones are generated, and take references to them: a response goes from the process that
generated it to the one that scores it without a detour through the driver. The pool grows while work waits, and shrinks again.
"""

import os
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

from rewards import load_plugins, resolve
from rewards.combine import Combined
from rlvr.config import Config
from rlvr.config.conditions import runs_workers
from rlvr.config.reward_options import function_names
from rlvr.models.loading import load_tokenizer
from rlvr.prompting.conversation import Conversation, choose_template
from rlvr.ray import cluster as clusters
from rlvr.ray.cluster import START_S, collect, compare_versions, import_ray
from rlvr.ray.groups import PPORewardRayActorGroup
from rlvr.ray.splitting import Piece
from rlvr.scorers.build import make_reward_model
from rlvr.scorers.rules import RewardScorer

RETRIES = 3
"""How often a call is repeated after its worker died."""
GROW_S = 1.0
"""If work waits longer than this for a worker, another is started."""
IDLE_S = 30.0
"""A worker without work for longer than this is ended, as long as the least number remains."""


class RayRLVRReward:
    """One worker: the run's reward functions, guarded as they are in a run without Ray.

    Everything that can fail is left to the first call. Its errors reach the caller, while of a constructor that fails the caller
    would only hear that the process died.

    Args:
        config: the run's settings.
        folder: the driver's working folder, from which relative paths start.
    """

    def __init__(self, config: Config, folder: str) -> None:
        self.config, self.folder = config, folder

    @cached_property
    def scorer(self) -> RewardScorer:
        import torch

        clusters.work_in(self.folder)
        config, m = self.config, self.config.model
        tokenizer = load_tokenizer(m.tokenizer_dir or m.pretrain, m.trust_remote_code)
        conversation = Conversation(choose_template(config.template.conversation_template_config, tokenizer), tokenizer)
        if config.reward.reward_workers is None and runs_workers(config):
            # The cluster's CPUs are divided among the workers of this pool, so each guards its functions with one process.
            config = replace(config, reward=replace(config.reward, reward_workers=1))
        return make_reward_model(config, conversation, tokenizer, torch.device("cpu"))

    def versions(self) -> dict[str, str]:
        """Versions of the code that runs here."""
        return clusters.code_versions()

    def get_ready(self) -> None:
        """Load what scoring needs."""
        assert self.scorer is not None

    def score(self, *pieces: Piece) -> list[Combined]:
        """Scores of the pieces' samples, in order."""
        return self.scorer.score([sample for piece in pieces for sample in piece.samples])

    def process_id(self) -> int:
        """The operating system's id of this process."""
        return os.getpid()


@dataclass
class _Worker:
    handle: Any
    ready: Any
    """Reference that resolves when the worker has started; None from then on."""
    working: list[Any] = field(default_factory=list)
    idle_since: float = field(default_factory=time.monotonic)


@dataclass
class _Job:
    pieces: tuple[Any, ...]
    since: float
    result: Any = None


class RewardWorkers:
    """A pool of `RayRLVRReward` that grows while work waits, and shrinks when there is none.

    Ray replaces a worker that dies, and repeats its call in the new one.

    Args:
        config: the run's settings.
        least, most: bounds of the number of workers.
    """

    def __init__(self, config: Config, least: int, most: int) -> None:
        self.config, self.least, self.most = config, least, most
        self._kind = import_ray().remote(num_cpus=1, max_restarts=-1, max_task_retries=RETRIES)(RayRLVRReward)
        self._queue: deque[_Job] = deque()
        self.workers: list[_Worker] = [self._start() for _ in range(least)]

    def _start(self) -> _Worker:
        handle = self._kind.remote(self.config, os.getcwd())
        return _Worker(handle, handle.get_ready.remote())

    def check_versions(self) -> None:
        """Wait for the first workers. Raises `UserError` if one can't be made, or runs other code than this process."""
        for worker in self.workers:
            [versions] = collect([worker.handle.versions.remote()], ["a reward worker"], START_S)
            compare_versions(versions, "a reward worker")
        collect([worker.ready for worker in self.workers], ["a reward worker"] * len(self.workers))
        for worker in self.workers:
            worker.ready = None

    def submit(self, *pieces: Any) -> _Job:
        """Have these pieces (references) scored by one worker, when one is free."""
        job = _Job(pieces, time.monotonic())
        self._queue.append(job)
        self.pump()
        return job

    def pump(self) -> None:
        """Hand waiting work to free workers, and start or end workers. Never waits; called whenever something may have changed."""
        now = time.monotonic()
        for worker in self.workers:
            self._look_after(worker, now)
        free = [w for w in self.workers if w.ready is None and not w.working]
        while self._queue and free:
            job, worker = self._queue.popleft(), free.pop()
            job.result = worker.handle.score.remote(*job.pieces)
            worker.working.append(job.result)
        # One at a time: a worker takes seconds to start, and by then the queue may be empty.
        starting = any(worker.ready is not None for worker in self.workers)
        waits = bool(self._queue) and now - self._queue[0].since > GROW_S
        if waits and not starting and len(self.workers) < self.most:
            self.workers.append(self._start())
        idle = [w for w in self.workers if w.ready is None and not w.working and now - w.idle_since > IDLE_S]
        for worker in idle[: max(0, len(self.workers) - self.least)]:
            self.workers.remove(worker)
            clusters.end([worker.handle])

    def _look_after(self, worker: _Worker, now: float) -> None:
        """Notice that a worker has started or finished calls."""
        ray = import_ray()
        if worker.ready is not None and ray.wait([worker.ready], timeout=0)[0]:
            worker.ready, worker.idle_since = None, now
        if worker.working:
            _, worker.working = ray.wait(worker.working, num_returns=len(worker.working), timeout=0)
            worker.idle_since = now

    def results(self, jobs: Sequence[_Job]) -> list[list[Combined]]:
        """Wait for the jobs' scores, in order.

        Raises:
            UserError: a reward function returned something that is no score, or failed too often.
            ProcessDied: a worker died again and again.
        """
        ray = import_ray()
        while any(job.result is None for job in jobs):
            self.pump()
            if busy := [ref for worker in self.workers for ref in (*worker.working, worker.ready) if ref is not None]:
                ray.wait(busy, num_returns=1, timeout=GROW_S / 4)
        return collect([job.result for job in jobs], ["a reward worker"] * len(jobs))

    def close(self) -> None:
        """End all workers."""
        clusters.end([worker.handle for worker in self.workers])
        self.workers = []


class PieceScoring(Protocol):
    """Scores of one collect step, of samples that are in other processes."""

    def add_piece(self, piece: Any, rows: Sequence[int]) -> None:
        """Score this piece too (a reference); `rows` are its responses' places among all of them."""
        ...

    def complete(self) -> None:
        """No more pieces will come."""
        ...

    def result(self) -> list[Combined]: ...


class RemoteScorer(Protocol):
    """Scores pieces of responses, given by reference."""

    def begin(self) -> PieceScoring: ...

    def close(self) -> None: ...


class RemoteRules:
    """Rules as scorer of the experience maker.

    Args:
        workers: the pool.
        whole: hand all responses of a collect step to one worker, for functions that want the whole batch.
    """

    def __init__(self, workers: RewardWorkers, whole: bool) -> None:
        self.workers, self.whole = workers, whole

    def begin(self) -> "RemoteRuleScoring":
        return RemoteRuleScoring(self.workers, self.whole)

    def close(self) -> None:
        self.workers.close()


class RemoteRuleScoring:
    """Scores of one collect step from the pool of workers."""

    def __init__(self, workers: RewardWorkers, whole: bool) -> None:
        self.workers, self.whole = workers, whole
        self.pieces: list[Any] = []
        self.rows: list[list[int]] = []
        self.jobs: list[_Job] = []

    def add_piece(self, piece: Any, rows: Sequence[int]) -> None:
        self.pieces.append(piece)
        self.rows.append(list(rows))
        if not self.whole:
            self.jobs.append(self.workers.submit(piece))

    def complete(self) -> None:
        if self.whole and not self.jobs:
            self.jobs.append(self.workers.submit(*self.pieces))

    def result(self) -> list[Combined]:
        rows = [row for some in self.rows for row in some]
        found = [one for part in self.workers.results(self.jobs) for one in part]
        return _in_order(rows, found)


class RemoteRewardModel:
    """The neural reward model's group as scorer of the experience maker."""

    def __init__(self, group: PPORewardRayActorGroup) -> None:
        self.group = group

    def begin(self) -> "RemoteModelScoring":
        return RemoteModelScoring(self.group)

    def state_dict(self) -> dict[str, Any]:
        return dict(self.group.first("state_dict"))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.group.collect(self.group.ask("load_state_dict", dict(state)))

    def close(self) -> None:
        self.group.collect(self.group.ask("close"))


class RemoteModelScoring:
    """Scores of one collect step from the group.

    It begins when all responses are there: its ranks work together, and divide the whole batch among them.
    """

    def __init__(self, group: PPORewardRayActorGroup) -> None:
        self.group = group
        self.pieces: list[Any] = []
        self.rows: list[int] = []
        self.refs: list[Any] = []

    def add_piece(self, piece: Any, rows: Sequence[int]) -> None:
        self.pieces.append(piece)
        self.rows.extend(rows)

    def complete(self) -> None:
        if not self.refs:
            self.refs = self.group.ask("score", self.rows, *self.pieces)

    def result(self) -> list[Combined]:
        self.complete()
        answers = self.group.collect(self.refs)
        rows = [row for some, _ in answers for row in some]
        return _in_order(rows, [one for _, results in answers for one in results])


def _in_order(rows: Sequence[int], results: Sequence[Combined]) -> list[Combined]:
    """Results in the order of the responses; pieces are scored in the order in which they came."""
    ordered = sorted(zip(rows, results, strict=True), key=lambda pair: pair[0])
    return [result for _, result in ordered]


def wants_whole_batches(config: Config) -> bool:
    """True if some reward function is called once for all responses of a collect step."""
    load_plugins(config.reward.reward_plugins)
    return any(resolve(name).batched for name in function_names(config))
