"""`rlvr llm --train --trainer {ppo,grpo,sft,reward} ...`: the command line of `aitraining llm`, flag by flag.

The flags are `LLMTrainingParams`' fields with hyphens or underscores, in its groups (`rlvr/compat/aitraining.py`).
"""

import re
from dataclasses import fields, make_dataclass
from functools import cache

import tyro

from rlvr.cli.train import until_stopped
from rlvr.compat.aitraining import GROUPS, REQUIRED, LLMTrainingParams
from rlvr.config.flags import refuse_unknown
from rlvr.config.help import About, asks_for_help, help_text
from rlvr.errors import UserError

USAGE = "rlvr llm --train --trainer {ppo,grpo,sft,reward} --model NAME --data-path DATA --project-name FOLDER"
DESCRIPTION = f"""Train a language model: supervised, as a reward model, or by reinforcement learning.

{USAGE}

First a reward model, then PPO on it:
  rlvr llm --train --trainer reward --model tiny --data-path pairs.jsonl --project-name rm \\
    --prompt-text-column prompt --text-column chosen --rejected-text-column rejected
  rlvr llm --train --trainer ppo --model tiny --data-path prompts.jsonl --project-name ppo \\
    --rl-reward-model-path rm"""

GENERAL = {
    "--train": "train; without it nothing is done",
    "--help [NAME ...]": "this overview; topics or flags in full",
    "--help-all": "every topic in full",
}
ABOUT = About("rlvr llm", DESCRIPTION, GENERAL, dashes=True)


def llm_command(argv: list[str]) -> None:
    """`rlvr llm`: parse the flags, then train as `--trainer` says."""
    params = parse_params(argv)
    from rlvr.compat.aitraining_project import Project

    until_stopped(Project.create, Project(params=params, backend="local", process=True))


def parse_params(argv: list[str]) -> LLMTrainingParams:
    """The parameters as the flags give them. Exits with status 2 and one message for a value of the wrong type.

    Raises:
        UserError: an unknown or missing flag.
    """
    kind = options()
    if asks_for_help(argv):
        print(help_text(kind, argv, ABOUT), end="")
        raise SystemExit(0)
    words = [word for word in argv if word != "--train"]
    refuse_unknown(words, kind, ABOUT)
    _check_given(argv)
    parsed = tyro.cli(tyro.conf.OmitArgPrefixes[kind], args=words, prog=ABOUT.prog)  # type: ignore[valid-type, misc]
    values = {f.name: getattr(getattr(parsed, _name(group)), f.name) for group in GROUPS for f in fields(group)}
    return LLMTrainingParams(**values)


def _check_given(argv: list[str]) -> None:
    given = {word.removeprefix("--").partition("=")[0].replace("-", "_") for word in argv if word.startswith("--")}
    if "train" not in given:
        raise UserError(f"rlvr llm trains, and wants to be told so: {USAGE}")
    if missing := [f"--{name.replace('_', '-')}" for name in REQUIRED if name not in given]:
        raise UserError(f"rlvr llm: {', '.join(missing)} must be given: {USAGE}")


@cache
def options() -> type:
    """A tree with one section for each group of parameters."""
    return make_dataclass("Options", [(_name(group), group) for group in GROUPS], kw_only=True)


def _name(group: type) -> str:
    """CorePPO -> core_ppo."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", group.__name__).lower()
