"""Whether a built site asks another host for anything when it is opened: scripts, styles, fonts, pictures, frames."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

LOADED = {
    "script": ("src",),
    "img": ("src", "srcset"),
    "source": ("src", "srcset"),
    "iframe": ("src",),
    "embed": ("src",),
    "object": ("data",),
    "video": ("src", "poster"),
    "audio": ("src",),
    "image": ("href", "xlink:href"),
    "use": ("href", "xlink:href"),
    "link": ("href",),
}
LINKS_THAT_LOAD_NOTHING = {"canonical", "prev", "next", "alternate", "author", "license", "me"}
ELSEWHERE = re.compile(r"^\s*(?:[a-z]+:)?//", re.IGNORECASE)
IN_STYLES = re.compile(r"(?:url\(|@import\s+)\s*['\"]?\s*(?:https?:)?//[^\s'\")]+", re.IGNORECASE)


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._style = False

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self._style = tag == "style"
        self.found += IN_STYLES.findall(given.get("style", ""))
        if tag == "link" and set(given.get("rel", "").split()) <= LINKS_THAT_LOAD_NOTHING:
            return
        if "mermaid" in given.get("class", "").split():
            self.found.append("a mermaid diagram, whose library is fetched when the page is opened")
        for name in LOADED.get(tag, ()):
            if ELSEWHERE.match(given.get(name, "")):
                self.found.append(f"<{tag} {name}={given[name]!r}>")

    def handle_data(self, data: str) -> None:
        if self._style:
            self.found += IN_STYLES.findall(data)


def requests_elsewhere(site: Path) -> Iterator[str]:
    """A line for each thing that a page or a stylesheet under `site` would fetch from another host."""
    for path in sorted(site.rglob("*.html")):
        page = _Page()
        page.feed(path.read_text(encoding="utf-8"))
        yield from (f"{path.relative_to(site)}: {what}" for what in page.found)
    for path in sorted(site.rglob("*.css")):
        yield from (f"{path.relative_to(site)}: {what}" for what in IN_STYLES.findall(path.read_text(encoding="utf-8")))
