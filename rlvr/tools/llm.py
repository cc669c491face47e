"""`rlvr llm --train --trainer {ppo,grpo,sft,reward} ...`: the command line of `aitraining llm`, flag by flag.

The flags are `LLMTrainingParams`' fields with hyphens or underscores, in its groups.
"""

import re
from dataclasses import fields, make_dataclass
from typing import Any

import tyro

from rlvr.compat.llm import GROUPS, REQUIRED, LLMTrainingParams
from rlvr.errors import UserError

USAGE = "rlvr llm --train --trainer {ppo,grpo,sft,reward} --model MODEL --data-path DATA --project-name FOLDER [flags]"
DESCRIPTION = f"""Train a language model: supervised, as a reward model, or by reinforcement learning.

{USAGE}

First a reward model, then PPO on it:
  rlvr llm --train --trainer reward --model tiny --data-path pairs.jsonl --project-name rm \\
    --prompt-text-column prompt --text-column chosen --rejected-text-column rejected
  rlvr llm --train --trainer ppo --model tiny --data-path prompts.jsonl --project-name ppo --rl-reward-model-path rm
"""


def parse_params(argv: list[str]) -> LLMTrainingParams:
    """The parameters that flags say. Exits with status 2 and one message for an unknown flag, as argparse does."""
    asks_help = any(word in ("-h", "--help") for word in argv)
    if not asks_help:
        _check_given(argv)
    parsed = tyro.cli(
        _options(),
        args=[word for word in argv if word != "--train"],
        prog="rlvr llm",
        description=DESCRIPTION,
    )
    values = {f.name: getattr(getattr(parsed, _name(group)), f.name) for group in GROUPS for f in fields(group)}
    return LLMTrainingParams(**values)


def _check_given(argv: list[str]) -> None:
    given = {word.removeprefix("--").partition("=")[0].replace("-", "_") for word in argv if word.startswith("--")}
    if "train" not in given:
        raise UserError(f"rlvr llm trains, and wants to be told so: {USAGE}")
    if missing := [f"--{name.replace('_', '-')}" for name in REQUIRED if name not in given]:
        raise UserError(f"rlvr llm: {', '.join(missing)} must be given: {USAGE}")


def _options() -> Any:
    """A dataclass with one field for each group of parameters: tyro shows each as a group of its own."""
    options: Any = make_dataclass("Options", [(_name(group), group) for group in GROUPS], kw_only=True)
    return tyro.conf.OmitArgPrefixes[options]  # type: ignore[misc]


def _name(group: type) -> str:
    """CorePPO -> core_ppo."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", group.__name__).lower()
