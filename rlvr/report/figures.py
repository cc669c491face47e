"""Figures as files, drawn by matplotlib, which comes with the extra `report`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rlvr.errors import UserError

FORMATS = (".png", ".svg", ".pdf")


def check_figure(flag: str, path: Path) -> None:
    """See before hours of work that a figure can be drawn to `path`.

    Raises:
        UserError: matplotlib is missing, or the ending is none of `FORMATS`.
    """
    if path.suffix not in FORMATS:
        raise UserError(f"{flag} {path}: the name must end in {', '.join(FORMATS)}")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise UserError(f"{flag} needs matplotlib: pip install 'rlvr[report]'") from None


@contextmanager
def figure(path: Path, columns: int = 1, width: float = 6.5, height: float = 4.6) -> Iterator[tuple[Any, list[Any]]]:
    """A figure of some axes in a row, written to `path` when the block is left. Draws without a display.

    Yields:
        matplotlib's figure, and its axes.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(drawn)
    axes = list(drawn.subplots(1, columns, squeeze=False)[0])
    for one in axes:
        one.grid(alpha=0.3)
    yield drawn, axes
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        drawn.savefig(path, dpi=110)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
