"""`--help` of a tree of settings: an overview with a line for each flag, and topics or single flags in full.

Instead of tyro's own help, which lists 150 flags in 500 lines, has no topics, and can't show the built-in model's own defaults.
"""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rewards.errors import UserError
from rlvr.config.catalog import Flag, Place, Section, canonical, catalog, flags_by_spelling, show
from rlvr.errors import did_you_mean, listed

WIDTH = 100
LEFT = 36  # columns of a flag with its value
GENERAL = {
    "--config FILE": "settings from a YAML file; flags win over it",
    "--help [NAME ...]": "this overview; topics (such as `train`) or flags (such as `lr`) in full",
    "--help_all": "every topic in full",
}


@dataclass(frozen=True)
class About:
    """The parts of help that are not in the tree of settings.

    Attributes:
        prog: the command, such as `rlvr train`.
        description: the purpose of the command, in a line or two.
        general: flags that are no settings -> their texts.
        dashes: show flags with dashes rather than underscores.
        notes: settings whose default differs for some model -> a note that says so.
    """

    prog: str
    description: str
    general: Mapping[str, str] = field(default_factory=lambda: GENERAL)
    notes: Mapping[Place, str] = field(default_factory=dict)
    dashes: bool = False

    def spelled(self, name: str) -> str:
        """A flag's name as it is shown."""
        return name.replace("_", "-") if self.dashes else name


def asks_for_help(argv: Sequence[str]) -> bool:
    """True if the words ask for help rather than for a run."""
    return any(word in ("-h", "--help", "--help-all", "--help_all") for word in argv)


def help_text(kind: type, argv: Sequence[str], about: About) -> str:
    """The help that these words ask for.

    Raises:
        UserError: help on something that is neither a topic nor a flag.
    """
    if any(canonical(word) == "help_all" for word in argv if word.startswith("--")):
        return "\n".join([_head(about), *(_in_full(section, about) for section in catalog(kind))])
    at = next(i for i, word in enumerate(argv) if word in ("-h", "--help"))
    wanted = []
    for word in argv[at + 1 :]:
        if word.startswith("-") and not word.startswith("--"):
            break
        wanted.append(canonical(word))
    if not wanted:
        return _overview(kind, about)
    return "\n".join(_of(kind, name, about) for name in wanted)


def _of(kind: type, name: str, about: About) -> str:
    sections = {section.name: section for section in catalog(kind)}
    if name in sections:
        return _in_full(sections[name], about)
    flags = flags_by_spelling(kind)
    if name in flags:
        flag = flags[name]
        return f"{_of_one(flag, about)}\n\n  topic: {flag.section} (in full: {about.prog} --help {flag.section})\n"
    raise UserError(
        f"--help {name}: neither a topic ({listed(sections)}) nor a flag.{did_you_mean(name, [*sections, *flags])}"
    )


def _head(about: About) -> str:
    lines = [f"usage: {about.prog} [flags]", "", about.description, ""]
    lines += [_line(flag, text, "") for flag, text in about.general.items()]
    lines += ["", "Flags take `-` and `_` alike. [ ] holds the default.", ""]
    return "\n".join(lines)


def _overview(kind: type, about: About) -> str:
    parts = [_head(about)]
    for section in catalog(kind):
        title = f"{section.name}: {_first_sentence(section.text)}"
        lines = [_line(_usage(flag, about), _gist(flag), _default(flag, about.notes)) for flag in section.flags]
        parts.append("\n".join([_cut(title, WIDTH), *lines, ""]))
    return "\n".join(parts)


def _usage(flag: Flag, about: About) -> str:
    """`--name VALUE`, with the values themselves where they fit; `--[no_]name` for a switch."""
    if flag.is_switch:
        return f"--{about.spelled('[no_]' + flag.name)}"
    values = "{" + ",".join(flag.choices) + "}"
    return f"--{about.spelled(flag.name)} {values if _choices_fit(flag) else flag.metavar}"


def _choices_fit(flag: Flag) -> bool:
    return bool(flag.choices) and len(flag.name) + len(",".join(flag.choices)) + 8 <= LEFT


def _gist(flag: Flag) -> str:
    """The text of its line: what it is, or where its values stand for themselves and don't fit beside its name, these."""
    return flag.text if not flag.choices or _choices_fit(flag) else ", ".join(flag.choices)


def _line(left: str, text: str, default: str) -> str:
    """One line: flag, the beginning of its text, and its default at the right edge."""
    left = f"  {left}"
    pad = max(LEFT, len(left) + 1)
    room = WIDTH - pad - (len(default) + 1 if default else 0)
    body = _cut(_first_sentence(text), room)
    return f"{left:<{pad}}{body:<{room}}{' ' + default if default else ''}".rstrip()


def _first_sentence(text: str) -> str:
    head, stop, _ = text.partition(". ")
    return head if stop else text.removesuffix(".")


def _cut(text: str, room: int) -> str:
    if len(text) <= room:
        return text
    kept = text[: room - 3].rsplit(" ", 1)[0].rstrip(" ,:;(")
    return f"{kept}..."


def _default(flag: Flag, notes: Mapping[Place, str]) -> str:
    note = notes.get(flag.place)
    shown = show(flag.default)
    return f"[{shown}; {note}]" if note else f"[{shown}]"


def _in_full(section: Section, about: About) -> str:
    head = [f"{section.name}:", *textwrap.wrap(section.text, WIDTH - 2, initial_indent="  ", subsequent_indent="  ")]
    return "\n".join([*head, "", *(_of_one(flag, about) + "\n" for flag in section.flags)])


def _of_one(flag: Flag, about: About) -> str:
    """A flag with all its names, its values, text and default."""
    names = [flag.name, *flag.aliases] + ([f"no_{flag.name}"] if flag.is_switch else [])
    values = "{" + ",".join(flag.choices) + "}" if flag.choices else flag.metavar
    title = f"{', '.join(f'--{about.spelled(name)}' for name in names)} {values}".rstrip()
    body = f"{flag.text} {_default(flag, about.notes)}".strip()
    return "\n".join(
        [
            *textwrap.wrap(title, WIDTH - 2, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False),
            *textwrap.wrap(
                body, WIDTH - 2, initial_indent="      ", subsequent_indent="      ", break_on_hyphens=False
            ),
        ]
    )
