"""`rlvr leaderboard DATA ...`: graders side by side on labelled answers, attacks and hostile texts.

`rlvr/leaderboard` measures; here are the flags, the progress bar, and the files that are written.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rlvr.cli.parser import Parser
from rlvr.errors import UserError

if TYPE_CHECKING:
    from rlvr.leaderboard.cases import Case
    from rlvr.leaderboard.measure import Board

WIDTH = 150


def leaderboard_parser() -> Parser:
    """The flags of the command."""
    from rlvr.leaderboard.graders import GRADERS

    parser = Parser(
        prog="rlvr leaderboard",
        description="False verdicts, exploits, hangs, exceptions, speed and memory of graders, side by side.",
    )
    parser.add_argument(
        "data", nargs="+", metavar="DATA", help="files or folders: labelled rows, attacks, hostile texts"
    )
    parser.add_argument(
        "--graders",
        nargs="+",
        default=list(GRADERS),
        metavar="NAME",
        help="known names, reward functions, path/to/file.py:function, or NAME=COMMAND that answers JSON lines",
    )
    parser.add_argument(
        "--pythons",
        nargs="+",
        default=[],
        metavar="FILE",
        help="Pythons of other environments, for packages that are not here",
    )
    parser.add_argument("--limit", type=int, metavar="N", help="so many rows of each set, spread evenly")
    parser.add_argument("--deadline", type=float, default=10.0, metavar="S", help="processor seconds for one verdict")
    parser.add_argument("--html", metavar="FILE", help="page to write")
    parser.add_argument("--markdown", metavar="FILE", help="tables to write")
    parser.add_argument("--json", metavar="FILE", help="figures to write")
    return parser


def leaderboard_command(argv: list[str]) -> None:
    """Measure, print the standings, write what is asked for.

    Raises:
        UserError: data or graders that are not there, a grader that doesn't answer, or a file that can't be written.
    """
    arguments = leaderboard_parser().parse_args(argv)
    from rlvr.leaderboard.cases import CaseSet, read_sets
    from rlvr.leaderboard.measure import find_graders, measure
    from rlvr.leaderboard.page import html, markdown

    if arguments.limit is not None and arguments.limit < 1:
        raise UserError(f"--limit must be at least 1, not {arguments.limit}")
    if not arguments.deadline > 0:
        raise UserError(f"--deadline must be above 0 seconds, not {arguments.deadline:g}")
    outputs = [Path(path).expanduser() for path in (arguments.html, arguments.markdown, arguments.json) if path]
    for path in outputs:
        if not path.absolute().parent.is_dir():
            raise UserError(f"{path} can't be written: there is no folder {path.parent}")
    sets = [CaseSet(one.name, _spread(one.cases, arguments.limit)) for one in read_sets(arguments.data)]
    entries, skipped = find_graders(arguments.graders, arguments.pythons)
    if not entries:
        raise UserError("no grader is left; install one, or name others with --graders")
    with _progress(len(entries) * sum(len(one.cases) for one in sets)) as advance:
        board = measure(entries, sets, arguments.deadline, advance)
    board.skipped |= skipped
    for path, text in (
        (arguments.html, lambda: html(board, sets)),
        (arguments.markdown, lambda: markdown(board)),
        (arguments.json, lambda: board.to_json()),
    ):
        if path:
            _write(Path(path).expanduser(), text())
    _print(board)


def _spread(cases: "tuple[Case, ...]", limit: int | None) -> "tuple[Case, ...]":
    if limit is None or limit >= len(cases):
        return cases
    return tuple(cases[i * len(cases) // limit] for i in range(limit))


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise UserError(f"{path} can't be written: {error.strerror}") from None
    print(f"written: {path}")


@contextmanager
def _progress(total: int) -> Iterator[Callable[[str, int], None]]:
    from rlvr.tracking.terminal import counting_bar

    with counting_bar() as progress:
        task = progress.add_task("starting", total=total)
        yield lambda name, count: progress.update(task, description=name, advance=count)


def _print(board: "Board") -> None:
    from rich.markup import escape
    from rich.table import Table

    from rlvr.leaderboard.page import OURS, by_set, not_led, standings
    from rlvr.tracking.terminal import Terminal

    console = Terminal(plain_width=WIDTH)
    for title, header, rows in (standings(board), by_set(board)):
        table = Table(*header, title=title, title_justify="left")
        for row in rows:
            table.add_row(*map(escape, row))
        console.print(table)
    for name, why in board.skipped.items():
        console.print(f"skipped {name}: {why}", highlight=False, markup=False)
    for line in not_led(board):
        console.print(f"{OURS} does not lead in {line}", highlight=False, markup=False)
