"""Problems of reasoning-gym's tasks: `reasoning_gym:TASK`, `reasoning_gym:TASK:SPLIT?SETTING=VALUE&...`.

    reasoning_gym:chain_sum                                  sums of two to six numbers
    reasoning_gym:chain_sum?min_terms=2&max_terms=3          shorter ones
    reasoning_gym:countdown?size=500                         500 of its problems, beside those of other sources: a weight

Which problems are held out is decided by a hash of the question, so no seed moves one into training. `reasoning_gym_reward_fn` has the
task's verifier pay (`rewards.procedural`).
"""

import json
from typing import Any, cast
from urllib.parse import parse_qsl

from rewards.procedural import PACKAGE, Task
from rlvr.data.drawing import MAX_MISSES, TEST_SHARE, Split, split_of
from rlvr.data.problems import Problem
from rlvr.errors import UserError, did_you_mean, listed

SIZES = {"train": 2_000, "test": 200}
"""How many problems there are without a limit."""
DRAWS = 20
"""Entries for each problem that is asked for: others are of the other split, or came already."""


def read_procedural(source: str, split: str | None, limit: int | None, seed: int) -> list[Problem]:
    """The problems of a source; as many as there are, where a task has fewer.

    Args:
        split: where the source names none; None is `train`.
        limit: most problems.

    Raises:
        UserError: no such task, setting or split; or the task does not pay its own answers.
    """
    made, chosen, size = parse_source(source, split, seed)
    count = min(limit or SIZES[chosen], size or SIZES[chosen])
    problems: dict[str, Problem] = {}
    unpaid = 0
    misses = 0
    column = {"task": made.name, "settings": list(map(list, made.settings)), "seed": seed, "size": made.size}
    for index in range(made.size):
        if misses == MAX_MISSES:
            break
        misses += 1
        entry = made.entry(index)
        question = entry["question"]
        if split_of(question) != chosen or question in problems:
            continue
        if not _pays_its_own(made, entry):
            unpaid += 1
            continue
        misses = 0
        problems[question] = Problem(
            id=f"{source}/{chosen}/{seed}/{index}",
            question=question,
            answer=entry["answer"],
            columns={"procedural": {**column, "index": index}, "kind": made.name},
            source=f"{source}:{seed}",
        )
        if len(problems) == count:
            break
    if unpaid > len(problems):
        raise UserError(
            f"{source}: the task's verifier does not pay its own answer in {unpaid} of {unpaid + len(problems)} entries; "
            "choose another task"
        )
    if not problems:
        raise UserError(f"{source}: there are no problems in the split {chosen!r}; choose other settings")
    return list(problems.values())


def _pays_its_own(made: Task, entry: Any) -> bool:
    if entry["answer"] is None:  # many are right
        return True
    try:
        return made.pays(entry["answer"], entry) == 1
    except ValueError:
        return False


def parse_source(source: str, split: str | None = None, seed: int = 0) -> tuple[Task, Split, int | None]:
    """The task, the split, and how many problems the source asks for. Errors are those of `read_procedural`."""
    head, _, query = source.partition("?")
    _, _, rest = head.partition(":")
    name, _, named = rest.partition(":")
    chosen = named or split or "train"
    if not name:
        raise UserError(f"{source!r} names no task; give {PACKAGE}:chain_sum, for example")
    if chosen not in SIZES:
        raise UserError(
            f"the tasks of {PACKAGE} have no split {chosen!r}; give {listed(f'{PACKAGE}:{name}:{s}' for s in SIZES)}."
            f"{did_you_mean(chosen, SIZES)}"
        )
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        raise UserError(f"{source!r}: settings are written ?NAME=VALUE&NAME=VALUE, not {query!r}") from None
    settings = {key: _value(text) for key, text in pairs}
    size = settings.pop("size", None)
    if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 1):
        raise UserError(f"{source!r}: size must be a whole number of at least 1, not {size!r}")
    draws = max(MAX_MISSES, DRAWS * size) if size is not None else round(DRAWS * SIZES["train"] * (1 - TEST_SHARE))
    return Task(name, tuple(sorted(settings.items())), seed, draws), cast(Split, chosen), size


def _value(text: str) -> Any:
    """A number, a truth value or a list as JSON has it; anything else is text."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return tuple(value) if isinstance(value, list) else value
