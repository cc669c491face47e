"""What a supervised run saves and how it is put back (the layout stands in `rlvr.checkpoint`; there is one role)."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr import checkpoint as files
from rlvr.boost.phases import board
from rlvr.checkpoint_check import verify
from rlvr.rank_states import gather_states, read_state, write_states
from rlvr.trainer.role_files import load_role, write_role
from rlvr.trainer.weights import FORMAT, check_run

if TYPE_CHECKING:
    from rlvr.trainer.supervised import SupervisedTrainer


@dataclass(frozen=True)
class RoleFiles:
    """How a role is saved.

    Attributes:
        name: of its folder: `actor`, `reward_model`.
        tokenizer: saved with the model.
        merge: whether the result is a whole model where only adapters learn.
    """

    name: str
    tokenizer: Any
    merge: bool = True


class SupervisedCheckpointer:
    """Saves and loads everything that the next step of a trainer depends on.

    Args:
        trainer: whose state it is.
        role: its weights.
        run_state: what run this is (plain JSON); a checkpoint with another is refused.
        keep: checkpoints that stay.
    """

    def __init__(
        self, trainer: "SupervisedTrainer[Any]", role: RoleFiles, run_state: dict[str, Any], keep: int
    ) -> None:
        self.trainer, self.role, self.run_state, self.keep = trainer, role, run_state, keep

    @property
    def writes_whole(self) -> bool:
        """Whether the result is a whole model."""
        return self.role.merge or not self.trainer.role.unwrapped.has_adapter

    def save(self) -> Path:
        """Write a checkpoint of this moment and delete old ones. Collective. Returns its folder."""
        t = self.trainer
        assert t.save_dir is not None
        board.enter("checkpoint")
        target = t.save_dir / files.FOLDER / files.checkpoint_name(t.progress.step)
        training = t.role.training_state()  # collective, so before any can fail
        own = gather_states({"random": files.random_state(), "meter": t.meter.state_dict()})
        with t.role.exact() as role, files.atomic_folder(target, t.is_main) as draft:
            if t.is_main:
                write_role(role, draft / self.role.name, False, self.role.tokenizer)
                files.save_tensors(training, draft / self.role.name / "training.pt")
                state = {"format": FORMAT, "run": self.run_state, "world_size": t.world_size, "loop": t.state_dict()}
                files.save_json(state, draft / "state.json")
                write_states(own, draft)
        if t.is_main:
            files.prune(t.save_dir, self.keep, target)
        return target

    def export(self) -> None:
        """Write `<role>/modeling` into the run's folder; where adapters learn, `<role>/adapter` beside it (or in its
        place). Collective."""
        t = self.trainer
        assert t.save_dir is not None
        board.enter("checkpoint")
        with t.role.exact() as role:
            files.export(
                t.save_dir / self.role.name,
                lambda folder: write_role(role, folder, self.role.merge, self.role.tokenizer),
                t.is_main,
            )

    def load(self, path: Path) -> None:
        """Put back what `save` wrote.

        With another number of processes the metrics that were not yet written are lost; nothing else is.

        Raises:
            UserError: the checkpoint is damaged, of another format, or of another run.
        """
        t = self.trainer
        verify(path)
        state = files.load_json(path / "state.json")
        check_run(path, state, self.run_state)
        load_role(t.role, path / self.role.name)
        t.load_state_dict(state["loop"])
        if state["world_size"] == t.world_size:
            own = read_state(path, t.rank)
            files.set_random_state(own["random"])
            t.meter.load_state_dict(own["meter"])
