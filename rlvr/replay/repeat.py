"""`rlvr replay`: steps of a run computed again from its journal, and compared with what they gave then.

A step's update is a function of the weights and optimizer that it began with, and of its experience. The journal has the latter;
the former come from the nearest checkpoint before it (or the run's start), and the steps in between. Nothing is sampled and nothing
is scored. On the machine and with the versions of the run the weights are the same to the bit; elsewhere metrics say how far off
they are. Nothing in the run's folder is changed.
"""

import math
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import torch
from torch import Tensor

from rlvr.api import hosted
from rlvr.boost.consistency import differences
from rlvr.checkpoint.storage import list_checkpoints, place_of
from rlvr.config import Config, LogConfig
from rlvr.errors import UserError
from rlvr.experience.experience import Experience
from rlvr.journal.journal import Digests, Journal, StepInfo
from rlvr.journal.keeper import digests, made_with
from rlvr.run import assembly
from rlvr.trainer.callbacks import Callback
from rlvr.trainer.online import OnlineTrainer, Plan

COMPARED = ("train/actor_loss", "train/critic_loss", "grad_norm/actor", "grad_norm/critic", "loss/policy_avg")
"""Metrics that say how far off a step is whose weights are not the same."""


@dataclass(frozen=True)
class Repeated:
    """A step that was computed again.

    Attributes:
        then: as it is in the journal.
        before, after: the weights that it began and ended with now.
        metrics: of now.
        made_with: the versions and the machine of now.
    """

    then: StepInfo
    before: Digests
    after: Digests
    metrics: Mapping[str, float]
    made_with: Mapping[str, str]

    @property
    def same(self) -> bool:
        """True if every bit of the weights is."""
        return dict(self.after) == dict(self.then.after or {})

    @property
    def began_otherwise(self) -> bool:
        """True if the difference is older than this step."""
        return dict(self.before) != dict(self.then.before)

    @property
    def farthest(self) -> tuple[str, float]:
        """The metric of the update that is farthest off, and how far, relative to then."""
        then = {name: value for name, value in (self.then.metrics or {}).items() if value is not None}
        off = {
            name: abs(self.metrics[name] - then[name]) / max(abs(then[name]), 1e-6)
            for name in COMPARED
            if name in then and name in self.metrics
        }
        return max(off.items(), key=lambda pair: pair[1]) if off else ("", math.nan)

    @property
    def made_otherwise(self) -> list[tuple[str, Any, Any]]:
        """(what, then, now) of versions, machine and precision that are not those of then."""
        return differences(dict(self.then.made_with), dict(self.made_with))


@dataclass(frozen=True)
class Stretch:
    """Steps that can be computed one after the other: from a checkpoint, or from the start of the run (None)."""

    checkpoint: Path | None
    steps: tuple[int, ...]


def stretch_to(run: Path, step: int) -> Stretch:
    """The shortest stretch that ends with a step.

    Raises:
        UserError: the step, or one between it and every checkpoint before it, is not in the journal.
    """
    journal = Journal(run)
    if journal.info(step).after is None:  # raises if it is not there
        raise UserError(
            f"step {step} of {run} did not end: the journal says what it began with and not what came of it"
        )
    kept, first = set(journal.steps()), step
    starts = _starts(run)
    while first - 1 not in starts:
        first -= 1
        if first not in kept:
            raise UserError(
                f"step {step} of {run} can't be computed again: it needs a checkpoint from before it with all steps in between in the "
                f"journal, and step {first} is missing. Checkpoints are after the steps {_listed(starts)}; keep more of them "
                "(--keep_checkpoints, --save_interval) or of the journal (--journal)"
            )
    return Stretch(starts[first - 1], tuple(range(first, step + 1)))


def stretches(run: Path) -> list[Stretch]:
    """All steps of the journal that can be computed again, in order.

    Raises:
        UserError: there are none.
    """
    starts, found = _starts(run), list[Stretch]()
    for step in Journal(run).steps():
        if found and found[-1].steps[-1] == step - 1:
            found[-1] = replace(found[-1], steps=(*found[-1].steps, step))
        elif step - 1 in starts:
            found.append(Stretch(starts[step - 1], (step,)))
    if not found:
        raise UserError(
            f"no step of {run} can be computed again: its journal has {len(Journal(run).steps())} steps (--journal N keeps them), and "
            "a checkpoint or the run's start must lie right before the first"
        )
    return found


def _starts(run: Path) -> dict[int, Path | None]:
    """Finished steps -> the checkpoint after them; None = the run's start. Those within an episode are left out."""
    starts: dict[int, Path | None] = {0: None}
    for path in list_checkpoints(run):
        finished, within = place_of(path)
        if not within:
            starts[finished] = path
    return starts


def _listed(starts: Mapping[int, Path | None]) -> str:
    return ", ".join("0 (the start)" if step == 0 else str(step) for step in sorted(starts))


def repeat(run: Path, config: Config, stretch: Stretch) -> Iterator[Repeated]:
    """Compute the steps of a stretch again, one after the other. Collective, in as many processes as the run had.

    Args:
        run: the run's folder.
        config: its settings.
        stretch: which steps.

    Raises:
        UserError: another number of processes than then; data or models that are not there any more; a damaged journal.
    """
    journal = Journal(run)
    with opened(config) as bench:
        trainer = bench.trainer
        _check_processes(run, journal.info(stretch.steps[0]), trainer)
        bench.begin(stretch.checkpoint)
        before = digests(trainer)
        for step in stretch.steps:
            metrics = bench.learn(journal, step)
            after = digests(trainer)
            yield Repeated(journal.info(step), before, after, metrics, made_with(trainer))
            before = after


