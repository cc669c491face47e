"""The site's pages: each is in the navigation, links lead somewhere, the API's names are names."""

import ast
import re
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
MADE = {"settings.md"}  # by docs/generate/hooks.py
OUTSIDE = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "examples").rglob("*.md"))]
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")


def targets(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    for part in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from targets(part)


def test_the_navigation_has_every_page_once() -> None:
    found = list(targets(SITE["nav"]))
    assert sorted(found) == sorted([*PAGES, *MADE])


def test_warnings_are_errors_and_nothing_is_fetched_when_a_page_is_opened() -> None:
    assert SITE["strict"] is True and SITE["theme"]["font"] is False
    assert SITE["validation"]["nav"]["omitted_files"] == SITE["validation"]["links"]["anchors"] == "warn"
    assert "docs/generate/hooks.py" in SITE["hooks"]


@pytest.mark.parametrize("page", [DOCS / name for name in PAGES] + OUTSIDE, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_to_files_lead_somewhere(page: Path) -> None:
    for link in (a or b for a, b in LINK.findall(page.read_text())):
        path, _, anchor = link.partition("#")
        if "://" in link or not path or Path(path).name in MADE:
            continue
        assert (page.parent / path).is_file(), link
        assert (page.parent / path).resolve().is_relative_to(DOCS) or page in OUTSIDE, f"{link} leaves the site"
        if anchor and path.endswith(".md") and page.is_relative_to(DOCS):
            assert anchor in anchors(page.parent / path), link


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    kept = (re.sub(r"[^\w\s-]", "", re.sub(r"`", "", title)).strip().lower() for title in titles)
    return {re.sub(r"[-\s]+", "-", title) for title in kept} | set(re.findall(r"::: (\S+)", page.read_text()))


@pytest.mark.parametrize("page", sorted((DOCS / "api").glob("*.md")), ids=lambda p: p.stem)
def test_the_names_of_the_api_are_in_the_source(page: Path) -> None:
    """Read as text, as the site's builder does: importing them all would take long."""
    text = page.read_text()
    named = re.findall(r"^::: (\S+)\n(?:    options: \{.*?members: \[(.*?)\].*\n)?", text, re.MULTILINE)
    assert named or page.stem == "index"
    for place, members in named:
        module, name = _split(place)
        known = _names(module)
        assert name is None or name in known, place
        assert set(filter(None, re.split(r",\s*", members))) <= known, place


def _split(place: str) -> tuple[str, str | None]:
    """`rlvr.api.train` -> (`rlvr.api`, `train`); a module -> (module, None)."""
    parent, _, name = place.rpartition(".")
    return (place, None) if _file(place) else (parent, name)


def _file(module: str) -> Path | None:
    base = ROOT.joinpath(*module.split("."))
    return next((p for p in (base.with_suffix(".py"), base / "__init__.py") if p.is_file()), None)


def _names(module: str) -> set[str]:
    path = _file(module)
    assert path, module
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found


def test_what_pages_include_is_there() -> None:
    included = [
        re.sub(r":\d+$", "", name)
        for page in DOCS.rglob("*.md")
        for name in re.findall(r'--8<-- "([^"]+)"', page.read_text())
    ]
    assert included and all((ROOT / name).is_file() for name in included)
    results = {path.name for path in (ROOT / "benchmarks" / "results").glob("*.md")}
    assert results <= {Path(name).name for name in included}, "a benchmark's result that docs/benchmarks.md lacks"


def test_python_of_the_build_is_not_copied_into_the_site() -> None:
    assert "generate/" in SITE["exclude_docs"] and find_spec("docs.generate.settings_page")


def test_every_extra_is_in_the_table() -> None:
    table = (DOCS / "index.md").read_text().partition("| brings |")[2].partition("\n\n")[0]
    named = {name for row in table.splitlines()[2:] for name in re.findall(r"`([^`]+)`", row.split("|")[1])}
    assert named == set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
