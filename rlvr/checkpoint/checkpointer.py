"""`Checkpointer`: saves and restores the state of a run, and exports its result.

The trainers call it at safe points, between optimizer steps. It knows three parts of a trainer: the roles (models with their
optimizers), a state that is the same in every process (plain JSON), and a state of each process's own (tensors). Trainers give
the latter two by `state_dict` and `own_state_dict`, so PPO, supervised training and a run on Ray share this file. How folders
are laid out and written is in `rlvr.checkpoint.storage`.

The initial model is in no checkpoint, on purpose: it is loaded anew from where the run started, so no resume can overwrite it. Only
a reference that follows the actor is, as it is nowhere else.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

import torch.distributed as dist
from torch import Tensor

from rlvr.boost.boosted import Boosted
from rlvr.boost.consistency import weights_digest
from rlvr.boost.frozen import Frozen
from rlvr.boost.health import enter_phase
from rlvr.boost.process import gather_json
from rlvr.checkpoint import storage
from rlvr.config import Config, RewardTrainingConfig, SFTConfig
from rlvr.config.catalog import catalog
from rlvr.config.fields import GROWS
from rlvr.config.files import read_json
from rlvr.core.masked import not_finite
from rlvr.errors import UserError
from rlvr.models.role import Role
from rlvr.models.saved import trained_model

T = TypeVar("T")

FORMAT = 4
"""Format of checkpoints. A checkpoint of another is refused."""

WriteRole = Callable[[Path], None]
"""Writes a role into a folder; called in the main process only."""


class SavedPart(Protocol):
    """A model as the checkpointer sees it.

    Saving has two halves: entering the context gathers sharded weights and is collective; the function that it gives writes
    files, in the main process alone.
    """

    def saving(self) -> AbstractContextManager[WriteRole]:
        """Gives a function that writes all that `load` restores. Collective to enter.

        Raises:
            NotFinite: some of it is not finite. On Ray it comes from the function.
        """
        ...

    def load(self, folder: Path) -> None:
        """Restore what `saving` wrote. Collective."""
        ...


class SavedRole(SavedPart, Protocol):
    """A role that learns: a `BoostedRole` in this process, or a group of Ray actors. What it saves is weights, optimizer, master
    weights and schedule."""

    def exporting(self, merge: bool) -> AbstractContextManager[WriteRole]:
        """Gives a function that writes the trained model; with `merge` a whole one, even if only adapters learn. Collective to
        enter."""
        ...

    def digest(self) -> str:
        """Changes when a bit of the weights does, as precise as they are. Collective; the same in all processes."""
        ...


@dataclass(frozen=True)
class FrozenPart:
    """A model in this process that only infers, as a `SavedPart`."""

    model: Frozen

    @contextmanager
    def saving(self) -> Iterator[WriteRole]:
        weights = self.model.weights()
        check_finite(weights.items())
        yield lambda folder: storage.save_tensors(weights, folder / storage.WEIGHTS)

    def load(self, folder: Path) -> None:
        """Restore the weights."""
        self.model.follow(storage.load_tensors(folder / storage.WEIGHTS))


@dataclass(frozen=True)
class BoostedRole:
    """A role in this process.

    Attributes:
        role: model and optimizer.
        tokenizer: saved beside the whole model; None = none is.
    """

    role: Boosted
    tokenizer: Any = None

    @contextmanager
    def saving(self) -> Iterator[WriteRole]:
        # Collective, so it comes before what only the main process does: if that failed first, the others would wait for it.
        training = self.role.training_state()
        with self.role.full_precision_weights() as module:
            check_finite([*module.state_dict().items(), *storage.tensors_in(training)])

            def write(folder: Path) -> None:
                write_role(module, folder, merge=False, tokenizer=self.tokenizer)
                storage.save_tensors(training, folder / storage.TRAINING)

            yield write

    @contextmanager
    def exporting(self, merge: bool) -> Iterator[WriteRole]:
        with self.role.full_precision_weights() as module:
            check_finite(module.state_dict().items())
            yield lambda folder: write_role(module, folder, merge=merge, tokenizer=self.tokenizer)

    def load(self, folder: Path) -> None:
        """Restore the weights (or those of the adapter), then optimizer, master weights and schedule. Collective.

        Raises:
            UserError: the weights are another model's.
        """
        role = self.role
        if role.unwrapped.has_adapter:
            role.change(lambda module: module.load_adapter(folder / "adapter"))
        else:
            _load_whole(role, folder / "modeling")
        # After the weights, as `load_training_state` asks for.
        role.load_training_state(storage.load_tensors(folder / storage.TRAINING))

    def digest(self) -> str:
        with self.role.full_precision_weights() as module:
            return _in_main(lambda: weights_digest(module.state_dict().items(), whole=True))


def _in_main(compute: Callable[[], T]) -> T:
    """What rank 0 computes (plain JSON), in all processes. Collective."""
    is_main = not dist.is_initialized() or dist.get_rank() == 0
    return gather_json(compute() if is_main else None)[0]


class NotFinite(UserError):
    """A role whose weights are not finite numbers: it is not written."""


def check_finite(tensors: Iterable[tuple[str, Tensor]]) -> None:
    """Look at what the main process is about to write. Collective.

    Raises:
        NotFinite: in every process, if it holds a number that is not finite.
    """
    name = _in_main(lambda: not_finite(tensors))
    if name is not None:
        raise NotFinite(f"the model is broken: {name} holds numbers that are not finite")


def write_role(module: Role, folder: Path, *, merge: bool, tokenizer: Any = None) -> None:
    """Write a role into a folder: `adapter` if it has one; `modeling`, the whole model and its tokenizer, if `merge` asks for it
    or there is no adapter."""
    if module.has_adapter:
        module.save_adapter(folder / "adapter")
    if merge or not module.has_adapter:
        module.save_pretrained(folder / "modeling")
        if tokenizer is not None:
            tokenizer.save_pretrained(folder / "modeling")


def _load_whole(role: Boosted, folder: Path) -> None:
    """Load whole weights into a role, after a check that names and shapes are the same."""
    weights = role.unwrapped.saved_state(folder)
    own = role.shapes()
    wrong = [n for n, shape in own.items() if n not in weights or weights[n].shape != shape]
    if wrong or len(weights) != len(own):
        raise UserError(f"{folder} holds another model: {', '.join(wrong[:3]) or 'it has more weights'}")
    role.load_weights(weights)


@dataclass(frozen=True)
class Loaded:
    """The state in a checkpoint besides its roles.

    Attributes:
        path: of the checkpoint.
        state: the trainer's `state_dict`.
        own: this process's `own_state_dict`; None if the run now has another number of processes or of copies of the model.
        world_size, replicas: processes, and copies of the model, when it was saved.
        changed: names of the run's code that has changed since.
    """

    path: Path
    state: dict[str, Any]
    own: dict[str, Any] | None
    world_size: int
    replicas: int
    changed: tuple[str, ...] = ()


class Checkpointer:
    """Saves and loads everything that the next step of a run depends on.

    Args:
        folder: the run's; None = nothing can be saved.
        roles: the roles that learn, by the names of their folders.
        run_state: identifies the run (plain JSON); a checkpoint with another is refused. Digests of the user's code under `code`
            may differ; `load` says which do.
        others: models that are saved beside them, and are no result.
        replicas: copies of the model, among which samples are divided.
        keep: number of checkpoints that stay.
        merge: export whole models even if only adapters learn.
        is_main: true if this process writes; None = rank 0 does.
    """

    def __init__(
        self,
        folder: Path | None,
        roles: Mapping[str, SavedRole],
        run_state: Mapping[str, Any],
        *,
        others: Mapping[str, SavedPart] = MappingProxyType({}),
        replicas: int = 1,
        keep: int = 2,
        merge: bool = True,
        is_main: bool | None = None,
    ) -> None:
        self.folder, self.roles, self.run_state = folder, roles, dict(run_state)
        self.parts: Mapping[str, SavedPart] = {**roles, **others}
        self.replicas, self.keep, self.merge = replicas, keep, merge
        started = dist.is_initialized()
        self.rank, self.world_size = (dist.get_rank(), dist.get_world_size()) if started else (0, 1)
        self.is_main = self.rank == 0 if is_main is None else is_main

    def save(self, name: str, state: Mapping[str, Any], own_state: Mapping[str, Any]) -> Path:
        """Write a checkpoint and delete old ones. Collective. Returns its folder.

        Args:
            name: of its folder (`storage.checkpoint_name`).
            state: plain JSON, the same in every process.
            own_state: this process's, of tensors and plain values.
        """
        assert self.folder is not None
        enter_phase("checkpoint")
        target = self.folder / storage.FOLDER / name
        # Collectives first. Then only the main process writes, where the disk may fail, and `atomic_folder` tells the others.
        own = storage.gather_states({"random": storage.random_state(), **own_state})
        with (
            self._naming_the_last(),
            _opened(part.saving() for part in self.parts.values()) as writers,
            storage.atomic_folder(target, self.is_main) as draft,
        ):
            if self.is_main:
                for part, write in zip(self.parts, writers, strict=True):
                    write(draft / part)
                about = {"format": FORMAT, "run": self.run_state, **self._divided(), "state": state}
                storage.save_json(about, draft / "state.json")
                storage.write_states(own, draft)
        if self.is_main:  # only now, when the new one is whole
            storage.prune(self.folder, self.keep, target)
        return target

    def export(self) -> None:
        """Write the result, `ROLE/modeling`, into the run's folder; with adapters `ROLE/adapter` beside it, or instead of it if
        whole models are not asked for. Collective."""
        assert self.folder is not None
        enter_phase("checkpoint")
        opened = _opened(role.exporting(self.merge) for role in self.roles.values())
        with self._naming_the_last(), opened as writers:
            for role, write in zip(self.roles, writers, strict=True):
                storage.export(self.folder / role, write, self.is_main)

    def load(self, path: Path) -> Loaded:
        """Restore the roles and this process's random state, and return the rest. Collective.

        Raises:
            UserError: the checkpoint is damaged, of another format, or of another run.
        """
        storage.verify(path)  # before anything is loaded: a damaged checkpoint leaves the run as it was
        about = read_json(path / "state.json")
        changed = check_run(path, about, self.run_state)
        for name, part in self.parts.items():
            part.load(path / name)
        # Divided otherwise, no process has a state to go on with: its random state and buffer were for another share of samples.
        own = None
        if all(about[key] == value for key, value in self._divided().items()):
            own = storage.read_state(path, self.rank)
            storage.set_random_state(own.pop("random"))
        return Loaded(path, about["state"], own, about["world_size"], about["replicas"], changed)

    def _divided(self) -> dict[str, int]:
        """The division of samples, to which the processes' own states belong."""
        return {"world_size": self.world_size, "replicas": self.replicas}

    @contextmanager
    def _naming_the_last(self) -> Iterator[None]:
        """Adds to what is said of a broken model which checkpoint is good."""
        try:
            yield
        except NotFinite as error:
            assert self.folder is not None
            last = storage.list_checkpoints(self.folder)[-1:]
            good = f"the last good checkpoint is {last[0]}" if last else "no checkpoint was saved before"
            raise UserError(
                f"{error}; nothing was written, and {good}. Start anew with a lower learning rate or --mixed_precision fp32"
            ) from None


