"""Prompts of an evaluation: data sets read and encoded; problems that can't be graded or are too long are left out with a note."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Literal

from rlvr.data.problems import with_good_golds
from rlvr.data.prompts import Prompt, prepare_prompts
from rlvr.data.readers import read_problems
from rlvr.data.rows import SUFFIXES
from rlvr.errors import UserError, plain_name
from rlvr.prompting.conversation import Conversation


@dataclass(frozen=True)
class EvalPrompt:
    """A held-out problem as a prompt, with the data set's name in the results."""

    dataset: str
    prompt: Prompt


@dataclass(frozen=True)
class EvalDataSettings:
    """How the data sets of an evaluation are read.

    Attributes:
        flag: the one that names the data sets, for messages.
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


def read_eval_prompts(
    source: str,
    name: str,
    settings: EvalDataSettings,
    conversation: Conversation,
    notes: list[str],
    functions: Sequence[Any] = (),
) -> list[EvalPrompt]:
    """The problems of one data set as prompts.

    Args:
        source: as `rlvr.data.readers.read_problems` takes it.
        name: its name in the results.
        notes: receives what was left out.
        functions: reward functions that score the responses besides, which may need right answers.

    Raises:
        UserError: it can't be read, has no right answers, or all prompts are too long.
    """
    problems = read_problems(
        [source],
        split=settings.split,
        question_column=settings.question_column,
        answer_column=settings.answer_column,
        limit=settings.limit,
        seed=settings.seed,
    )
    good = [p for p in with_good_golds(problems, notes, functions) if p.checkable]
    if not good:
        raise UserError(
            f"{settings.flag} {source}: no problem has a right answer to compare with; name the column that holds it: "
            "--answer_column NAME"
        )
    prepared = prepare_prompts(good, conversation, settings.max_prompt_tokens, settings.overlong)
    for count, what in ((prepared.dropped, "left out"), (prepared.truncated, "cut")):
        if count:
            notes.append(
                f"{name}: {count} of {len(good)} prompts {what}: longer than {settings.max_prompt_tokens} tokens"
            )
    return [EvalPrompt(name, prompt) for prompt in prepared.prompts]


def short_dataset_names(sources: Sequence[str]) -> list[str]:
    """A name of each data set for metrics: the last part of its path, and as many before it as tell them apart.

    Names hold letters, digits, `_`, `.` and `-` only, which every tracker takes.

    >>> short_dataset_names(["builtin", "openai/gsm8k@main:test", "data/math.jsonl"])
    ['builtin', 'gsm8k', 'math']
    >>> short_dataset_names(["a/test.jsonl", "b/test.jsonl"])
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
    parts = [plain_name(part) for part in path.parts]
    return [p for p in parts if p.strip("_.")] or ["data"]
