"""A role's folder, in a checkpoint and in a run's result: `modeling` with the whole model, `adapter` where only adapters learn."""

from pathlib import Path
from typing import Any

from rlvr import checkpoint as files
from rlvr.boost.boosted import Boosted
from rlvr.errors import UserError
from rlvr.models.role import Role


def write_role(role: Role, folder: Path, whole: bool, tokenizer: Any = None) -> None:
    """Write a role's adapter, if it has one, and the whole model, if that is asked for or there is no adapter. The tokenizer
    goes with the latter."""
    if role.has_adapter:
        role.save_adapter(folder / "adapter")
    if whole or not role.has_adapter:
        role.save_pretrained(folder / "modeling")
        if tokenizer is not None:
            tokenizer.save_pretrained(folder / "modeling")


def load_role(role: Boosted, folder: Path) -> None:
    """Weights of a saved model (or of its adapter) into a boosted role, then optimizer, master weights and schedule.

    Raises:
        UserError: they are another model's.
    """
    if role.unwrapped.has_adapter:
        role.change(lambda module: module.load_adapter(folder / "adapter"))
    else:
        _load_whole(role, folder / "modeling")
    role.load_training_state(files.load_tensors(folder / "training.pt"))


def _load_whole(role: Boosted, folder: Path) -> None:
    weights = role.unwrapped.saved_state(folder)
    own = role.shapes()
    wrong = [n for n, shape in own.items() if n not in weights or weights[n].shape != shape]
    if wrong or len(weights) != len(own):
        raise UserError(f"{folder} holds another model: {', '.join(wrong[:3]) or 'it has more weights'}")
    role.load_weights(weights)