@contextmanager
def _opened(contexts: Iterable[AbstractContextManager[WriteRole]]) -> Iterator[list[WriteRole]]:
    """All opened at once, so that one atomic folder can hold them all."""
    with ExitStack() as stack:
        yield [stack.enter_context(context) for context in contexts]


CODE = "code"
"""In a run's identity, digests of code by name: a run may go on with a reward function that was mended."""


def check_run(path: Path, about: dict[str, Any], run_state: dict[str, Any]) -> tuple[str, ...]:
    """The names of code that has changed since a checkpoint was saved, whose `state.json` is given.

    Raises:
        UserError: it is of another format, or of a run with other settings. Settings that may grow (`rlvr.config.fields.GROWS`) may be
            higher now.
    """
    if about["format"] != FORMAT:
        raise UserError(f"{path} has format {about['format']}; this version of rlvr reads format {FORMAT}")
    found = _differences(about["run"], run_state)
    of_code = [one for one in found if one[0].partition(".")[0] == CODE]
    changed = tuple(name.removeprefix(f"{CODE}.") for name, old, _ in of_code if old is not None)
    different = [one for one in found if one not in of_code and not _is_longer(*one)]
    if different:
        lines = "; ".join(f"{name}: saved {old!r}, given {new!r}" for name, old, new in different)
        folder = path.parents[1]
        raise UserError(
            f"{path} belongs to a run with other settings: {lines}. Resume with the saved ones (--config {folder / 'config.yaml'}; a "
            "run may become longer, not shorter), or start a new run from what it learned: --checkpoint_path "
            f"{trained_model(folder) or trained_model(path)} and another --save_path"
        )
    return changed


def _is_longer(name: str, old: Any, new: Any) -> bool:
    """True if a resumed run is only longer than it was to be."""
    return name in _growing() and isinstance(old, int) and isinstance(new, int) and new > old


@cache
def _growing() -> frozenset[str]:
    """Names in a run's identity (`rlvr.run.folder.run_state`) of settings that may grow."""
    flags = (
        flag
        for kind in (Config, SFTConfig, RewardTrainingConfig)
        for section in catalog(kind)
        for flag in section.flags
    )
    return frozenset(f"settings.{flag.section}.{flag.name}" for flag in flags if flag.on_resume is GROWS)


def _differences(old: Any, new: Any, place: str = "") -> list[tuple[str, Any, Any]]:
    """(name, old value, new value) of each entry of nested dictionaries that differs."""
    if isinstance(old, dict) and isinstance(new, dict):
        found = []
        for key in sorted(old.keys() | new.keys()):
            found += _differences(old.get(key), new.get(key), f"{place}.{key}" if place else key)
        return found
    return [] if old == new else [(place, old, new)]
