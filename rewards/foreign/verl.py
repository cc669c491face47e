"""Functions written for verl: `compute_score(data_source, solution_str, ground_truth, extra_info=None)`.

Returned is a number, or a dict whose `score` counts and whose other numbers are logged. verl's batch form has the same
names in the plural.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rewards.errors import UserError
from rewards.foreign.signatures import arguments, columns_of, name_of, numbers, settled, unpacked
from rewards.outcome import Score


def call(
    function: Callable[..., Any],
    options: Mapping[str, Any],
    response: str,
    gold: str | None,
    question: str | None = None,
    **known: Any,
) -> Any:
    """The function's score of one response."""
    columns = columns_of(known, options)
    return _score(function, function(**_arguments(function, options, response, gold, question, columns)))


def call_together(
    function: Callable[..., Any],
    options: Mapping[str, Any],
    responses: Sequence[str],
    golds: Sequence[str | None],
    questions: Sequence[str | None],
    **known: Any,
) -> list[Any]:
    """An `async` function's scores of a batch, all awaited together."""
    rows = _rows(columns_of(known, options), len(responses))
    given = [
        _arguments(function, options, response, gold, question, columns)
        for response, gold, question, columns in zip(responses, golds, questions, rows, strict=True)
    ]

    async def together() -> list[Any]:
        return await asyncio.gather(*(function(**one) for one in given))

    return [_score(function, result) for result in settled(together())]


def call_batch(
    function: Callable[..., Any],
    options: Mapping[str, Any],
    responses: Sequence[str],
    golds: Sequence[str | None],
    questions: Sequence[str | None],
    **known: Any,
) -> Any:
    """The scores of a function in verl's batch form."""
    rows = _rows(columns_of(known, options), len(responses))
    offered = {
        "data_sources": [row.get("data_source", "") for row in rows],
        "solution_strs": list(responses),
        "ground_truths": list(golds),
        "extra_infos": [_extra_info(question, row) for question, row in zip(questions, rows, strict=True)],
        **options,
    }
    results = unpacked(settled(function(**arguments(function, offered, offered))))
    return [_score(function, result) for result in results] if isinstance(results, list) else results


def _arguments(
    function: Callable[..., Any],
    options: Mapping[str, Any],
    response: str,
    gold: str | None,
    question: str | None,
    columns: Mapping[str, Any],
) -> dict[str, Any]:
    offered = {
        "data_source": columns.get("data_source", ""),
        "solution_str": response,
        "ground_truth": gold,
        "extra_info": _extra_info(question, columns),
        **options,
    }
    return arguments(function, {**columns, **offered}, offered)


def _extra_info(question: str | None, columns: Mapping[str, Any]) -> Any:
    """The data's own column of this name, else what else is known of the problem."""
    return columns["extra_info"] if "extra_info" in columns else {"question": question, **columns}


def _rows(columns: Mapping[str, Sequence[Any]], count: int) -> list[dict[str, Any]]:
    return [{name: values[i] for name, values in columns.items()} for i in range(count)]


def _score(function: Callable[..., Any], result: Any) -> Any:
    if not isinstance(result, Mapping):
        return result
    if "score" not in result:
        raise UserError(f"reward function {name_of(function)!r} returned a dict without 'score': {dict(result)!r}")
    return Score(result["score"], None, numbers(result, without="score"))
