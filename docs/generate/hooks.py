"""What MkDocs calls while it builds: adds the page that is made from the source, keeps names in one piece, and refuses a site
that needs the network."""

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parent)]

import offline  # noqa: E402
import settings_page  # noqa: E402

# A name in the text: code without white space, short enough for a line of a phone.
NAME = re.compile(r"<code>([^<>\s]{2,36})</code>")


def on_files(files: Files, config: Any) -> Files:
    """Add `settings.md`, and the pictures of the examples, whose READMEs are pages."""
    files.append(File.generated(config, "settings.md", content=settings_page.page()))
    for picture in Path(config.docs_dir).parent.glob("examples/*/*.png"):
        files.append(File.generated(config, f"examples/{picture.name}", abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, **more: Any) -> str:
    """Fences that say how a command ends (for its test) are ordinary fences."""
    return re.sub(r"^```bash exit=\w+$", "```bash", markdown, flags=re.MULTILINE)


def on_page_content(html: str, **more: Any) -> str:
    """Mark names, which are not broken at the end of a line (extra.css)."""
    return NAME.sub(r'<code class="name">\1</code>', html)


def on_post_build(config: Any) -> None:
    """Stop if a page would ask another host for something.

    Raises:
        PluginError: names each page and what it would load.
    """
    if found := list(offline.requests_elsewhere(Path(config.site_dir))):
        raise PluginError("the site would ask other hosts for:\n  " + "\n  ".join(found))
