"""The command line: `rlvr train`, `rlvr template`, `rlvr rewards`, and the functions behind the scripts."""

import sys
from collections.abc import Callable, Sequence

from rlvr.errors import UserError

USER_ERROR = 2
USAGE = """usage: rlvr COMMAND [flags]

  rlvr train            train by PPO under rule rewards (rlvr train --help lists every flag)
  rlvr template check   prove that a conversation template fits a tokenizer
  rlvr template list    the templates that are shipped
  rlvr rewards          the registered reward functions
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
        "template": template_command,
        "rewards": rewards_command,
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
    """`rlvr rewards`: the names of the registered reward functions with their first line of documentation."""
    import argparse

    from rewards import names, resolve

    argparse.ArgumentParser(prog="rlvr rewards", description="List the registered reward functions.").parse_args(argv)
    for name in names():
        lines = (resolve(name).function.__doc__ or "").strip().splitlines()
        print(f"{name:28} {lines[0] if lines else ''}")


if __name__ == "__main__":
    sys.exit(main())
