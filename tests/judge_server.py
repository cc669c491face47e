"""A stand-in for an OpenAI-compatible endpoint on this machine: it keeps what it is asked and answers as it is told to."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler
from typing import Any

import local_server

Reply = Callable[[dict[str, str]], str]


def same_words(asked: dict[str, str]) -> str:
    """An honest judge of little wit: the same words in any order."""
    right, answer = (sorted(asked[name].lower().split()) for name in ("right_answer", "student_answer"))
    return "yes" if right == answer else "No."


@dataclass
class Endpoint:
    """What the server does and has seen.

    Attributes:
        reply: to what was asked; a text.
        statuses: answered first, one request each, before replies come.
        body: sent instead of a chat completion.
        asked: the questions, in order; `sent` are the whole requests, `keys` their authorisation.
    """

    reply: Reply = same_words
    statuses: list[int] = field(default_factory=list)
    body: bytes | None = None
    asked: list[dict[str, str]] = field(default_factory=list)
    sent: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    url: str = ""


@contextmanager
def serving() -> Iterator[Endpoint]:
    """The server on a free port of this machine."""
    endpoint = Endpoint()
    with local_server.serving(partial(_Handler, endpoint)) as address:
        endpoint.url = f"{address}/v1"
        yield endpoint


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, endpoint: Endpoint, *arguments: Any) -> None:
        self.endpoint = endpoint
        super().__init__(*arguments)

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        endpoint = self.endpoint
        endpoint.sent.append(request)
        endpoint.keys.append(self.headers.get("Authorization"))
        endpoint.asked.append(json.loads(request["messages"][-1]["content"]))
        status = endpoint.statuses.pop(0) if endpoint.statuses else 200
        if self.path != "/v1/chat/completions":
            status = 404
        message = {"role": "assistant", "content": endpoint.reply(endpoint.asked[-1])}
        body = json.dumps({"choices": [{"message": message}]}).encode() if endpoint.body is None else endpoint.body
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Say nothing of requests."""
