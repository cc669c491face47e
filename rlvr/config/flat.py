"""Settings by the names of their flags alone: `train(pretrain="tiny", lr=1e-5)`. Names are unique over the tree."""

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any, get_type_hints

from rewards.errors import UserError
from rlvr.config.run import Config
from rlvr.suggest import did_you_mean


def by_section(settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Flat settings as section -> name -> value. Aliases of flags are names too.

    Raises:
        UserError: a name that is no setting, or two names of one.
    """
    places = _places()
    tree: dict[str, dict[str, Any]] = {}
    for given, value in settings.items():
        if given not in places:
            raise UserError(f"there is no setting {given!r}.{did_you_mean(given, places)}")
        section, name = places[given]
        if name in tree.setdefault(section, {}):
            raise UserError(f"the setting {name!r} is given twice, once as {given!r}; give it once")
        tree[section][name] = value
    return tree


@cache
def _places() -> dict[str, tuple[str, str]]:
    """Each name and alias -> its section and the field's name."""
    places = {}
    for section in fields(Config):
        kind: Any = section.default_factory
        for name, hint in get_type_hints(kind, include_extras=True).items():
            flags = [
                flag for note in getattr(hint, "__metadata__", ()) for flag in getattr(note, "aliases", None) or ()
            ]
            for known in (name, *(flag.removeprefix("--") for flag in flags)):
                places[known] = (section.name, name)
    return places
