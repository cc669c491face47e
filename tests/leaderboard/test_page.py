"""Tables: shares with intervals, attacks by class, and an honest list of what ours does not lead in."""

import json

import pytest

from rlvr.cli.main import main
from rlvr.leaderboard.cases import Case, CaseSet
from rlvr.leaderboard.measure import Board, Cell
from rlvr.leaderboard.page import by_attack, html, markdown, not_led, share, standings

EVIL = "<script>alert(1)</script> | \x1b[31m"
CASES = CaseSet("answers", (Case("one", EVIL, "42", False), Case("two", "42", "42", True)))


def board(ours: Cell, peer: Cell) -> Board:
    graders = {"rlvr": "ours", "peer": f"a {EVIL}"}
    return Board(
        {"python": "3"},
        graders,
        {"gone": "not installed"},
        [ours, peer],
        dict.fromkeys(graders, 2**20),
        {"rlvr": [], "peer": ["X"]},
    )


def cell(grader: str, **more) -> Cell:  # type: ignore[no-untyped-def]
    plain = {"rows": 200, "positives": 100, "negatives": 100, "seconds": 1.0, "slowest_s": 0.1}
    return Cell(grader, "answers", **(plain | more))


def test_shares_have_wilson_intervals() -> None:
    assert share(0, 100) == "0.00 % (0; 0.00-3.70)" and share(0, 0) == "-"


def test_what_ours_leads_in_is_not_listed_and_the_rest_is() -> None:
    better = board(cell("rlvr"), cell("peer", false_positives=3, hangs=1))
    assert not_led(better) == []
    worse = not_led(board(cell("rlvr", false_negatives=2, seconds=2.0), cell("peer", exceptions=1)))
    assert worse == [
        "wrong verdicts: 1.00 % (2; 0.27-3.57); peer: 0.00 % (0; 0.00-1.88)",
        "false negatives: 2.00 % (2; 0.55-7.00); peer: 0.00 % (0; 0.00-3.70)",
        "items/s: 100; peer: 200",
        "answers, false negatives: 2; peer: 0",
    ]


def test_attacks_are_counted_by_class() -> None:
    one = cell("rlvr", groups={"hack: words": [0, 4], "hack: chain": [0, 3]})
    other = cell("peer", groups={"hack: words": [2, 4], "hack: chain": [0, 3]})
    title, header, rows = by_attack(board(one, other))
    assert header[2:] == ["rlvr", "peer"] and rows == [["hack: words", "4", "0", "2"]]
    assert standings(board(one, other))[2][1][4].startswith("28.57 % (2;")


def test_pages_escape_what_they_show() -> None:
    shown = board(cell("rlvr", mistakes=["one"], false_positives=1), cell("peer", messages=[f"two: {EVIL}"]))
    page = html(shown, [CASES])
    assert "<script>" not in page and "&lt;script&gt;" in page and "skipped: not installed" in page
    assert "http://" not in page and "https://" not in page
    text = markdown(shown)
    assert "| rlvr |" in text and "\\|" in text and "does not lead" in text
    assert "false positives: 1; peer: 0" in text


def test_the_command_writes_what_is_asked_for(tmp_path, capsys) -> None:  # type: ignore[no-untyped-def]
    rows = [{"response": f"so \\boxed{{{n}}}", "gold": "42", "label": n == 42} for n in range(40, 45)]
    data = tmp_path / "answers.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    files = {kind: tmp_path / f"board.{kind}" for kind in ("html", "markdown", "json")}
    words = [word for kind, path in files.items() for word in (f"--{kind}", str(path))]
    assert main(["leaderboard", str(data), "--graders", "string", "--limit", "4", *words]) == 0
    found = json.loads(files["json"].read_text())
    assert found["cells"][0]["rows"] == 4 and found["cells"][0]["false_positives"] == 0
    assert all(path.stat().st_size > 300 for path in files.values()) and "Standings" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nowhere.jsonl"], "nowhere.jsonl"),
        (["{data}", "--limit", "0"], "--limit must be"),
        (["{data}", "--deadline", "0"], "--deadline must be"),
        (["{data}", "--html", "no/such/folder/a.html"], "no folder"),
        (["{data}", "--graders", "stringy"], "Did you mean 'string'"),
    ],
)
def test_a_mistake_is_one_message_and_status_2(words, says, tmp_path, capsys) -> None:  # type: ignore[no-untyped-def]
    data = tmp_path / "answers.jsonl"
    data.write_text('{"response": "a", "gold": "b", "label": false}\n')
    assert main(["leaderboard", *(word.format(data=data) for word in words)]) == 2
    out = capsys.readouterr()
    assert says in out.err and out.err.count("\n") == 1 and out.out == ""
