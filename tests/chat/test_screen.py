"""What a model writes can't steer the terminal that it is shown in."""

import io
import re
from unicodedata import category

import pytest
from rich.console import Console

from rlvr.chat.screen import ColourScreen, PlainScreen
from rlvr.chat.session import AnswerScore
from rlvr.errors import escape_control_characters

HOSTILE = (
    "\x1b[2J\x1b]0;title\x07\x1b]8;;http://x\x1b\\link [bold red]markup[/] [/] :smile: \r over\x08\x08 \x9b31m \u202etfel "
    "\u2066\u2069 \U000e0041 \u2028 \x7f \x00"
)


def test_every_control_character_is_spelled_out() -> None:
    for code in [*range(0x3000), *range(0xFE00, 0x10000), *range(0xE0000, 0xE0200)]:
        char = chr(code)
        shown = escape_control_characters(char)
        kept = char in "\n\t\u200c\u200d"
        assert kept == (shown == char) or category(char) not in ("Cc", "Cf", "Cs", "Zl", "Zp"), hex(code)
        assert all(category(c) not in ("Cc", "Cf", "Cs", "Zl", "Zp") for c in shown if c not in "\n\t\u200c\u200d")
    assert escape_control_characters("\x1b\x7f\x9b\u202e\U000e0041") == "␛␡\\u009b\\u202e\\U000e0041"
    plain = "Größe ≤ 3\n\t👩‍🔬 <think>[b]x[/b]"
    assert escape_control_characters(plain) == plain


def shown(act) -> str:
    file = io.StringIO()
    act(ColourScreen(Console(file=file, force_terminal=True, width=40, color_system="truecolor", highlight=False)))
    return file.getvalue()


@pytest.mark.parametrize(
    "act",
    [
        lambda screen: screen.part("answer", HOSTILE),
        lambda screen: screen.part("other", HOSTILE),
        lambda screen: screen.scores([AnswerScore("grader", HOSTILE, HOSTILE)]),
        lambda screen: screen.note(HOSTILE),
        lambda screen: screen.error(HOSTILE),
    ],
    ids=["answer", "other", "verdict", "note", "mistake"],
)
def test_only_our_own_colours_reach_a_terminal(act) -> None:
    text = shown(act)
    ours = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u202e\u2066]", ours)
    assert "[bold red]markup[/] [/] :smile:" in ours and "␛[2J" in ours


def test_parts_differ_and_lines_are_left_to_the_terminal() -> None:
    codes = {
        kind: shown(lambda screen, kind=kind: screen.part(kind, "x")) for kind in ("think", "answer", "tag", "other")
    }
    assert codes["other"] == "x" and len(set(codes.values())) == 4 and "\x1b[2m" in codes["think"]
    assert shown(lambda screen: [screen.part("other", "y" * 30), screen.part("other", "z" * 30), screen.end()]) == (
        "y" * 30 + "z" * 30 + "\n"
    )


def test_plain_output_has_no_colours_and_is_safe(capsys) -> None:
    screen = PlainScreen()
    screen.part("answer", HOSTILE)
    screen.scores([AnswerScore("grader", "wrong", HOSTILE)])
    screen.note(HOSTILE)
    screen.error(HOSTILE)
    out = capsys.readouterr()
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u202e]", out.out + out.err)
    assert "grader: wrong" in out.out and "error: " in out.err
