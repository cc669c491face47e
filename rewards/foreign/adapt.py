"""`adapt`: a function with a peer's signature becomes one of ours.

The result is a `functools.partial` of the peer's adapter (`rewards.foreign.trl.call`, ...), so its arguments are ours,
it pickles wherever the function does, and `rewards.call.score` checks its results as those of any other.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from rewards.errors import UserError
from rewards.foreign import colossalai, openrlhf, trl, verl
from rewards.foreign.signatures import Peer, name_of, peer_of, required, takes_anything

_ADAPTERS: Mapping[Peer, Callable[..., Any]] = {
    "trl": trl.call,
    "verl": verl.call,
    "verl_batch": verl.call_batch,
    "openrlhf": openrlhf.call,
    "colossalai": colossalai.call,
}
# Settings of the adapter itself, beside the function's own arguments.
_OWN_OPTIONS: Mapping[Peer, set[str]] = {"trl": {"conversational"}, "colossalai": {"tokenizer", "gt_answer_ids"}}
_NAMES = {"trl": "TRL", "verl": "verl", "verl_batch": "verl", "openrlhf": "OpenRLHF", "colossalai": "ColossalAI"}
_NOT_HERE = {"trainer_state", "environments"}


def adapt(function: Callable[..., Any], options: Mapping[str, Any] | None = None) -> Callable[..., Any] | None:
    """`function` with our arguments; None if it has no peer's signature.

    Args:
        function: plain or `async`, a callable object, or a partial.
        options: its keyword arguments from the settings, and the adapter's own: `conversational` (TRL: true = chat
            messages, false = texts; found out when absent), `tokenizer` and `gt_answer_ids` (ColossalAI).

    Raises:
        UserError: an option that it does not take, or an argument that only the peer's own trainer has.
    """
    peer = peer_of(function)
    if peer is None:
        return None
    options = dict(options or {})
    _check(function, peer, options)
    call = _ADAPTERS[peer]
    if peer == "verl" and _is_async(function):
        call = verl.call_together
    adapted = partial(call, function, options)
    adapted.__name__ = name_of(function)  # type: ignore[attr-defined]
    adapted.__doc__ = function.__doc__
    # Sending it to another process (`pool.pickling`) needs the module that the function comes from.
    adapted.__module__ = getattr(function, "__module__", None) or type(function).__module__
    return adapted


def _check(function: Callable[..., Any], peer: Peer, options: Mapping[str, Any]) -> None:
    parameters = inspect.signature(function).parameters
    name, allowed = name_of(function), {*parameters, *_OWN_OPTIONS.get(peer, ())}
    unknown = [key for key in options if key not in allowed]
    if unknown and not takes_anything(function):
        raise UserError(
            f"reward function {name!r} (written for {_NAMES[peer]}) takes no option {unknown}; it takes: "
            f"{', '.join(sorted(allowed))}"
        )
    if not isinstance(options.get("conversational", True), bool):
        raise UserError(f"{name!r}: conversational must be true or false, not {options['conversational']!r}")
    missing = [needed for needed in required(function) if needed in _NOT_HERE and needed not in options]
    if missing:
        raise UserError(f"reward function {name!r} asks for {missing[0]!r}, which only TRL's own trainer has")


def _is_async(function: Callable[..., Any]) -> bool:
    while isinstance(function, partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
