"""The leaderboard as tables: Markdown for the docs, one HTML file for a browser, lines for a terminal."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rlvr.evaluation.statistics import wilson_interval
from rlvr.leaderboard.cases import Case, CaseSet
from rlvr.leaderboard.measure import Board, Cell, groups_of
from rlvr.report.page import fill_template

OURS = "rlvr"
Table = tuple[str, list[str], list[list[str]]]
"""Title, header, rows."""


@dataclass(frozen=True)
class Column:
    """A figure of the standings: its name, what it is of a grader, and how it is written; less is better unless `more` is."""

    name: str
    value: Callable[[Board, str], float]
    shown: Callable[[Board, str], str]
    more: bool = False


def share(count: int, of: int) -> str:
    """A share with its count and 95 % interval (Wilson).

    >>> share(3, 200)
    '1.50 % (3; 0.51-4.32)'
    """
    if not of:
        return "-"
    low, high = wilson_interval(count, of)
    return f"{100 * count / of:.2f} % ({count}; {100 * low:.2f}-{100 * high:.2f})"


def _sum(board: Board, grader: str, name: str) -> int:
    return sum(getattr(cell, name) for cell in board.of(grader))


def _share_column(title: str, count: str, of: str) -> Column:
    return Column(
        title,
        lambda b, g: _sum(b, g, count) / max(1, _sum(b, g, of)),
        lambda b, g: share(_sum(b, g, count), _sum(b, g, of)),
    )


def _wrong(board: Board, grader: str) -> tuple[int, int]:
    cells = board.of(grader)
    return sum(c.false_positives + c.false_negatives for c in cells), sum(c.positives + c.negatives for c in cells)


def _attacks(board: Board, grader: str) -> tuple[int, int]:
    counts = [count for cell in board.of(grader) for count in cell.groups.values()]
    return sum(wrong for wrong, _ in counts), sum(of for _, of in counts)


def _speed(board: Board, grader: str) -> float:
    """Of all rows but those that it hung on."""
    cells = board.of(grader)
    return sum(c.rows - c.hangs for c in cells) / max(1e-9, sum(c.seconds for c in cells))


def _whole(name: str, value: Callable[[Board, str], int]) -> Column:
    return Column(name, value, lambda b, g: f"{value(b, g):,}")


COLUMNS = (
    Column(
        "wrong verdicts",
        lambda b, g: _wrong(b, g)[0] / max(1, _wrong(b, g)[1]),
        lambda b, g: share(*_wrong(b, g)),
    ),
    _share_column("false positives", "false_positives", "negatives"),
    _share_column("false negatives", "false_negatives", "positives"),
    Column("attacks wrong", lambda b, g: _attacks(b, g)[0], lambda b, g: share(*_attacks(b, g))),
    _whole("hangs", lambda b, g: _sum(b, g, "hangs")),
    _whole("exceptions", lambda b, g: _sum(b, g, "exceptions")),
    _whole("ran code", lambda b, g: len(b.left_behind[g])),
    Column(
        "slowest, s",
        lambda b, g: max(c.slowest_s for c in b.of(g)),
        lambda b, g: f"{max(c.slowest_s for c in b.of(g)):.2f}",
    ),
    Column("items/s", _speed, lambda b, g: f"{_speed(b, g):,.0f}", more=True),
    Column("memory, MiB", lambda b, g: b.memory_bytes[g], lambda b, g: f"{b.memory_bytes[g] / 2**20:,.0f}"),
)


def standings(board: Board) -> Table:
    """A row for each grader, over all sets."""
    header = ["grader", *(column.name for column in COLUMNS)]
    return "Standings", header, [[g, *(column.shown(board, g) for column in COLUMNS)] for g in board.graders]


def by_set(board: Board) -> Table:
    """A row for each set and grader."""
    header = ["set", "grader", "rows", "false positives", "false negatives", "hangs", "exceptions", "items/s"]
    return "By set", header, [_set_row(cell) for cell in board.cells]


def _set_row(cell: Cell) -> list[str]:
    mistakes = [share(cell.false_positives, cell.negatives), share(cell.false_negatives, cell.positives)]
    counts = [str(cell.hangs), str(cell.exceptions), f"{cell.items_per_s:,.0f}"]
    return [cell.dataset, cell.grader, f"{cell.rows:,}", *mistakes, *counts]


def by_attack(board: Board) -> Table:
    """A row for each class of attacks: how many of its cases each grader got wrong."""
    graders = list(board.graders)
    rows = []
    for group, counts in groups_of(board).items():
        wrong = [counts.get(g, [0, 0])[0] for g in graders]
        if any(wrong):
            rows.append([group, str(max(of for _, of in counts.values())), *map(str, wrong)])
    return "Attacks that someone got wrong", ["class", "cases", *graders], rows


def not_led(board: Board, ours: str = OURS) -> list[str]:
    """Where another grader is better than ours, a sentence each: columns of the standings, then sets.

    A grader's hangs and exceptions count against it in their own columns and not in the others.
    """
    if ours not in board.graders:
        return []
    found = []
    for column in COLUMNS:
        best = min(
            board.graders, key=lambda g: (-column.value(board, g) if column.more else column.value(board, g), g != ours)
        )
        if best != ours and column.value(board, best) != column.value(board, ours):
            found.append(f"{column.name}: {column.shown(board, ours)}; {best}: {column.shown(board, best)}")
    for own in board.of(ours):
        for name in ("false_positives", "false_negatives"):
            others = [cell for cell in board.cells if cell.dataset == own.dataset]
            least = min(others, key=lambda cell: (getattr(cell, name), cell.grader != ours))
            if least.grader != ours:
                words = name.replace("_", " ")
                found.append(f"{own.dataset}, {words}: {getattr(own, name)}; {least.grader}: {getattr(least, name)}")
    return found


def markdown(board: Board) -> str:
    """All tables, and what ours does not lead in."""
    parts = [_markdown_table(table) for table in (standings(board), by_set(board), by_attack(board)) if table[2]]
    if OURS in board.graders:
        lines = not_led(board) or ["nothing"]
        parts.append(f"## Where {OURS} does not lead\n\n" + "".join(f"- {line}\n" for line in lines))
    entries = [[name, text] for name, text in board.graders.items()]
    entries += [[name, f"skipped: {why}"] for name, why in board.skipped.items()]
    parts.append(_markdown_table(("Graders", ["grader", "what it is"], entries)))
    parts.append(_markdown_table(("Machine", ["what", "value"], [list(fact) for fact in board.facts.items()])))
    return "\n".join(["# A run of `rlvr leaderboard`\n", *parts])


def _markdown_table(table: Table) -> str:
    title, header, rows = table
    lines = [header, ["---"] * len(header), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return f"## {title}\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)


MISTAKES_SHOWN = 50
CHARACTERS_SHOWN = 300


def html(board: Board, sets: Sequence[CaseSet]) -> str:
    """One page that loads nothing from elsewhere, with the cases that each grader got wrong."""
    cases = {(one.name, case.name): case for one in sets for case in one.cases}
    return fill_template(
        "rlvr.leaderboard:page.html.j2",
        tables=[standings(board), by_set(board), by_attack(board)],
        led=not_led(board),
        ours=OURS,
        board=board,
        mistakes={(c.grader, c.dataset): _mistakes(c, cases) for c in board.cells if c.mistakes or c.messages},
    )


def _mistakes(cell: Cell, cases: Mapping[tuple[str, str], Case]) -> list[list[str]]:
    rows = []
    for name in cell.mistakes[:MISTAKES_SHOWN]:
        case = cases[cell.dataset, name]
        said = "paid" if not case.label else "refused"
        rows.append([name, said, case.gold[:CHARACTERS_SHOWN], case.response[-CHARACTERS_SHOWN:]])
    return rows + [["", "failed", "", message] for message in cell.messages]