def _check_processes(run: Path, info: StepInfo, trainer: OnlineTrainer) -> None:
    if (trainer.world_size, trainer.learner.replicas) != (info.processes, info.replicas):
        raise UserError(
            f"{run} was trained by {info.processes} process(es), and each has a journal of its own; now there are "
            f"{trainer.world_size}: torchrun --nproc_per_node={info.processes} -m rlvr replay {run} ..."
        )


@dataclass
class Bench:
    """A run's trainer apart from the run: it evaluates nothing, reports nothing, and writes into a folder of its own."""

    trainer: OnlineTrainer
    run: assembly.Run

    def begin(self, checkpoint: Path | None) -> None:
        """Load a checkpoint, if there is one, and take the data up where it was."""
        t = self.trainer.config.train
        if checkpoint is not None:
            self.trainer.load_checkpoint(checkpoint)
        plan = Plan(t.num_episodes, t.num_collect_steps, t.num_update_steps)
        self.trainer.prepare(plan, self.run.loader, self.run.ptx)

    def learn(self, journal: Journal, step: int) -> Mapping[str, float]:
        """The update of a step, from the journal. Returns the row of metrics."""
        items, meter = journal.experience(step, self.trainer.rank)
        return self.learn_from(items, meter, journal.info(step).kl_coef)

    def learn_from(
        self,
        items: Sequence[Experience],
        meter: Mapping[str, Any],
        kl_coef: float,
        *,
        whitened: bool = True,
        also: Callback | None = None,
    ) -> Mapping[str, float]:
        """The next step, from this experience; `also` is called at its hooks."""
        row = _Row()
        self.trainer.callbacks = [row, *([also] if also is not None else [])]
        self.trainer.learn_again(items, meter, kl_coef, whitened=whitened)
        return row.metrics


class _Row(Callback):
    """Catches the row of metrics at the end of an episode."""

    metrics: Mapping[str, float]

    def on_episode_end(self, trainer: Any, episode: int, metrics: Mapping[str, float]) -> None:
        self.metrics = metrics


@contextmanager
def _scratch_folder() -> Iterator[str]:
    """A folder for the time of the block, of the same name in all processes, whose settings must be the same."""
    own = os.environ.get("MASTER_PORT", str(os.getpid()))
    folder = Path(gettempdir()) / f"rlvr-replay-{own}"
    try:
        yield str(folder)
    finally:
        if int(os.environ.get("LOCAL_RANK", "0")) == 0:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def opened(config: Config) -> Iterator[Bench]:
    """A bench with the roles of a run as they start. Collective."""
    with _scratch_folder() as folder:
        ckpt = replace(config.ckpt, save_path=folder, save_interval=0, resume=False, push_to_hub=None)
        config = replace(config, ckpt=ckpt, log=LogConfig(progress=False, num_sample_generations=0))
        with hosted(config) as (session, plan, host):
            run = assembly.assemble(config, session, plan, host)
            trainer = run.trainer
            trainer.save_interval, trainer.evaluator = 0, None
            try:
                yield Bench(trainer, run)
            finally:
                run.view.close()
                trainer.maker.close()


# Two runs.


@dataclass(frozen=True)
class Parting:
    """The first step in which two runs differ.

    Attributes:
        step: None if they are the same in all steps that both have.
        what: of the step, in the order of the computation: first weights, prompts, responses, ..., or the weights after it.
        same_steps: steps before it that both have.
    """

    step: int | None
    what: str
    same_steps: int


def first_difference(run: Path, other: Path) -> Parting:
    """Compare the journals of two runs; nothing is computed.

    Raises:
        UserError: they have no step in common, or a journal is damaged.
    """
    first, second = Journal(run), Journal(other)
    common = sorted(set(first.steps()) & set(second.steps()))
    if not common:
        raise UserError(f"the journals of {run} and {other} have no step in common")
    for count, step in enumerate(common):
        if what := _difference(first, second, step):
            return Parting(step, what, count)
    return Parting(None, "", len(common))


def _difference(first: Journal, second: Journal, step: int) -> str:
    one, two = first.info(step), second.info(step)
    if dict(one.before) != dict(two.before):
        return "weights before it"
    if (one.processes, one.replicas) != (two.processes, two.replicas):
        return "number of processes"
    for rank in range(one.processes):
        items, others = (journal.experience(step, rank)[0] for journal in (first, second))
        if len(items) != len(others):
            return "number of responses"
        for name in (field.name for field in fields(Experience)):
            pairs = ((getattr(a, name), getattr(b, name)) for a, b in zip(items, others, strict=True))
            if not all(_same(a, b) for a, b in pairs):
                return name.replace("_", " ")
    if one.kl_coef != two.kl_coef:
        return "weight of the divergence"
    return "" if dict(one.after or {}) == dict(two.after or {}) else "weights after it"


def _same(first: Tensor | None, second: Tensor | None) -> bool:
    if first is None or second is None:
        return first is second
    return first.dtype == second.dtype and torch.equal(first, second)
