"""Messages on docs/troubleshooting.md are messages of the code: `...` stands for what is filled in."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
MESSAGES = re.findall(r"^`(.+)`\n:   ", PAGE, re.MULTILINE)
FILLED = "\0"


@cache
def texts() -> list[str]:
    """Every text of the source, what is filled in replaced by one sign; backticks are left out, as the page's code can't have them."""
    found = []
    for package in ("rlvr", "rewards"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.JoinedStr):
                    parts = (p.value if isinstance(p, ast.Constant) else FILLED for p in node.values)
                    found.append("".join(map(str, parts)))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.append(node.value)
    return [" ".join(text.replace("`", "").split()) for text in found if len(text) > 12]


def test_there_are_many() -> None:
    assert len(MESSAGES) > 35 and len(set(MESSAGES)) == len(MESSAGES)


def says(text: str, parts: list[str]) -> bool:
    """Whether the parts stand in the text, in this order."""
    at = 0
    for part in parts:
        at = text.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return True


@pytest.mark.parametrize("message", MESSAGES, ids=lambda text: text[:50])
def test_the_code_says_it(message: str) -> None:
    parts = [part.strip() for part in message.split("...")]
    assert any(says(text, parts) for text in texts()), f"no text of the source says {message!r}"
    assert sum(map(len, parts)) > 12, "too little of it is fixed to tell it from others"


def test_a_message_that_is_not_there_is_noticed() -> None:
    assert not any(says(text, ["--lr", "is said nowhere", "in the source"]) for text in texts())
