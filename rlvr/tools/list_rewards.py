"""`rlvr rewards [NAME]`: the registered reward functions, or all about one of them."""

import inspect

from rewards import load_plugins, names, resolve
from rlvr.tools.parser import Parser


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
