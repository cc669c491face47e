"""Functions written for TRL: `fn(completions, **columns) -> [float | None]`, one call for a batch.

TRL gives completions as chat messages or as texts, as its data set is, and a function handles one of the two or both.
Nothing in the signature says which. So the function first gets texts that notice when they are read as messages; if
they are, what it returned or raised is discarded and it is called with messages.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

from rewards.errors import UserError
from rewards.foreign.signatures import arguments, columns_of, name_of, required, settled, unpacked
from rewards.outcome import Score

GOLD_NAMES = ("solution", "answer", "ground_truth", "gold", "target", "label")
"""A function that asks for one of these gets the right answer where the data has no such column."""


class Text(str):
    """A text that notices, in `asked`, being read as chat messages: `text[0]["content"]`, `message.get("role")`, ..."""

    asked: list[str]

    def __new__(cls, text: str, asked: list[str]) -> "Text":
        self = super().__new__(cls, text)
        self.asked = asked
        return self

    def __getitem__(self, key: Any) -> "Text":
        if isinstance(key, str):
            self.asked.append(key)
            raise TypeError("string indices must be integers, not 'str'")
        # The first message of an empty response is there; its first character is not.
        return Text(super().__getitem__(key) if self or not isinstance(key, int) else "", self.asked)

    def __iter__(self) -> Any:
        # Code that reads messages reads the first one; the rest stays as fast as plain text.
        return chain([self[:1]] if self else [], str(self)[1:])

    def __add__(self, other: str) -> "Text":
        return Text(super().__add__(other), self.asked)

    def __contains__(self, item: Any) -> bool:
        if len(self) <= 1 and item in ("role", "content"):
            self.asked.append(item)
        return super().__contains__(item)

    def __getattr__(self, name: str) -> Any:
        if name in ("get", "keys", "items", "values"):
            self.asked.append(name)
        raise AttributeError(f"'str' object has no attribute {name!r}")

    def __reduce__(self) -> Any:
        return str, (str(self),)


class Log:
    """Collects what the function logs through `log_metric` and `log_extra`; numbers become components of the scores."""

    def __init__(self, count: int) -> None:
        self.components: list[dict[str, float]] = [{} for _ in range(count)]

    def metric(self, name: str, value: float) -> None:
        self.extra(name, [value] * len(self.components))

    def extra(self, column: str, values: Sequence[Any]) -> None:
        for components, value in zip(self.components, unpacked(values), strict=False):
            if isinstance(unpacked(value), int | float):
                components[column] = float(value)


def call(
    function: Callable[..., Any],
    options: Mapping[str, Any],
    responses: Sequence[str],
    golds: Sequence[str | None],
    prompts: Sequence[str],
    questions: Sequence[str | None],
    responses_ids: Sequence[Sequence[int]],
    **known: Any,
) -> Any:
    """The function's scores of a batch; None = skipped. What it logs becomes components."""
    columns = columns_of(known, options)
    gold_columns = {name: golds for name in GOLD_NAMES if name not in columns and name not in options}
    own = {name: value for name, value in options.items() if name != "conversational"}
    offered = {**gold_columns, "question": questions, **columns, **own}
    offered["completion_ids"] = [list(ids) for ids in responses_ids]
    _require_gold(function, gold_columns)
    asked: list[str] = []
    conversational = options.get("conversational", False)
    if "conversational" in options:
        return _call(function, offered, _form(responses, prompts, questions, conversational), conversational)
    texts = {"completions": [Text(r, asked) for r in responses], "prompts": [Text(p, asked) for p in prompts]}
    try:
        result = _call(function, offered, texts, False)
    except Exception:
        if not asked:
            raise
    if asked:
        return _call(function, offered, _form(responses, prompts, questions, True), True)
    return result


def _form(
    responses: Sequence[str], prompts: Sequence[str], questions: Sequence[str | None], conversational: bool
) -> dict[str, list[Any]]:
    if not conversational:
        return {"completions": list(responses), "prompts": list(prompts)}
    asked = [prompt if question is None else question for prompt, question in zip(prompts, questions, strict=True)]
    return {
        "completions": [[{"role": "assistant", "content": response}] for response in responses],
        "prompts": [[{"role": "user", "content": question}] for question in asked],
    }


def _call(function: Callable[..., Any], offered: Mapping[str, Any], texts: Mapping[str, Any], messages: bool) -> Any:
    log = Log(len(texts["completions"]))
    offered = {**offered, **texts, "log_extra": log.extra, "log_metric": log.metric}
    try:
        scores = unpacked(settled(function(**arguments(function, offered, offered))))
    except (TypeError, AttributeError, KeyError, IndexError) as error:
        given, other = ("chat messages", "false") if messages else ("texts", "true")
        error.add_note(
            f"{name_of(function)} was given completions as {given}. If it expects the other form: "
            f'--reward_options \'{{"{name_of(function)}": {{"conversational": {other}}}}}\''
        )
        raise
    if not isinstance(scores, list) or not any(log.components) or len(scores) != len(log.components):
        return scores
    return [Score(score, None, components) for score, components in zip(scores, log.components, strict=True)]


def _require_gold(function: Callable[..., Any], gold_columns: Mapping[str, Sequence[str | None]]) -> None:
    for name in required(function):
        golds = gold_columns.get(name, ())
        if golds and all(gold is None for gold in golds):
            raise UserError(
                f"reward function {name_of(function)!r} asks for {name!r}; the data has no such column, and no right answers "
                f"that could stand in for it. Add a column {name!r}, or say which one holds the right answers"
            )
