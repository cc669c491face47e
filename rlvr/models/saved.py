"""What lies in a run's folder, and where: the trained model, and who writes there. Free of torch, for commands that train nothing."""

from pathlib import Path

HOLDER = ".holder.json"
"""Names the process that writes to a run's folder, as long as it does (`rlvr.run.folder.RunLock`)."""
ROLES = ("actor", "reward_model")
PARTS = ("modeling", "adapter")


def trained_model(folder: str | Path) -> Path | None:
    """The trained model in a run's folder (or in that of a role): the actor before a reward model, the whole model before
    an adapter; None where there is none."""
    folder = Path(folder)
    places = [folder, *(folder / role for role in ROLES)]
    return next((place / part for place in places for part in PARTS if (place / part).is_dir()), None)


def trained_actor(folder: str | Path) -> Path | None:
    """As `trained_model`, but for language models only."""
    found = trained_model(folder)
    return None if found is None or found.parent.name == "reward_model" else found
