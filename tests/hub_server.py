"""A stand-in for the Hugging Face hub on this machine: it answers what huggingface_hub asks when it uploads, keeps what it
gets, and refuses where it is told to.

Requests (huggingface_hub 2.4 without hf_xet; earlier versions ask the same): POST /api/repos/create (where that is refused,
GET /api/models/REPO); POST /api/validate-yaml for the card; POST /api/models/REPO/branch/REVISION; POST .../preupload/REVISION
(which files are large); for large files POST /REPO.git/info/lfs/objects/batch, PUT to the address that this names, and POST to
its `verify`; POST .../commit/REVISION with a line of JSON for each file.
"""

import base64
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import unquote, urlsplit

import local_server
import pytest

TOKEN = "hf_not_a_real_token"


@dataclass
class Hub:
    """What the server holds.

    Attributes:
        files: by repository, revision and path.
        requests: method and path, in order.
        refuse: (part of a path, status) that the server answers with; None = it answers properly.
        large: ends of names whose content goes by LFS.
    """

    files: dict[tuple[str, str], dict[str, bytes]] = field(default_factory=dict)
    private: dict[str, bool] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    authorised: list[bool] = field(default_factory=list)
    refuse: tuple[str, int] | None = None
    large: tuple[str, ...] = (".safetensors",)
    blobs: dict[str, bytes] = field(default_factory=dict)
    verified: set[str] = field(default_factory=set)
    endpoint: str = ""

    def asked(self, part: str) -> int:
        """Number of requests whose path holds this."""
        return sum(part in request for request in self.requests)


@contextmanager
def serving() -> Iterator[Hub]:
    """The server on a free port of this machine."""
    hub = Hub()
    with local_server.serving(partial(_Handler, hub)) as hub.endpoint:
        yield hub


def point_at(monkeypatch: pytest.MonkeyPatch, endpoint: str, token: str | None = TOKEN, xet: bool = False) -> None:
    """Let huggingface_hub talk to this server, with this token, and not wait between tries."""
    from huggingface_hub import constants
    from huggingface_hub.utils import _http

    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", not xet)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", "/nowhere/token")
    monkeypatch.setattr(_http.time, "sleep", lambda seconds: None)
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    if token is not None:
        monkeypatch.setenv("HF_TOKEN", token)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, hub: Hub, *arguments: Any) -> None:
        self.hub = hub
        super().__init__(*arguments)

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()

    def _answer(self) -> None:
        hub, path = self.hub, urlsplit(self.path).path
        body = self._body()
        hub.requests.append(f"{self.command} {path}")
        hub.authorised.append(self.headers.get("Authorization") == f"Bearer {TOKEN}")
        if hub.refuse is not None and hub.refuse[0] in path:
            return self._send({"error": f"refused with {hub.refuse[1]}"}, hub.refuse[1])
        if path.startswith("/lfs/"):
            return self._large(path, body)
        if not hub.authorised[-1]:
            return self._send({"error": "Invalid username or password."}, 401)
        if path == "/api/repos/create":
            return self._create(json.loads(body))
        if path == "/api/validate-yaml":
            return self._send({"errors": [], "warnings": []})
        if path.endswith("/info/lfs/objects/batch"):
            return self._batch(json.loads(body))
        parts = path.removeprefix("/api/models/").split("/")
        repo, action, revision = "/".join(parts[:2]), *[unquote(part) for part in (*parts[2:4], "", "")[:2]]
        if not any(known == repo for known, _ in hub.files):
            return self._send({"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"})
        if not action:
            return self._send({"id": repo, "sha": "0" * 40})
        if action == "branch":
            hub.files.setdefault((repo, revision), dict(hub.files[repo, "main"]))
            return self._send({})
        if action == "preupload":
            return self._preupload(json.loads(body))
        assert action == "commit", self.path
        return self._commit(repo, revision, body)

    def _create(self, asked: dict[str, Any]) -> None:
        repo = f"{asked['organization'] or 'somebody'}/{asked['name']}"
        known = (repo, "main") in self.hub.files
        if not known:
            self.hub.files[repo, "main"] = {}
            self.hub.private[repo] = asked.get("visibility") == "private" or bool(asked.get("private"))
        self._send({"url": f"{self.hub.endpoint}/{repo}"}, 409 if known else 200)

    def _preupload(self, asked: dict[str, Any]) -> None:
        modes = [
            {
                "path": file["path"],
                "uploadMode": "lfs" if file["path"].endswith(self.hub.large) else "regular",
                "shouldIgnore": False,
                "oid": None,
            }
            for file in asked["files"]
        ]
        self._send({"files": modes})

    def _batch(self, asked: dict[str, Any]) -> None:
        assert asked["operation"] == "upload" and asked["hash_algo"] == "sha256"
        place = f"{self.hub.endpoint}/lfs"
        objects = [
            {
                **one,
                "actions": {
                    "upload": {"href": f"{place}/{one['oid']}"},
                    "verify": {"href": f"{place}/verify"},
                },
            }
            for one in asked["objects"]
        ]
        self._send({"objects": objects, "transfer": "basic"})

    def _large(self, path: str, body: bytes) -> None:
        if path == "/lfs/verify":
            asked = json.loads(body)
            assert len(self.hub.blobs[asked["oid"]]) == asked["size"]
            self.hub.verified.add(asked["oid"])
            return self._send({})
        assert self.command == "PUT" and hashlib.sha256(body).hexdigest() == path.rpartition("/")[2]
        self.hub.blobs[path.rpartition("/")[2]] = body
        self._send({})

    def _commit(self, repo: str, revision: str, body: bytes) -> None:
        lines = [json.loads(line) for line in body.splitlines()]
        assert lines[0]["key"] == "header" and lines[0]["value"]["summary"]
        tree = self.hub.files[repo, revision]
        for line in lines[1:]:
            value = line["value"]
            if line["key"] == "file":
                tree[value["path"]] = base64.b64decode(value["content"])
            else:
                assert line["key"] == "lfsFile" and value["oid"] in self.hub.verified
                tree[value["path"]] = self.hub.blobs[value["oid"]]
        oid = hashlib.sha1(body).hexdigest()
        self._send({"success": True, "commitOid": oid, "commitUrl": f"{self.hub.endpoint}/{repo}/commit/{oid}"})

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            whole = b""
            while size := int(self.rfile.readline(), 16):
                whole += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return whole
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _send(self, value: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, text in (headers or {}).items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""
