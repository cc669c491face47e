"""Held-out problems: data sets read and made into prompts, those that can't be graded or are too long left out."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Literal

from rlvr.checks.golds import with_good_golds
from rlvr.conversation import Conversation
from rlvr.data.prompts import Prompt, prepare_prompts
from rlvr.data.readers import read_problems
from rlvr.data.rows import SUFFIXES
from rlvr.errors import UserError


@dataclass(frozen=True)
class Asked:
    """A problem of a data set."""

    dataset: str
    prompt: Prompt


@dataclass(frozen=True)
class Reading:
    """How data sets are read.

    Attributes:
        flag: what names them, for messages.
        split: of sources that have several.
        question_column, answer_column: None = the usual names.
        limit: most problems of each data set; drawn by `seed` where there are more.
        max_prompt_tokens: longer prompts are left out, or cut.
    """

    flag: str
    max_prompt_tokens: int
    split: str = "test"
    question_column: str | None = None
    answer_column: str | None = None
    limit: int | None = None
    seed: int = 0
    overlong: Literal["drop", "truncate"] = "drop"


def read_held_out(
    source: str,
    name: str,
    how: Reading,
    conversation: Conversation,
    notes: list[str],
    functions: Sequence[Any] = (),
) -> list[Asked]:
    """The problems of one data set as prompts.

    Args:
        source: as `rlvr.data.readers.read_problems` takes it.
        name: what the results call it.
        notes: receives what was left out.
        functions: reward functions that score the responses besides, which may need right answers.

    Raises:
        UserError: it can't be read, has no right answers, or all prompts are too long.
    """
    problems = read_problems(
        [source],
        split=how.split,
        question_column=how.question_column,
        answer_column=how.answer_column,
        limit=how.limit,
        seed=how.seed,
    )
    good = [p for p in with_good_golds(problems, notes, functions) if p.answer is not None]
    if not good:
        raise UserError(
            f"{how.flag} {source}: no problem has a right answer to compare with; name the column that holds it: "
            "--answer_column NAME"
        )
    prepared = prepare_prompts(good, conversation, how.max_prompt_tokens, how.overlong)
    for count, what in ((prepared.dropped, "left out"), (prepared.truncated, "cut")):
        if count:
            notes.append(f"{name}: {count} of {len(good)} prompts {what}: longer than {how.max_prompt_tokens} tokens")
    return [Asked(name, prompt) for prompt in prepared.prompts]


def short_names(sources: Sequence[str]) -> list[str]:
    """A name of each data set for metrics: the last part of its path, and as many before it as tell them apart.

    Names hold letters, digits, `_`, `.` and `-` only, which every tracker takes.

    >>> short_names(["builtin", "openai/gsm8k@main:test", "data/math.jsonl"])
    ['builtin', 'gsm8k', 'math']
    >>> short_names(["a/test.jsonl", "b/test.jsonl"])
    ['a_test', 'b_test']
    """
    for whole in (False, True):  # configuration and split of hub sets, and suffixes of files, where it takes them
        parts = [_parts(source, whole) for source in sources]
        for count in range(1, max(map(len, parts), default=0) + 1):
            names = ["_".join(p[-count:]) for p in parts]
            if len(set(names)) == len(names):
                return names
    return [f"{_parts(source, False)[-1]}_{place}" for place, source in enumerate(sources)]


def _parts(source: str, whole: bool) -> list[str]:
    path = PurePath(source)
    if not whole:
        path = path.with_suffix("") if path.suffix.lower() in SUFFIXES else PurePath(source.partition("@")[0])
    parts = ["".join(c if c.isascii() and (c.isalnum() or c in "_.-") else "_" for c in p) for p in path.parts]
    return [p for p in parts if p.strip("_.")] or ["data"]
