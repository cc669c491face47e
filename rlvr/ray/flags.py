"""The flags of ColossalAI's `train_prompts_on_ray.py`, with that script's defaults, as flags of `rlvr train`.

Most have the same names here. Two differ. The script's episodes hold `max_timesteps` steps of collecting, and it learns after every
`update_timesteps` of all of them, while an episode here learns once, at its end. And the script's `--model` names a family of models.
"""

from collections.abc import Sequence

from rlvr.errors import UserError

FAMILIES = {"gpt2": "gpt2", "bloom": "bigscience/bloom-560m", "opt": "facebook/opt-350m"}
"""The script's families of models, each with the model that it takes unless `--pretrain` names one."""
DEFAULTS = {
    "experience_batch_size": "8",
    "train_batch_size": "8",
    "num_update_steps": "1",
    "strategy": "ddp",
    "save_path": "actor_checkpoint_prompts.pt",  # a folder here
}


def from_reference(argv: Sequence[str]) -> tuple[list[str], str | None]:
    """(flags of `rlvr train`, the family that the model must be of) from flags of the script and of `rlvr train`.

    Raises:
        UserError: so few steps that it would never learn.
    """
    words = list(argv)
    family = _take(words, "model")
    if family is not None and family not in FAMILIES:
        words += ["--pretrain", family]
        family = None
    known = {word.lstrip("-").replace("-", "_").partition("=")[0] for word in words if word.startswith("--")}
    flags = ["--ray"]
    if "pretrain" not in known:
        flags += ["--pretrain", FAMILIES[family or "gpt2"]]
    for name, value in DEFAULTS.items():
        if name not in known and not (name == "strategy" and "plugin" in known):
            flags += [f"--{name}", value]
    episodes, steps = (_number(words, name, 10) for name in ("num_episodes", "max_timesteps"))
    update = _number(words, "update_timesteps", 10)
    if episodes * steps < update:
        raise UserError(
            f"--update_timesteps {update} is more than the {episodes} x {steps} steps of --num_episodes and --max_timesteps, so nothing would "
            "be learned: give less"
        )
    # Steps after the last update are never learned from in the script, and not made here.
    counts = ["--num_episodes", str(episodes * steps // update), "--num_collect_steps", str(update)]
    return [*flags, *counts, *words], family


def _take(words: list[str], name: str) -> str | None:
    """Take a flag with its value out of the words; the last one counts."""
    value = None
    index = 0
    while index < len(words):
        flag, equals, after = words[index].partition("=")
        if not flag.startswith("--") or flag[2:].replace("-", "_") != name:
            index += 1
            continue
        if not equals and index + 1 == len(words):
            raise UserError(f"--{name} needs a value")
        value = after if equals else words[index + 1]
        del words[index : index + (1 if equals else 2)]
    return value


def _number(words: list[str], name: str, default: int) -> int:
    text = _take(words, name)
    if text is not None and not text.lstrip("-").isdigit():
        raise UserError(f"--{name} {text}: must be a whole number")
    number = default if text is None else int(text)
    if number < 1:
        raise UserError(f"--{name} {number}: must be at least 1")
    return number


def check_family(name: str, family: str | None, model_type: str) -> None:
    """Raise `UserError` unless the model belongs to the family that `--model` named."""
    if family is not None and model_type != family:
        raise UserError(
            f"--model {family}: --pretrain {name} is a {model_type} model; leave --model out, or name the right one "
            f"({', '.join(FAMILIES)})"
        )
