"""Secrets in settings: a run uses them, and neither writes nor shows them.

An address may hold a password or a signature, options of a reward function may hold a key. `redacted` leaves them out of
everything that a run keeps or publishes: config.yaml, environment.json, checkpoints, trackers, report, model card, messages.
"""

import re
from typing import Any

REDACTED = "<redacted>"
_ADDRESS = re.compile(
    r"""(?<![a-z0-9+.-])(?P<scheme>[a-z][a-z0-9+.-]{0,20}://)   # https://
        (?P<user>[^\s/?#@'"]+@)?                                # name:password@
        (?P<place>[^\s?#'"]*)                                   # host/path
        (?P<query>[?#][^\s'"]*)?                                # ?X-Signature=...""",
    re.IGNORECASE | re.VERBOSE,
)
_NAMED = re.compile(
    r"""(?P<name>(?P<quote>["'])[^"'\s]{0,60}(?:key|token|secret|password|passwd|credentials?|authorization)(?P=quote)\s*:\s*)
        (?P<mark>["'])(?:\\.|(?!(?P=mark))[^\\])*(?P=mark)""",
    re.IGNORECASE | re.VERBOSE,
)


def redacted(value: Any) -> Any:
    """The value, or the tree of dictionaries and lists, with `REDACTED` for what may be secret in its texts.

    That is name, password and query of an address, and what a key named like a secret (`api_key`, `token`, ...) has in JSON.

    >>> redacted({"data": {"prompt_csv_url": "https://me:pw@host/a.csv?signature=1"}})
    {'data': {'prompt_csv_url': 'https://<redacted>@host/a.csv?<redacted>'}}
    >>> redacted('{"judge": {"api_key": "sk-1", "calls": 3}}')
    '{"judge": {"api_key": "<redacted>", "calls": 3}}'
    """
    if isinstance(value, str):
        return _NAMED.sub(_without_value, _ADDRESS.sub(_without_login, value))
    if isinstance(value, dict):
        return {name: redacted(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(redacted(one) for one in value)
    return value


def _without_login(found: re.Match[str]) -> str:
    user = f"{REDACTED}@" if found["user"] else ""
    query = f"{found['query'][0]}{REDACTED}" if found["query"] else ""
    return f"{found['scheme']}{user}{found['place']}{query}"


def _without_value(found: re.Match[str]) -> str:
    return f"{found['name']}{found['mark']}{REDACTED}{found['mark']}"
