"""The command line: `rlvr train`, `rlvr template`, `rlvr rewards`, `rlvr score`, `rlvr audit`, and what the scripts call."""

import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

from rlvr.errors import UserError

T = TypeVar("T")

USER_ERROR = 2
USAGE = """usage: rlvr COMMAND [flags]

  rlvr train            train by PPO under rule rewards (rlvr train --help lists every flag)
  rlvr sft              fine-tune on prompts and responses
  rlvr reward-model     train a reward model on pairs of responses
  rlvr llm --train      all of these with the flags of `aitraining llm`
  rlvr template check   prove that a conversation template fits a tokenizer
  rlvr template list    the templates that are shipped
  rlvr rewards [NAME]   the registered reward functions, or all about one of them
  rlvr score            score a file of responses (JSONL, CSV, Parquet)
  rlvr audit            try to fool a reward function, and check a data set's right answers
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the command `rlvr`. Returns the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    command = words[0] if words else "--help"
    if command in ("-h", "--help"):
        print(USAGE, end="")
        return 0
    commands: dict[str, Callable[[list[str]], None]] = {
        "train": train_command,
        "sft": sft_command,
        "reward-model": reward_model_command,
        "llm": llm_command,
        "template": template_command,
        "rewards": rewards_command,
        "score": score_command,
        "audit": audit_command,
    }
    if command not in commands:
        print(f"error: unknown command {command!r}; there are: {', '.join(commands)}", file=sys.stderr)
        return USER_ERROR
    return run(commands[command], words[1:])


def run(command: Callable[[list[str]], None], argv: list[str]) -> int:
    """Run a command; a user's mistake becomes one message and status 2, an interruption says how to go on."""
    try:
        command(argv)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return USER_ERROR
    except KeyboardInterrupt:
        print("stopped at once; go on from the last checkpoint with --resume", file=sys.stderr)
        return 130
    return 0


def train_command(argv: list[str]) -> None:
    """`rlvr train`: parse the flags, then train."""
    from rlvr.config import parse

    config = parse(argv)
    from rlvr.api import train

    _until_stopped(train, config)


def sft_command(argv: list[str]) -> None:
    """`rlvr sft`: parse the flags, then fine-tune."""
    from rlvr.config import parse_sft

    config = parse_sft(argv)
    from rlvr.pipeline import train_sft

    _until_stopped(train_sft, config)


def reward_model_command(argv: list[str]) -> None:
    """`rlvr reward-model`: parse the flags, then train a reward model."""
    from rlvr.config import parse_reward_training

    config = parse_reward_training(argv)
    from rlvr.pipeline import train_reward_model

    _until_stopped(train_reward_model, config)


def llm_command(argv: list[str]) -> None:
    """`rlvr llm`: parse the flags, then train as `--trainer` says."""
    from rlvr.tools.llm import parse_params

    params = parse_params(argv)
    from rlvr.compat.project import Project

    _until_stopped(Project.create, Project(params=params, backend="local", process=True))


def _until_stopped(train: Callable[[T], object], config: T) -> None:
    """Train; after a request to stop, say how to go on and exit with the signal's status."""
    from rlvr.trainer.interrupt import Interrupted

    try:
        train(config)
    except Interrupted as stop:
        if stop.checkpoint:
            print(f"{stop}; saved {stop.checkpoint}. Go on with the same command and --resume.", file=sys.stderr)
        else:
            print(f"{stop}; nothing was saved", file=sys.stderr)
        raise SystemExit(128 + stop.signum) from None


def template_command(argv: list[str]) -> None:
    """`rlvr template list` and `rlvr template check NAME --tokenizer T`."""
    import argparse

    from rlvr.conversation import template_names

    parser = argparse.ArgumentParser(prog="rlvr template")
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("list", help="names of the shipped templates")
    check = actions.add_parser("check", help="prove that a template fits a tokenizer")
    check.add_argument("name", help="shipped name or path of a JSON file")
    check.add_argument("--tokenizer", default="tiny", help="model whose tokenizer to check against (default: tiny)")
    arguments = parser.parse_args(argv)
    if arguments.action == "list":
        print("\n".join(template_names()))
        return
    _check_template(arguments.name, arguments.tokenizer)


def _check_template(name: str, tokenizer_name: str) -> None:
    from rlvr.conversation import Conversation, ConversationTemplate
    from rlvr.models.loading import load_tokenizer
    from rlvr.template_check import check_template

    checks = check_template(Conversation(ConversationTemplate.load(name), load_tokenizer(tokenizer_name)))
    for check in checks:
        print(f"{'ok  ' if check.ok else 'FAIL'}  {check.name}: {check.detail}")
    if not all(check.ok for check in checks):
        raise UserError(f"template {name!r} does not fit the tokenizer of {tokenizer_name!r}")


def rewards_command(argv: list[str]) -> None:
    """`rlvr rewards`: the registered reward functions with their first line of documentation, or all of one's."""
    import argparse
    import inspect

    from rewards import load_plugins, names, resolve

    parser = argparse.ArgumentParser(prog="rlvr rewards", description="List the registered reward functions.")
    parser.add_argument("name", nargs="?", help="print this one's arguments and documentation")
    parser.add_argument(
        "--reward_plugins", nargs="+", default=[], metavar="FILE", help="Python files or modules to import"
    )
    arguments = parser.parse_args(argv)
    load_plugins(arguments.reward_plugins)
    if arguments.name:
        function = resolve(arguments.name).function
        print(f"{arguments.name}{inspect.signature(function)}\n\n{inspect.getdoc(function) or 'no documentation'}")
        return
    for name in names():
        lines = (inspect.getdoc(resolve(name).function) or "").splitlines()
        print(f"{name:28} {lines[0] if lines else ''}")


def score_command(argv: list[str]) -> None:
    """`rlvr score`: see `rlvr.tools.score`."""
    from rlvr.tools.score import score_command

    score_command(argv)


def audit_command(argv: list[str]) -> None:
    """`rlvr audit`: see `rlvr.tools.audit`."""
    from rlvr.tools.audit import audit_command

    audit_command(argv)


if __name__ == "__main__":
    sys.exit(main())
