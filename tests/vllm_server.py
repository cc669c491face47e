"""A stand-in for a vLLM server on this machine: its endpoints for tokens and weights over a small model of its own, and its ways to fail."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Lock
from typing import Any

import local_server
import torch
from rollout_harness import Ids
from safetensors.torch import load_file

from rlvr.rollout.engine import Sampling
from rlvr.rollout.hf import HFEngine


@dataclass
class Server:
    """What the server is, does and has seen.

    Attributes:
        model: that it serves; weights that are loaded go into it.
        tokenizer: its own.
        settings: of `/server_info`.
        version: of its weights.
        failures: statuses of the next requests for responses; 0 closes the connection.
        before: called before each request, with its path; may raise.
        answered: number of responses.
        loaded: the folders from which weights came.
        missing: paths that it does not have.
        instead: what it answers to a path in place of the truth.
    """

    model: Any
    tokenizer: Any
    settings: dict[str, Any] = field(
        default_factory=lambda: {"logprobs_mode": "processed_logprobs", "max_model_len": 512}
    )
    version: str = "default"
    failures: list[int] = field(default_factory=list)
    before: Callable[[str], None] = lambda path: None
    answered: int = 0
    loaded: list[Path] = field(default_factory=list)
    missing: tuple[str, ...] = ()
    instead: dict[str, Any] = field(default_factory=dict)
    keys: set[str | None] = field(default_factory=set)
    url: str = ""
    lock: Any = field(default_factory=Lock)

    def restart(self, model: Any) -> None:
        """Begin anew, with the weights of `model`."""
        self.model, self.version = model, "default"

    # Its endpoints.

    def get(self, path: str) -> Any:
        if path == "/server_info":
            return {"vllm_config": {"model_config": self.settings}}
        if path == "/v1/models":
            return {"data": [{"id": "served"}]}
        if path == "/weight_info":
            return {"weight_version": self.version}
        assert path == "/health", path
        return {}

    def post(self, path: str, body: dict[str, Any]) -> Any:
        if path == "/inference/v1/generate":
            return self.generate(body["token_ids"], body["sampling_params"])
        if path == "/tokenize":
            return {"tokens": self.tokenizer.encode(body["prompt"], add_special_tokens=body["add_special_tokens"])}
        if path == "/update_weight_version":
            self.version = body["new_version"]
        if path == "/collective_rpc":
            assert body["method"] == "reload_weights"
            self.load(Path(body["kwargs"]["weights_path"]))
        return {}

    def load(self, folder: Path) -> None:
        files = sorted(folder.glob("*.safetensors"))
        if not files:
            raise FileNotFoundError(f"Cannot find any model weights with `{folder}`")
        weights = {name: weight for file in files for name, weight in load_file(file).items()}
        self.model.load_state_dict(weights)
        self.loaded.append(folder)

    def generate(self, ids: list[int], p: dict[str, Any]) -> dict[str, Any]:
        sampling = Sampling(p["max_tokens"], p["temperature"], p["top_k"], p["top_p"], tuple(p["stop_token_ids"]))
        version = self.version
        (found,) = HFEngine(self.tokenizer).generate(self.model, [Ids(tuple(ids))], sampling, ("served", p["seed"]))
        logprobs = torch.zeros(len(found.response_ids)) if found.logprobs is None else found.logprobs
        tokens = found.response_ids.tolist()
        self.answered += 1
        content = [{"token_id": t, "logprob": x} for t, x in zip(tokens, logprobs.tolist(), strict=True)]
        spans = [{"version": version, "start": 0, "end": len(tokens)}]
        return {"choices": [{"token_ids": tokens, "logprobs": {"content": content}, "weight_versions": spans}]}


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    """The server on a free port of this machine."""
    with local_server.serving(partial(_Handler, server)) as server.url:
        yield server


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, server: Server, *arguments: Any) -> None:
        self.served = server
        super().__init__(*arguments)

    def do_GET(self) -> None:
        self._answer(lambda path: self.served.get(path))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._answer(lambda path: self.served.post(path, body))

    def _answer(self, find: Callable[[str], Any]) -> None:
        path, status = self.path.partition("?")[0], 200
        with self.served.lock:
            self.served.before(path)
            self.served.keys.add(self.headers.get("Authorization"))
            if path == "/inference/v1/generate" and self.served.failures:
                status = self.served.failures.pop(0)
            if status == 0:
                self.close_connection = True
                self.connection.close()
                return
            try:
                found = find(path) if status == 200 else {"error": {"message": "EngineCore died"}}
            except (OSError, RuntimeError) as error:  # as vLLM tells of what a worker raised
                status, found = 500, {"error": {"message": str(error)}}
            found = self.served.instead.get(path, found)
            if path in self.served.missing:
                status, found = 404, {"detail": "Not Found"}
        body = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Say nothing of requests."""
