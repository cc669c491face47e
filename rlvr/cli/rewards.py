"""`rlvr rewards [NAME]`: the registered reward functions, or all about one; and what commands that score have in common.

`rlvr audit` and `rlvr score` share the flags that name functions, and the workers that run them.
"""

import argparse
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rewards import RewardFunction, Sample, Tags, load_plugins, names, resolve
from rewards.audit import score_each
from rewards.outcome import Score
from rewards.pool import RewardPool
from rlvr.cli.parser import Parser
from rlvr.config.reward_options import parse_reward_options
from rlvr.errors import UserError
from rlvr.prompting.template import ConversationTemplate

Scorer = Callable[[Sequence[Sample]], list[list[Score]]]
"""Scores samples: [function][sample]."""


def rewards_parser() -> Parser:
    """The flags of the command."""
    parser = Parser(prog="rlvr rewards", description="List the registered reward functions.")
    parser.add_argument("name", nargs="?", help="print this one's arguments and documentation")
    parser.add_argument(
        "--reward_plugins", nargs="+", default=[], metavar="FILE", help="Python files or modules to import"
    )
    return parser


def rewards_command(argv: list[str]) -> None:
    """Each function with the first line of its documentation, or all of one's.

    Raises:
        UserError: no such function or plugin.
    """
    arguments = rewards_parser().parse_args(argv)
    load_plugins(arguments.reward_plugins)
    if arguments.name:
        function = resolve(arguments.name).function
        print(f"{arguments.name}{inspect.signature(function)}\n\n{inspect.getdoc(function) or 'no documentation'}")
        return
    for name in names():
        lines = (inspect.getdoc(resolve(name).function) or "").splitlines()
        print(f"{name:28} {lines[0] if lines else ''}")


# For `rlvr audit` and `rlvr score`.


def add_reward_flags(parser: argparse.ArgumentParser) -> None:
    """The flags that both commands have; they mean what they mean for `rlvr train`."""
    parser.add_argument(
        "--reward_plugins", nargs="+", default=[], metavar="FILE", help="Python files or modules to import"
    )
    parser.add_argument("--reward_options", metavar="JSON", help="keyword arguments by function name")
    parser.add_argument("--template", metavar="NAME", help="conversation template whose tags count")
    parser.add_argument("--workers", type=int, metavar="N", help="processes that score; 0: this one, without deadlines")


def resolve_rewards(names: Sequence[str], arguments: argparse.Namespace) -> list[RewardFunction]:
    """The functions that are named, with the options that are given.

    Raises:
        UserError: an unknown name, a plugin that can't be imported, or options that are none.
    """
    if arguments.workers is not None and arguments.workers < 0:
        raise UserError(f"--workers must be at least 0, not {arguments.workers}")
    load_plugins(arguments.reward_plugins)
    options = parse_reward_options(arguments.reward_options)
    return [resolve(name, options=options) for name in names]


def template_tags(template: str | None) -> Tags | None:
    """The tags of a template by name or path; None without one.

    Raises:
        UserError: there is no such template.
    """
    return ConversationTemplate.load(template).tags if template else None


@contextmanager
def open_scorer(
    functions: Sequence[RewardFunction], plugins: Sequence[str], workers: int | None, timeout_s: float = 10.0
) -> Iterator[Scorer]:
    """A `Scorer`: a pool of workers, which also ends a function that hangs; this process for 0 workers.

    A sample that a function raises for gets the outcome `error`, one that takes too long `timed_out`, and no value.
    """
    if workers == 0:
        yield lambda samples: [score_each(function, samples) for function in functions]
        return
    # Training stops at too many failures; here all of them are reported in the end, even where there is nothing else.
    with RewardPool(functions, plugins=plugins, workers=workers, timeout_s=timeout_s, max_failed_share=1.0) as pool:
        yield pool.score
