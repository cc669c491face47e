"""Python and JSON of pages run and parse. Pages with tests of their own (training in them, files, exit states) are run there."""

import copy
import json
import re
from pathlib import Path

import pytest
from family_tokenizers import CHATML, family

from rlvr.prompting.conversation import Conversation, ConversationTemplate
from rlvr.prompting.lint import check_template

ROOT = Path(__file__).parents[2]
ELSEWHERE = {
    "README.md": "tests/test_readme.py",
    "docs/other_toolkits.md": "tests/examples/test_docs.py",
    "docs/interoperability.md": "tests/rewards/foreign/test_docs.py",
    "docs/rewards.md": "tests/rewards/audit/test_docs.py",
    "docs/hand_on.md": "tests/prompting/test_handed_on.py",
    "docs/environments.md": "tests/docs/test_environments.py",
    "docs/audit.md": "tests/rewards/audit/test_docs.py",
}
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [
    (str(page.relative_to(ROOT)), kind, text) for page in PAGES for kind, _, text in FENCE.findall(page.read_text())
]
CODE = [(page, text) for page, kind, text in BLOCKS if kind == "python" and page not in ELSEWHERE]


@pytest.mark.parametrize(("page", "code"), CODE, ids=[page for page, _ in CODE])
def test_python_runs(page: str, code: str) -> None:
    assert "assert " in code, "says nothing that could be wrong"
    exec(compile(code, page, "exec"), {"__name__": "page"})


def test_pages_left_to_others_are_run_there() -> None:
    for page, test in ELSEWHERE.items():
        assert Path(page).name in (ROOT / test).read_text(), test


def test_blocks_are_of_kinds_that_are_run() -> None:
    """Shell commands stand in indented blocks, where test_page_commands.py finds them, but for two pages that run their own."""
    for page, kind, _ in BLOCKS:
        own = "test_docs.py" in ELSEWHERE.get(page, "")
        assert kind in {"python", "json"} or (kind in {"bash", "text"} and own), (page, kind)


@pytest.mark.parametrize("text", [text for _, kind, text in BLOCKS if kind == "json"])
def test_json_parses(text: str) -> None:
    for document in [text] if text.startswith("{\n") else text.splitlines():
        json.loads(document)


def test_the_template_of_the_page_fits_the_family_that_it_is_for() -> None:
    (text,) = [text for page, kind, text in BLOCKS if page == "docs/templates.md" and kind == "json"]
    template = ConversationTemplate.from_config(json.loads(text), "my_template.json")
    tokenizer = copy.deepcopy(family("qwen2.5"))
    tokenizer.chat_template = CHATML  # as Qwen's own tokenizer brings one
    assert all(check.ok for check in check_template(Conversation(template, tokenizer)))
