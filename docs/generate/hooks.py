"""What MkDocs calls while it builds: adds the page that is made from the source, and refuses a site that needs the network."""

import sys
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parent)]

import offline  # noqa: E402
import settings_page  # noqa: E402


def on_files(files: Files, config: Any) -> Files:
    """Add `settings.md`."""
    files.append(File.generated(config, "settings.md", content=settings_page.page()))
    return files


def on_post_build(config: Any) -> None:
    """Stop if a page would ask another host for something.

    Raises:
        PluginError: names each page and what it would load.
    """
    if found := list(offline.requests_elsewhere(Path(config.site_dir))):
        raise PluginError("the site would ask other hosts for:\n  " + "\n  ".join(found))
