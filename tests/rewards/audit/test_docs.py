"""`docs/rewards.md` and `docs/audit.md`, which goes on with its files, say what is: their code runs, their commands end as
they say, and every function is named."""

import re
import shlex
from pathlib import Path

import pytest

from rewards import functions
from rlvr.cli.audit import audit_command
from rlvr.cli.main import run
from rlvr.cli.rewards import rewards_command
from rlvr.cli.score import score_command
from rlvr.config import parse

DOCS = Path(__file__).parents[3] / "docs"
PAGE = "\n".join((DOCS / name).read_text() for name in ("rewards.md", "audit.md"))
BLOCKS = re.findall(r"^```(\w+)(?: (\w+)=\"?([^\"\n]*)\"?)?\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = {"audit": audit_command, "score": score_command, "rewards": rewards_command}


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    """One folder with the files of the pages: a plugin is imported once, and from one place."""
    folder = tmp_path_factory.mktemp("page")
    for _, key, name, text in BLOCKS:
        if key == "title":
            (folder / name).write_text(text)
    return folder


@pytest.fixture
def folder(files, monkeypatch) -> Path:
    monkeypatch.chdir(files)
    return files


def commands() -> list[tuple[str, list[str]]]:
    return [(value, shlex.split(text)) for kind, _, value, text in BLOCKS if kind == "bash"]


def end_of(words) -> int:
    try:
        return run(COMMANDS[words[1]], words[2:])
    except SystemExit as stop:
        return stop.code


def test_the_python_blocks_run(folder) -> None:
    namespace: dict[str, object] = {}
    blocks = [text for kind, key, _, text in BLOCKS if kind == "python" and key != "title"]
    assert len(blocks) == 6
    for text in blocks:
        exec(compile(text, "docs", "exec"), namespace)


@pytest.mark.parametrize(
    ("status", "words"), commands(), ids=lambda value: value[1] + value[2] if isinstance(value, list) else ""
)
def test_the_commands_end_as_the_page_says(status, words, folder, capsys) -> None:
    assert words[0] == "rlvr"
    if status == "parse":
        assert words[1] == "train"
        settings = parse(words[2:])
        assert settings.reward.reward_functions == ["mine", "soft_overlong_fn"]
        return
    assert end_of(words) == int(status), capsys.readouterr()


def test_the_findings_that_the_page_shows_are_found(folder, capsys) -> None:
    end_of(next(words for _, words in commands() if words[1] == "audit"))
    shown = [text for kind, _, _, text in BLOCKS if kind == "text"]
    out = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert shown and all(" ".join(line.split()) in out for line in shown[0].splitlines())


def test_the_scores_of_the_page(folder) -> None:
    end_of(next(words for _, words in commands() if words[1] == "score"))
    lines = (folder / "scores.jsonl").read_text().splitlines()
    assert [round(float(re.search(r'"total": ([-\d.]+)', line)[1]), 3) for line in lines] == [1.1, 0.1, -0.25]


def test_every_function_is_named() -> None:
    for name in functions.__all__:
        assert f"`{name}`" in PAGE
