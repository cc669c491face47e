"""No text of others steers the terminal: in lines, tables, live views and messages of error."""

import ast
import io
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.markup import escape
from rich.table import Table

import rlvr.cli.main as command_line
from rewards import Sample
from rlvr.cli.compare import _short
from rlvr.errors import UserError
from rlvr.run.console import ConsoleView
from rlvr.tracking.terminal import Terminal

ROOT = Path(__file__).parents[2]
HOSTILE = "\x1b[2J\x1b]0;owned\x07\x9b31m right-to-left \u202e"
ATTACKS = ("\x1b[2J", "\x1b]0", "\x07", "\x9b", "\u202e")


def printed(show) -> str:
    file = io.StringIO()
    show(Terminal(file=file, force_terminal=True, width=200))
    return file.getvalue()


def table(text: str) -> Table:
    made = Table("response")
    made.add_row(escape(text))
    return made


@pytest.mark.parametrize("show", [lambda t: t.print(escape(HOSTILE)), lambda t: t.print(table(HOSTILE))])
def test_control_characters_are_spelled_out_and_markup_still_colours(show) -> None:
    text = printed(show)
    assert not [attack for attack in ATTACKS if attack in text] and "␛" in text and "owned␇" in text
    assert "\x1b[31mred" in printed(lambda t: t.print("[red]red[/]"))


def test_samples_of_a_run() -> None:
    file = io.StringIO()
    view = ConsoleView(
        Terminal(file=file, force_terminal=True, width=200), live=False, sample_every=1, samples_path=None
    )
    sample = Sample(HOSTILE, prompt=HOSTILE, gold=HOSTILE)
    collected = SimpleNamespace(samples=[sample], results=[SimpleNamespace(outcome=None, total=1.0, scores={})])
    tracker = SimpleNamespace(log_samples=lambda *told: None)
    view._show_samples(tracker, collected, 1)
    assert "owned" in file.getvalue() and not [attack for attack in ATTACKS if attack in file.getvalue()]


def test_errors_and_questions(capsys) -> None:
    def fails(argv: list[str]) -> None:
        raise UserError(f"no column {HOSTILE}")

    assert command_line.run(fails, []) == 2
    assert not [attack for attack in ATTACKS if attack in capsys.readouterr().err + _short(HOSTILE)]


def test_nothing_prints_past_it() -> None:
    """Every console of the package is a `Terminal`."""
    found = [
        path.name
        for path in (ROOT / "rlvr").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Console"
    ]
    assert found == []
