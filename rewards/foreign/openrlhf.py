"""Functions written for OpenRLHF: `reward_func(queries, prompts, labels, **kwargs)`, one call for a batch.

A query is the prompt with its response. Returned are the rewards (list or tensor), or a dict of `rewards`, `scores` and
`extra_logs`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rewards.errors import UserError
from rewards.foreign.signatures import arguments, columns_of, name_of, settled, unpacked
from rewards.outcome import Score


def call(
    function: Callable[..., Any],
    options: Mapping[str, Any],
    responses: Sequence[str],
    golds: Sequence[str | None],
    prompts: Sequence[str],
    **known: Any,
) -> Any:
    """The function's scores of a batch. `scores` and the numbers of `extra_logs` become components."""
    offered = {
        "queries": [prompt + response for prompt, response in zip(prompts, responses, strict=True)],
        "prompts": list(prompts),
        "labels": ["" if gold is None else gold for gold in golds],
        **options,
    }
    chosen = arguments(function, {**columns_of(known, options), **offered}, offered)
    result = settled(function(**chosen))
    if not isinstance(result, Mapping):
        return unpacked(result)
    if "rewards" not in result:
        raise UserError(f"reward function {name_of(function)!r} returned a dict without 'rewards': {sorted(result)}")
    rewards = unpacked(result["rewards"])
    if not isinstance(rewards, list) or len(rewards) != len(responses):
        return rewards
    logs = {"scores": result.get("scores"), **(result.get("extra_logs") or {})}
    return [Score(reward, None, _components(logs, i, len(rewards))) for i, reward in enumerate(rewards)]


def _components(logs: Mapping[str, Any], place: int, count: int) -> dict[str, float]:
    """One sample's share of what is logged: its entry of a list, the whole of a single number."""
    components = {}
    for name, value in logs.items():
        value = unpacked(value)
        if isinstance(value, list):
            value = unpacked(value[place]) if len(value) == count else None
        if isinstance(value, int | float):
            components[str(name)] = float(value)
    return components
