"""What a PPO run saves and how it is put back (the layout stands in `rlvr.checkpoint`)."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr import checkpoint as files
from rlvr.boost.phases import board
from rlvr.checkpoint_check import verify
from rlvr.errors import UserError
from rlvr.rank_states import gather_states, read_state, write_states
from rlvr.trainer.role_files import load_role, write_role

if TYPE_CHECKING:
    from rlvr.trainer.ppo_loop import PPOLoop

FORMAT = 2


class PPOCheckpointer:
    """Saves and loads everything that the next step of a trainer depends on.

    Args:
        trainer: whose state it is.
        run_state: what run this is (plain JSON); a checkpoint with another is refused.
        keep: checkpoints that stay.
        merge: whether `export` writes whole models where only adapters learn.
    """

    def __init__(self, trainer: "PPOLoop", run_state: dict[str, Any], keep: int, merge: bool = True) -> None:
        self.trainer, self.run_state, self.keep, self.merge = trainer, run_state, keep, merge
        self._loaders: dict[str, Any] | None = None

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles that learn."""
        return ("actor", "critic") if self.trainer.has_critic else ("actor",)

    def save(self) -> Path:
        """Write a checkpoint of this moment and delete old ones. Collective. Returns its folder."""
        t = self.trainer
        assert t.save_dir is not None
        board.enter("checkpoint")
        target = t.save_dir / files.FOLDER / files.checkpoint_name(t.progress.episode, t.progress.safe_point)
        states = self._training_states()  # collective, so before any can fail
        own = gather_states(self._own_state())
        with self._exact() as modules, files.atomic_folder(target, t.is_main) as draft:
            if t.is_main:
                for name, module in modules.items():
                    self._save_role(name, module, draft / name, states[name])
                files.save_json(self._shared_state(), draft / "state.json")
                write_states(own, draft)
        if t.is_main:
            files.prune(t.save_dir, self.keep, target)
        return target

    def export(self) -> None:
        """Write `actor/modeling` and, with a critic, `critic/modeling` into the run's folder; `adapter` beside them (or
        in place of them) where adapters learn. Collective."""
        t = self.trainer
        assert t.save_dir is not None
        board.enter("checkpoint")
        with self._exact() as modules:
            for name, module in modules.items():
                files.export(t.save_dir / name, partial(self._write, name, module, whole=self.merge), t.is_main)

    @contextmanager
    def _exact(self) -> Iterator[dict[str, Any]]:
        """Within the block: the roles by name, whole in rank 0. Collective to enter."""
        with ExitStack() as stack:
            yield {name: stack.enter_context(getattr(self.trainer, name).exact()) for name in self.roles}

    def _training_states(self) -> dict[str, Any]:
        """What `Boosted.training_state` gives of each role. Collective, so before any rank can fail."""
        return {name: getattr(self.trainer, name).training_state() for name in self.roles}

    def _save_role(self, name: str, module: Any, folder: Path, state: Any) -> None:
        """Write one role's weights and training state. In the main process only."""
        self._write(name, module, folder, whole=False)
        files.save_tensors(state, folder / "training.pt")

    def _load_role(self, name: str, folder: Path) -> None:
        """Weights, optimizer and schedule of one role. Collective."""
        load_role(getattr(self.trainer, name), folder)

    def _write(self, name: str, module: Any, folder: Path, whole: bool) -> None:
        write_role(module, folder, whole, self.trainer.tokenizer if name == "actor" else None)

    def _shared_state(self) -> dict[str, Any]:
        t = self.trainer
        return {
            "format": FORMAT,
            "run": self.run_state,
            "world_size": t.world_size,
            "replicas": t.replicas,
            "progress": t.progress.state_dict(),
            "unfinished": t.unfinished,
            "kl_coef": t.kl_coef,
            "reward_model": _state_of(t.maker.reward_model),
            "loaders": {
                "prompts": _state_of(t.prompt_loader),
                "pretrain": _state_of(t.pretrain_loader),
            },
        }

    def _own_state(self) -> dict[str, Any]:
        t = self.trainer
        return {
            "random": files.random_state(),
            "buffer": t.buffer.state_dict(),
            "meter": t.meter.state_dict(),
            "seconds": dict(t.seconds),
        }

    def load(self, path: Path) -> None:
        """Put back what `save` wrote.

        Raises:
            UserError: the checkpoint is damaged, of another format, or of another run.
        """
        t = self.trainer
        verify(path)
        state = files.load_json(path / "state.json")
        self._check(path, state)
        for name in self.roles:
            self._load_role(name, path / name)
        t.progress.load_state_dict(state["progress"])
        t.unfinished = state["unfinished"]
        t.kl_coef = state["kl_coef"]
        if state.get("reward_model") and hasattr(t.maker.reward_model, "load_state_dict"):
            t.maker.reward_model.load_state_dict(state["reward_model"])
        self._loaders = state["loaders"]
        if self._divided_alike(state):
            self._load_own_state(read_state(path, t.rank))

    def _load_own_state(self, own: dict[str, Any]) -> None:
        t = self.trainer
        files.set_random_state(own["random"])
        t.buffer.load_state_dict(own["buffer"])
        t.meter.load_state_dict(own["meter"])
        t.seconds = dict(own["seconds"])

    def restore_loaders(self) -> None:
        """Hand the loaded positions to the loaders that `fit` got."""
        if self._loaders is None:
            return
        for loader, name in ((self.trainer.prompt_loader, "prompts"), (self.trainer.pretrain_loader, "pretrain")):
            if self._loaders[name] is not None and hasattr(loader, "load_state_dict"):
                loader.load_state_dict(self._loaders[name])
        self._loaders = None

    def _check(self, path: Path, state: dict[str, Any]) -> None:
        check_run(path, state, self.run_state)
        progress = state["progress"]
        mid_episode = progress["collect_step"] or progress["learning"]
        if mid_episode and not self._divided_alike(state):
            t = self.trainer
            raise UserError(
                f"{path} was saved in the middle of an episode by {state['world_size']} processes with {state['replicas']} copies of "
                f"the model; resume it with as many (now: {t.world_size} with {t.replicas}), or delete it to go on from the "
                "checkpoint before"
            )

    def _divided_alike(self, state: dict[str, Any]) -> bool:
        """Whether each process's own part of the state is this process's."""
        return state["world_size"] == self.trainer.world_size and state["replicas"] == self.trainer.replicas


def check_run(path: Path, state: dict[str, Any], run_state: dict[str, Any]) -> None:
    """Raise `UserError` if a checkpoint's state is of another format, or of a run with other settings."""
    if state["format"] != FORMAT:
        raise UserError(f"{path} has format {state['format']}; this version of rlvr reads format {FORMAT}")
    different = _differences(state["run"], run_state)
    if different:
        lines = "; ".join(f"{name}: saved {old!r}, given {new!r}" for name, old, new in different)
        raise UserError(
            f"{path} belongs to a run with other settings: {lines}. Resume with the saved ones "
            f"(--config {path.parents[1] / 'config.yaml'}), or start anew with another --save_path"
        )


def _state_of(part: Any) -> Any:
    return part.state_dict() if hasattr(part, "state_dict") else None


def _differences(old: Any, new: Any, place: str = "") -> list[tuple[str, Any, Any]]:
    if isinstance(old, dict) and isinstance(new, dict):
        found = []
        for key in sorted(old.keys() | new.keys()):
            found += _differences(old.get(key), new.get(key), f"{place}.{key}" if place else key)
        return found
    return [] if old == new else [(place, old, new)]
