"""The check of a built site: it finds what would be fetched from elsewhere, and nothing else."""

from pathlib import Path

import pytest

from docs.generate.offline import requests_elsewhere

LOADS = {
    "script": '<script src="https://unpkg.com/x.js"></script>',
    "script without scheme": '<script src="//unpkg.com/x.js"></script>',
    "style": '<link rel="stylesheet" href="https://fonts.googleapis.com/css">',
    "font": '<link rel="preconnect" href="https://fonts.gstatic.com" crossorigin>',
    "icon": '<link rel="icon" href="https://example.org/x.png">',
    "picture": '<img alt="" src="http://example.org/x.png">',
    "pictures": '<img alt="" srcset="http://example.org/x.png 2x">',
    "frame": '<iframe src="https://example.org"></iframe>',
    "in a style": "<style>@import 'https://example.org/x.css';</style>",
    "in an attribute": '<div style="background: url(https://example.org/x.png)"></div>',
    "mermaid": '<pre class="mermaid"><code>graph LR</code></pre>',
}
LOADS_NOTHING = """
<a href="https://example.org">a link</a> <link rel="canonical" href="https://example.org/page">
<link rel="stylesheet" href="assets/x.css"> <script src="../x.js"></script> <img src="x.png"> <script>var a = "https://b"</script>
<style>a { background: url(x.png) }</style> <img src="data:image/png;base64,AA==">
"""


@pytest.mark.parametrize("what", LOADS)
def test_a_request_is_found(what: str, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(f"<html>{LOADS[what]}</html>")
    (found,) = requests_elsewhere(tmp_path)
    assert found.startswith("page.html: ")


def test_links_and_own_files_are_none(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(LOADS_NOTHING)
    (tmp_path / "x.css").write_text("@font-face { src: url(fonts/x.woff2) }")
    assert list(requests_elsewhere(tmp_path)) == []


def test_stylesheets_are_read(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "x.css").write_text("@font-face { src: url('https://fonts.gstatic.com/x.woff2') }")
    (found,) = requests_elsewhere(tmp_path)
    assert found.startswith("deep/x.css: ")
