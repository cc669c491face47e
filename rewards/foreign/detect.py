"""Whose reward function is this? Its argument names say so.

>>> def compute_score(data_source, solution_str, ground_truth, extra_info=None): ...
>>> peer_of(compute_score)
'verl'
>>> peer_of(lambda response, gold: 1.0) is None
True
"""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

Peer = Literal["trl", "verl", "verl_batch", "openrlhf", "colossalai"]

# A function that asks for one of these is ours, whatever else it asks for.
_OURS = {"response", "responses", "response_ids", "responses_ids"}

# The first line whose names are all there decides.
_SIGNATURES: tuple[tuple[Peer, set[str]], ...] = (
    ("verl", {"solution_str", "ground_truth"}),
    ("verl_batch", {"solution_strs", "ground_truths"}),
    ("openrlhf", {"queries", "prompts"}),
    ("colossalai", {"input_ids", "response_idx"}),
    ("colossalai", {"input_ids", "attention_mask"}),
    ("colossalai", {"input_ids", "gt_answer"}),
    ("trl", {"completions"}),
    ("trl", {"completion_ids"}),
)


def peer_of(function: Callable[..., Any]) -> Peer | None:
    """The library whose signature `function` has, or None for one of ours."""
    names = inspect.signature(function).parameters.keys()
    if names & _OURS:
        return None
    return next((peer for peer, needed in _SIGNATURES if needed <= names), None)


def name_of(function: Callable[..., Any]) -> str:
    """The function's name; that of the function inside a `partial`, and the class's for an object without a name."""
    while isinstance(function, partial) and not hasattr(function, "__name__"):
        function = function.func
    return getattr(function, "__name__", type(function).__name__)
