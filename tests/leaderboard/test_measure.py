"""Graders in processes of their own: what they answer, raise, hang on and leave behind is counted."""

import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rewards import Sample, Tags
from rlvr.errors import UserError
from rlvr.leaderboard.cases import Case, CaseSet, read_sets
from rlvr.leaderboard.graders import GRADERS, Named
from rlvr.leaderboard.measure import TURN, Board, Cell, find_graders, measure
from rlvr.leaderboard.process import Verdict
from rlvr.leaderboard.worker import checker, plain

ODD = """
import sys, os, pathlib
print("said on import")

def odd(response, gold):
    print("said while grading")
    if response == "raise":
        raise KeyError("here")
    if response == "exit":
        os._exit(3)
    if response == "write":
        pathlib.Path("PWNED").touch()
    while response == "hang":
        pass
    return gold in response
"""
ECHO = "import sys, json\nfor line in sys.stdin: print(json.dumps({'correct': json.loads(line)['response'] == '42'}), flush=True)"


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Board:
    folder = tmp_path_factory.mktemp("graders")
    (folder / "odd.py").write_text(ODD)
    texts = ["42", "raise", "exit", "hang", "write", "it is 42"]
    cases = [Case(str(i), text, "42", "42" in text) for i, text in enumerate(texts)]
    cases += [Case("hostile", "raise", "42", None)] + [Case(f"more {i}", "7", "42", False) for i in range(TURN)]
    command = f"echo={shlex.quote(sys.executable)} -c {shlex.quote(ECHO)}"
    entries, skipped = find_graders([f"{folder}/odd.py:odd", command], [])
    assert not skipped
    return measure(entries, [CaseSet("texts", tuple(cases))], deadline_s=0.3)


def test_what_a_grader_does_is_counted(board: Board) -> None:
    odd, echo = board.cells
    assert (odd.rows, odd.positives, odd.negatives) == (7 + TURN, 2, 4 + TURN)
    assert (odd.hangs, odd.exceptions) == (1, 3)
    assert (odd.false_positives, odd.false_negatives) == (0, 0)
    assert any("KeyError" in message for message in odd.messages)
    assert (echo.hangs, echo.exceptions, echo.false_positives, echo.false_negatives) == (0, 0, 0, 1)
    assert echo.mistakes == ["5"]


def test_speed_memory_and_files_are_seen(board: Board) -> None:
    odd, echo = board.cells
    assert all(size > 2**20 for size in board.memory_bytes.values())
    assert board.left_behind[odd.grader] == ["PWNED"] and board.left_behind[echo.grader] == []
    assert odd.slowest_s >= 0.3 and odd.items_per_s > 0


def test_a_right_answer_without_a_verdict_is_refused_and_a_wrong_one_is_not_paid() -> None:
    cell = Cell("a", "b")
    for label in (True, False, None):
        cell.add(Case("c", "", "42", label, group="hack: words"), Verdict(False, 9.0, "hang", "no verdict"))
    assert (cell.false_negatives, cell.false_positives, cell.hangs, cell.seconds) == (1, 0, 3, 0.0)
    assert cell.groups == {"hack: words": [1, 2]}


def test_reward_functions_say_right_by_verdict_or_by_score(tmp_path: Path) -> None:
    (tmp_path / "half.py").write_text(
        "def half(response, gold):\n    return 0.7 if response.split()[-1] == gold else 0.5\n"
    )
    for spec in ("gsm8k_reward_fn", f"{tmp_path}/half.py:half"):
        check = checker(spec)
        assert [check(Sample(f"<answer>{n}</answer>" if "gsm" in spec else f"so {n}", "7")) for n in (7, 8)] == [
            True,
            False,
        ]


def test_a_reward_function_that_does_not_look_at_the_answer_is_no_grader() -> None:
    entries, _ = find_graders(["format_reward_fn"], [])
    with pytest.raises(UserError, match="pays 41 as much as 42"):
        measure(entries, [], 1.0)


