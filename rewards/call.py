"""Calling a reward function: arguments by name, once for each sample, and a result that is checked."""

import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any

from rewards.errors import UserError
from rewards.outcome import STATUSES, UNDECIDED, Outcome, Score
from rewards.registry import RewardFunction
from rewards.sample import FIELDS, PLURAL_OF, Sample


def score(function: RewardFunction, samples: Sequence[Sample]) -> list[Score]:
    """Call `function` on samples; returns one checked score for each.

    A function of singular names is called once for each sample, one of plural names once for all of them. It may return
    a number, None (does not apply), a mapping of components (their sum counts, or the component `score` if there is one),
    an `Outcome`, or a `Score`.

    Raises:
        UserError: an argument that nothing supplies, or a result of the wrong length or type, NaN or infinite; the
            message names the function.
    """
    if not samples:
        return []
    if not function.batched:
        return [_check(function, function.function(**_arguments(function, s)), s) for s in samples]
    results = function.function(**_batch_arguments(function, samples))
    if isinstance(results, str | Mapping) or not hasattr(results, "__len__"):
        raise UserError(
            f"reward function {function.name!r} must return a list of {len(samples)} scores, not {results!r}"
        )
    if len(results) != len(samples):
        raise UserError(
            f"reward function {function.name!r} returned {len(results)} scores for {len(samples)} responses"
        )
    return [_check(function, result, sample) for result, sample in zip(results, samples, strict=True)]


def _arguments(function: RewardFunction, sample: Sample) -> dict[str, Any]:
    return _inject(function, sample.known())


def _batch_arguments(function: RewardFunction, samples: Sequence[Sample]) -> dict[str, Any]:
    known = [sample.known() for sample in samples]
    columns = {name for one in known for name in one} - set(FIELDS) - set(PLURAL_OF.values())
    batch = {plural: [one[name] for one in known] for name, plural in PLURAL_OF.items()}
    batch |= {name: [one.get(name) for one in known] for name in columns}
    return _inject(function, batch | {"tags": samples[0].tags})


def _inject(function: RewardFunction, known: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that the function asks for, from the options first and then from what is known of the sample."""
    chosen: dict[str, Any] = dict(function.options)
    for name, parameter in function.parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            chosen |= {key: value for key, value in known.items() if key not in chosen}
        elif name not in chosen and name in known:
            chosen[name] = known[name]
        elif name not in chosen and parameter.default is inspect.Parameter.empty:
            if parameter.kind is not inspect.Parameter.VAR_POSITIONAL:
                raise UserError(
                    f"{function.kind} {function.name!r} asks for {name!r}, which is not available; available are: {', '.join(known)}"
                )
    return chosen


def _check(function: RewardFunction, result: Any, sample: Sample) -> Score:
    if result is None:
        return Score(None)
    if isinstance(result, Score):
        components = {name: _number(function, value, sample) for name, value in result.components.items()}
        value = None if result.value is None else _number(function, result.value, sample)
        outcome = None if result.outcome is None else _outcome(function, result.outcome)
        return Score(value, outcome, components, str(result.text))
    if isinstance(result, Outcome):
        _outcome(function, result)
        return Score(None if result.status in UNDECIDED else float(result.correct), result)
    if isinstance(result, Mapping):
        components = {str(name): _number(function, value, sample) for name, value in result.items()}
        return Score(components.get("score", sum(components.values())), None, components)
    return Score(_number(function, result, sample))


def _outcome(function: RewardFunction, outcome: Any) -> Outcome:
    """The outcome, if its parts are of the types that they are declared with."""
    texts = (
        {"answer": outcome.answer, "stage": outcome.stage, "message": outcome.message}
        if isinstance(outcome, Outcome)
        else {}
    )
    wrong = [
        name for name, value in texts.items() if not (isinstance(value, str) or (name == "answer" and value is None))
    ]
    if (
        not texts
        or wrong
        or type(outcome.status) is not str
        or outcome.status not in STATUSES
        or not isinstance(outcome.elapsed_s, int | float)
    ):
        raise UserError(
            f"reward function {function.name!r} returned {outcome!r:.200}; an Outcome has a status ({', '.join(STATUSES)}) and texts as "
            "answer, stage and message: Outcome('correct', answer='42')"
        )
    return outcome


def _number(function: RewardFunction, value: Any, sample: Sample) -> float:
    # Numbers of NumPy and torch convert themselves; text would too, and is no score.
    if isinstance(value, str | bytes) or not hasattr(value, "__float__"):
        raise UserError(
            f"reward function {function.name!r} returned {value!r} ({type(value).__name__}) for the response "
            f"{sample.response[:80]!r}; it must return a number, None, or a mapping of numbers"
        )
    try:
        number = float(value)
    except OverflowError:  # a whole number of hundreds of digits
        number = math.inf
    if not math.isfinite(number):
        raise UserError(
            f"reward function {function.name!r} returned {number} for the response {sample.response[:80]!r}"
        )
    return number
