"""The code in docs/interoperability.md runs."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "interoperability.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_the_page_shows_every_peer() -> None:
    code = "\n".join(BLOCKS)
    assert all(f'export("{peer}"' in code for peer in ("trl", "verl", "openrlhf", "colossalai"))


@pytest.mark.parametrize("code", BLOCKS, ids=[re.sub(r"\W+", "-", code[:40]) for code in BLOCKS])
def test_the_code_runs(code: str) -> None:
    assert "assert " in code
    exec(compile(code, str(PAGE), "exec"), {})
