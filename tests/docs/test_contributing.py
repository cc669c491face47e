"""CONTRIBUTING's account of the house is checked against the house."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
sys.path.insert(0, str(ROOT / "docs" / "generate"))
from step_files import files_of_a_step  # noqa: E402


def test_the_files_of_a_step_are_those_that_a_step_runs(process, tiny_cache) -> None:
    """All of them, and those of the step itself in the order in which it comes to them."""
    section = TEXT[TEXT.index("## One step") : TEXT.index("## Habits")]
    lists = [
        re.findall(r"^\d+\. `(.+?)`:", part, re.MULTILINE) for part in re.split(r"^What ", section, flags=re.MULTILINE)
    ]
    run = files_of_a_step()
    assert sorted(file for files in lists for file in files) == sorted(run)
    assert lists[0] == [file for file in run if file in lists[0]]


def test_every_room_is_in_the_picture() -> None:
    tree = TEXT[TEXT.index("rlvr/\n") : TEXT.index("scripts/")]
    named = set(re.findall(r"^  (\w+)(?:/|\.py) ", tree, re.MULTILINE))
    there = {p.stem for p in (ROOT / "rlvr").iterdir() if (p / "__init__.py").is_file() or p.suffix == ".py"}
    assert named == {name for name in there if not name.startswith("__")}
