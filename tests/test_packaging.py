"""The wheel brings everything that the checkout has: packages, templates, the command."""

import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return next(out.glob("*.whl"))


@pytest.mark.processes
def test_the_wheel_holds_templates_and_nothing_odd(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    shipped = {Path(n).name for n in names if n.startswith("rlvr/templates/")}
    assert shipped == {p.name for p in (ROOT / "templates").iterdir()}
    assert {"rlvr/report/page.html.j2", "rlvr/report/style.css", "rlvr/leaderboard/page.html.j2"} <= set(names)
    assert {n.split("/")[0] for n in names} - {"rlvr", "rewards"} == {
        n for n in {m.split("/")[0] for m in names} if "dist-info" in n
    }


@pytest.mark.processes
def test_an_installed_wheel_works_from_an_empty_folder(wheel: Path, tmp_path: Path) -> None:
    """Unpacked on the path, with the checkout out of sight."""
    site, empty = tmp_path / "site", tmp_path / "empty"
    empty.mkdir()
    zipfile.ZipFile(wheel).extractall(site)
    code = """
import rewards, rlvr, sys
from rlvr.prompting.conversation import ConversationTemplate
from rlvr.prompting.template import template_names
assert rewards.__file__.startswith(sys.argv[1]) and rlvr.__file__.startswith(sys.argv[1]), rlvr.__file__
assert "tiny" in template_names() and "qwen2.5" in template_names()
for name in template_names():
    ConversationTemplate.load(name)
assert rewards.grade("<think></think><answer>4</answer>", "4", tags=rewards.Tags.default()).correct
from rlvr.cli.main import main
assert main(["template", "list"]) == 0
"""
    # -P and a bare path keep the checkout, which is installed for development, behind the unpacked wheel.
    env = {"PYTHONPATH": str(site), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code, str(site)], cwd=empty, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "smollm2" in done.stdout


def test_plain_pip_finds_versions_that_suit_colossalai_too() -> None:
    """ColossalAI's own metadata has upper bounds, which uv is told to ignore and pip is not."""
    ours = {
        r.name: r
        for r in map(Requirement, tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"])
    }
    theirs = [Requirement(text) for text in metadata.requires("colossalai") or []]
    ends = {r.name: s.version for r in theirs if not r.marker for s in r.specifier if s.operator in ("<=", "==")}
    assert {"torch", "transformers", "peft"} <= ends.keys()
    for name in ends.keys() & ours.keys():
        assert ours[name].specifier.contains(ends[name]), name


def test_an_old_peft_is_named_where_lora_needs_a_newer(monkeypatch) -> None:
    import peft

    from rlvr.errors import UserError
    from rlvr.models.lora_config import import_peft

    monkeypatch.setattr(peft, "__version__", "0.13.2")
    with pytest.raises(UserError, match=r"0\.18 or newer, and here is 0\.13\.2"):
        import_peft()
