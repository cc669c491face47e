"""`Terminal`: the console that everything is printed with which may hold text of a model, a data set or a template; and a bar on it."""

from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from rlvr.errors import escape_control_characters


class Terminal(Console):
    """rich's console, with control characters spelled out in all text that is printed or stands in a table.

    What a model wrote could otherwise colour, overwrite or hide what is shown, set the window's title or place links. Colours and
    layout of our own are markup, which rich turns into control characters after this. (`escape` of rich's markup is still
    the caller's: without it `[red]` in a response would colour.)

    Args:
        plain_width: width in characters where the output is no terminal; rich's own choice there is 80, and wraps tables.
        options: of rich's console.
    """

    def __init__(self, *, plain_width: int | None = None, **options: Any) -> None:
        super().__init__(**options)
        if plain_width is not None and not self.is_terminal:
            self.width = plain_width

    def render_str(self, text: str, **options: Any) -> Text:
        """Text from a string; every string that is printed comes here."""
        return super().render_str(escape_control_characters(text), **options)


def counting_bar(*more: TextColumn, quiet: bool = False) -> Progress:
    """A bar on stderr for work that is counted: what is done, how many of how many, time elapsed and left. Only on a terminal.

    Args:
        more: columns after the count.
        quiet: show nothing on a terminal either.
    """
    console = Terminal(stderr=True, quiet=quiet)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        *more,
        TextColumn("elapsed"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    )
