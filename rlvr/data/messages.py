"""Chat messages in a column: {"role": ..., "content": ...}, ShareGPT's {"from": ..., "value": ...}, or ColossalChat's
{"from": ..., "content": ...}."""

from collections.abc import Mapping, Sequence
from typing import Any

from rlvr.data.rows import short
from rlvr.errors import UserError, listed

ROLES = ("system", "user", "assistant")
OTHER_NAMES = {"human": "user", "gpt": "assistant"}
"""Roles as ShareGPT and ColossalChat call them."""
Message = Mapping[str, str]
"""`role` and `content`."""


def read_messages(value: Sequence[Any], place: str, column: str, *, any_role: bool = False) -> list[Message]:
    """The messages of a column's list.

    Args:
        any_role: take messages of further roles, such as `tool`.

    Raises:
        UserError: something else is among them, or a role that is not known.
    """
    messages: list[Message] = []
    for given in value:
        message = _named_as_ours(given) if isinstance(given, Mapping) else {}
        if not all(isinstance(message.get(key), str) for key in ("role", "content")):
            raise UserError(
                f'{place}: column {column!r} must hold chat messages such as {{"role": "user", "content": "2+3?"}}, not {short(given)}'
            )
        if not any_role and message["role"] not in ROLES:
            raise UserError(
                f"{place}: column {column!r} has a message of the role {message['role']!r}; roles are {listed(ROLES)}"
            )
        messages.append({"role": message["role"], "content": message["content"]})
    return messages


def _named_as_ours(message: Mapping[str, Any]) -> Mapping[str, Any]:
    if "from" not in message:
        return message
    role = message["from"]
    content = message["value"] if "value" in message else message.get("content")
    return {"role": OTHER_NAMES.get(role, role) if isinstance(role, str) else role, "content": content}
