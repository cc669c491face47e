"""`rlvr runs [FOLDER]`: the runs in a folder, oldest first: how far each is, its newest figures, and whether it still goes on."""

import json
import socket
from collections.abc import Sequence
from pathlib import Path

import psutil

from rlvr.cli.parser import Parser
from rlvr.errors import UserError

RUNS = "runs"
"""The folder in which runs lie that were given no `--save_path`."""
WIDTH = 160


def runs_parser() -> Parser:
    """The flags of the command."""
    parser = Parser(prog="rlvr runs", description="The runs in a folder, oldest first.")
    parser.add_argument("folder", nargs="?", default=RUNS, metavar="FOLDER", help=f"where they lie [{RUNS}]")
    return parser


def runs_command(argv: Sequence[str]) -> None:
    """Print a table with a row for each run.

    Raises:
        UserError: there is no such folder, or no run in it.
    """
    from rich.markup import escape
    from rich.table import Table

    from rlvr.report.runs import MAIN_FIGURES, read_runs
    from rlvr.tracking.terminal import Terminal

    folders = find_runs(Path(runs_parser().parse_args(list(argv)).folder))
    runs = read_runs(folders)
    figures = [figure for figure in MAIN_FIGURES if any(run.last(figure[0]) is not None for run in runs)]
    table = Table("run", "started", "model", "step", *(label for _, label, _ in figures), "state")
    for run in runs:
        cells = [
            str(run.folder),
            str(run.environment.get("started", ""))[:16].replace("T", " "),
            str(run.settings.get("model", {}).get("pretrain", "")),
            f"{run.rows[-1]['step']:.0f}" if run.rows else "0",
            *("" if (value := run.last(name)) is None else form.format(value) for name, _, form in figures),
            state_of(run.folder),
        ]
        table.add_row(*map(escape, cells))
    Terminal(plain_width=WIDTH).print(table)


def find_runs(folder: Path) -> list[Path]:
    """The runs in a folder, the one that wrote metrics last at the end.

    Raises:
        UserError: there is no such folder, or no run in it.
    """
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}: name the one that runs lie in")
    found = [path.parent for path in folder.glob("*/metrics.jsonl")]
    if not found:
        raise UserError(f"the folder {folder} holds no run: name another")
    return sorted(found, key=lambda run: ((run / "metrics.jsonl").stat().st_mtime, run.name))


def state_of(folder: Path) -> str:
    """`going on`, `finished`, `stopped`, or `killed`."""
    from rlvr.models.saved import HOLDER, trained_model

    try:
        holder = json.loads((folder / HOLDER).read_text(encoding="utf-8"))
        host, pid = str(holder["host"]), int(holder["pid"])
    except (OSError, ValueError, KeyError, TypeError):  # nobody writes there
        return "finished" if trained_model(folder) else "stopped"
    if host != socket.gethostname():
        return f"going on, on {host}"
    return "going on" if psutil.pid_exists(pid) else "killed"
