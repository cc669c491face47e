"""A griffe extension: the doctests in docstrings become code blocks of the API pages."""

import re
from typing import Any

import griffe

# From a prompt to the next empty line, as the doctest module reads it.
EXAMPLE = re.compile(r"(?:^|(?<=\n))(>>> .*?)(?=\n[ \t]*\n|\Z)", re.DOTALL)


class Doctests(griffe.Extension):
    """Puts fences around every example."""

    def on_object(self, *, obj: griffe.Object, **more: Any) -> None:
        """Called for each module, class, function and attribute."""
        if obj.docstring:
            obj.docstring.value = EXAMPLE.sub(r"```pycon\n\1\n```", obj.docstring.value)