def test_a_grader_that_knows_no_tags_is_given_the_answer_between_them() -> None:
    def given(response: str, tagged: bool = True) -> str:
        return plain(Sample(response, "42", tags=Tags.default() if tagged else None))

    assert given("<think>41</think><answer>42</answer>") == "\\boxed{42}"
    assert given("<think>41</think><answer>$42$</answer>") == "$42$"
    assert given("<think>42</think>") == "" and given("<answer>42", False) == "<answer>42"


def test_a_peer_that_can_not_start_is_left_out_and_a_command_that_can_not_is_a_mistake(monkeypatch) -> None:
    monkeypatch.setitem(GRADERS, "broken", Named("rlvr.leaderboard.graders:nothing", "a peer"))
    entries, _ = find_graders(["broken"], [])
    assert "defines no function" in measure(entries, [], 1.0).skipped["broken"]
    right = find_graders(["string"], [])[0][0].commands
    assert list(measure([replace(entries[0], commands=entries[0].commands + right)], [], 1.0).graders) == ["broken"]
    entries, _ = find_graders(["mine=/does/not/exist --flag"], [])
    with pytest.raises(UserError, match="can't be started"):
        measure(entries, [], 1.0)
    entries, _ = find_graders([f"mine={sys.executable} -c print(input()and(5))"], [])
    with pytest.raises(UserError, match="JSON object with `correct`"):
        measure(entries, [], 1.0)


def test_what_is_not_installed_is_skipped_with_the_command_that_installs_it(monkeypatch) -> None:
    monkeypatch.setitem(
        GRADERS, "elsewhere", Named("a:b", "a peer", ("some-package==1",), "some_package_that_is_not_here")
    )
    entries, skipped = find_graders(["elsewhere", "string"], [sys.executable])
    assert [entry.name for entry in entries] == ["string"]
    assert "uv pip install --python .peers/bin/python some-package==1 mpmath" in skipped["elsewhere"]


@pytest.mark.parametrize(
    ("asked", "pythons", "says"),
    [
        (["rlvrr"], [], "Did you mean 'rlvr'"),
        (["gone.py:f"], [], "no file gone.py"),
        (["string", "string"], [], "named twice"),
        (["string"], ["/no/python"], "--pythons"),
    ],
)
def test_mistakes_of_names(asked: list[str], pythons: list[str], says: str) -> None:
    with pytest.raises(UserError, match=says):
        find_graders(asked, pythons)


def test_sets_are_files_and_folders(tmp_path: Path) -> None:
    attack = {
        "id": "a1",
        "kind": "hack",
        "topic": "words",
        "response": "<answer>not 42</answer>",
        "tagged": True,
        "gold": "42",
        "label": False,
    }
    (tmp_path / "attacks.jsonl").write_text(json.dumps(attack) + "\n")
    (tmp_path / "hostile.jsonl").write_text('{"name": "zeros", "text": "000"}\n')
    (tmp_path / "a.txt").write_bytes(b"\xff((((")
    attacks, hostile, texts = read_sets([str(tmp_path)])
    assert attacks.cases[0] == Case("a1", attack["response"], "42", False, True, None, "hack: words")
    assert hostile.cases[0].label is None and hostile.cases[0].name == "zeros"
    assert texts.name == tmp_path.name and texts.cases[0].response == "\udcff(((("
    assert len(read_sets([str(tmp_path / "a.txt")])) == 1


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"response": "a", "gold": "b"}', "no label"),
        ('{"response": "a", "gold": "b", "label": "yes"}', "true, false or null"),
        ("", "holds no rows"),
    ],
)
def test_broken_sets_are_mistakes(tmp_path: Path, line: str, says: str) -> None:
    (tmp_path / "a.jsonl").write_text(line + "\n")
    with pytest.raises(UserError, match=says):
        read_sets([str(tmp_path / "a.jsonl")])
    with pytest.raises(UserError, match="no \\*.jsonl"):
        (tmp_path / "empty").mkdir()
        read_sets([str(tmp_path / "empty")])
