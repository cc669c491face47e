"""`VLLMServersEngine`: responses from vLLM servers that are given by URL (`--vllm_servers`), whichever processes train.

A server is `vllm serve` with its endpoints for tokens and for development, as `rlvr vllm-serve` starts it. Prompts go there and responses come back
as tokens, with the logprobs that they were sampled with and the version of the weights that sampled them.

Weights go through a folder that trainer and servers see, as safetensors in shards. Their version is a number of their bits, which every process
finds by itself: whoever comes first gives the weights to servers that have others, and a server that was started again is seen by its version.
An answer of other weights counts for nothing and is asked for again. (Left out: a broadcast by collectives to the servers. A server that
hangs would hold up the trainer, and one that comes back would have to be let into the group again.)
"""

import os
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from filelock import FileLock
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rlvr.errors import UserError, escape_control_characters
from rlvr.rollout.engine import INSTEAD, Engine, ReorderBuffer, Rollout, Sampling
from rlvr.rollout.vllm import has_tied_head, make_rollout, request_settings, sampling_weights

if TYPE_CHECKING:
    from rlvr.data.prompts import Prompt

ATTEMPTS = 4
"""How often a prompt is asked before the run gives up."""
CONNECT_S = 10.0
SHARD_BYTES = 2**30
AT_ONCE = 256
"""Most requests that a process has open; each is a thread that waits."""
GENERATE = "/inference/v1/generate"
UNKNOWN = "none"
"""Version of weights while they are replaced."""
START = "start it by `rlvr vllm-serve MODEL`"
PROBE = "2 + 3 = 5, is it?\n<think>Été</think>"
"""Two tokenizers that cut this alike are taken for one."""
_Answer = tuple[list[int], list[float]]
"""Tokens and their logprobs."""
_PRIME, _PART, _MASK = 1_000_003, 2**22, 2**63 - 1


def fingerprint(weights: Iterable[tuple[str, Tensor]]) -> str:
    """A number of the weights' names, places and bits, the same on every device: sums of integers have no order."""
    total = 0
    for name, weight in weights:
        kind = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[weight.element_size()]
        bits = weight.detach().contiguous().view(-1).view(kind)
        found = 0
        for begin in range(0, len(bits), _PART):
            part = bits[begin : begin + _PART].long()
            places = torch.arange(begin, begin + len(part), device=part.device) * 2 + 1
            found += int((part * places).sum())
        total = (total * _PRIME + zlib.crc32(name.encode()) + found) & _MASK
    return f"{total:016x}"


class VLLMServersEngine(Engine):
    """Asks vLLM servers. Prompts are dealt to them in turn; one that fails is left out, its prompts are asked of others, and it is
    tried again at the next batch.

    Args:
        tokenizer: of the model that is trained.
        urls: of the servers.
        folder: for weights on their way; trainer and servers see it under this name.
        timeout_s: for one response, and for one server to load weights.
        note: is told of servers that fail.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        urls: Sequence[str],
        folder: Path,
        timeout_s: float,
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.tokenizer, self.folder, self.note = tokenizer, folder.absolute(), note
        self._servers = [_Server(url, timeout_s) for url in urls]

    def close(self) -> None:
        for server in self._servers:
            server.close()
        shutil.rmtree(self.folder, ignore_errors=True)  # another process may do the same

    def stream(
        self,
        model: PreTrainedModel,
        prompts: Sequence["Prompt"],
        sampling: Sampling,
        seed: Sequence[int | str],
        first: int = 0,
    ) -> Iterator[list[Rollout]]:
        """One response to each prompt; vLLM decides how many are in work at once.

        Raises:
            UserError: no server answers, or one serves another model or tokenizer, or can't be given weights.
        """
        if not prompts:
            return
        version = fingerprint(self._weights(model))
        longest = max(len(p.ids) for p in prompts) + sampling.max_new_tokens
        vocabulary = model.get_input_embeddings().num_embeddings
        collected, left, why = ReorderBuffer(len(prompts)), list(range(len(prompts))), ""
        for _ in range(ATTEMPTS):
            servers = self._servers_with(version, model, longest)
            requests = {
                i: {
                    "token_ids": list(prompts[i].ids),
                    "sampling_params": request_settings(sampling, *seed, first + i),
                }
                for i in left
            }
            for i, answer in _ask(servers, requests, version, vocabulary):
                if isinstance(answer, _Lost):
                    why = str(answer)
                    continue
                collected.add(i, make_rollout(prompts[i], *answer, sampling, self.tokenizer))
                left.remove(i)
                self.report(len(prompts) - len(left), len(prompts), collected.tokens)
                if ready := collected.take():
                    yield ready
            if not left:
                return
            self.note(f"{why}; {len(left)} prompts are asked again")
        raise UserError(f"--vllm_servers: {len(left)} prompts were asked {ATTEMPTS} times; at last, {why}. {_REMEDY}")

    def _weights(self, model: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
        """What servers load: the head by its own name, too, as those on a CPU have it apart."""
        for name, weight in sampling_weights(model, own_head=has_tied_head(model)):
            yield name, weight.to(torch.bfloat16) if self.autocast else weight

    def _servers_with(self, version: str, model: PreTrainedModel, longest: int) -> list["_Server"]:
        """The servers that answer, all with these weights. One process at a time: the others find the work done."""
        ready, lost = [], []
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with FileLock(self.folder / "lock"):
            for server in self._servers:
                try:
                    server.check(self.tokenizer, longest)
                    if server.version() != version:
                        server.load(self._written(version, model), version)
                    ready.append(server)
                except _Lost as error:
                    lost.append(str(error))
        if not ready:
            raise UserError(f"--vllm_servers: {'; '.join(lost)}. {_REMEDY}")
        if lost:
            self.note(f"{'; '.join(lost)}: the other servers go on without it")
        return ready

    def _written(self, version: str, model: PreTrainedModel) -> Path:
        """The folder with these weights; older ones are deleted."""
        folder, partial = self.folder / version, self.folder / "partial"
        if folder.is_dir():
            return folder
        for older in self.folder.iterdir():
            if older.is_dir():
                shutil.rmtree(older)
        partial.mkdir()
        write_weights(self._weights(model), partial)
        return partial.rename(folder)


_REMEDY = f"Start it again (`rlvr vllm-serve MODEL`) and go on with --resume, {INSTEAD}"


def write_weights(weights: Iterable[tuple[str, Tensor]], folder: Path) -> None:
    """Write them as safetensors, in shards."""
    for number, shard in enumerate(_shards(weights)):
        save_file(shard, folder / f"model-{number:05}.safetensors", metadata={"format": "pt"})


def _shards(weights: Iterable[tuple[str, Tensor]]) -> Iterator[dict[str, Tensor]]:
    """The weights on the CPU in parts of about `SHARD_BYTES`: never all of them at once."""
    shard: dict[str, Tensor] = {}
    for name, weight in weights:
        if shard and sum(w.nbytes for w in shard.values()) + weight.nbytes > SHARD_BYTES:
            yield shard
            shard = {}
        # A copy, as safetensors refuses tensors that share memory: a head, say, that is the embedding.
        shard[name] = weight.to("cpu", copy=True).contiguous()
    yield shard


def _ask(
    servers: Sequence["_Server"], requests: dict[int, dict[str, Any]], version: str, vocabulary: int
) -> Iterator[tuple[int, "_Answer | _Lost"]]:
    """The answers as they come, by the requests' places. A server that has failed once is not asked again here."""
    failed: dict[str, _Lost] = {}

    def ask(server: _Server, request: dict[str, Any]) -> _Answer | _Lost:
        if server.url not in failed:
            try:
                return server.answer(request, version, vocabulary)
            except _Lost as error:
                failed[server.url] = error
        return failed[server.url]

    threads = ThreadPoolExecutor(min(AT_ONCE, len(requests)))
    try:
        places = {
            threads.submit(ask, servers[k % len(servers)], request): i
            for k, (i, request) in enumerate(requests.items())
        }
        for done in as_completed(places):
            yield places[done], done.result()
    finally:
        threads.shutdown(wait=False, cancel_futures=True)  # a server that hangs holds up nothing


class _Lost(Exception):
    """A server does not answer, or not with what it was asked for; another may."""


class _Server:
    """A client of one server.

    Args:
        url: such as http://127.0.0.1:8000.
        timeout_s: for one answer.
    """

    def __init__(self, url: str, timeout_s: float) -> None:
        import httpx

        key = os.environ.get("VLLM_API_KEY")  # as the server reads it
        self.url, self._checked = url.rstrip("/"), False
        self._client = httpx.Client(
            timeout=httpx.Timeout(timeout_s, connect=CONNECT_S),
            # None is kept open: servers close theirs when they please, and after each error.
            limits=httpx.Limits(max_keepalive_connections=0),
            headers={"Authorization": f"Bearer {key}"} if key else {},
        )

    def close(self) -> None:
        self._client.close()

    def check(self, tokenizer: PreTrainedTokenizerBase, longest: int) -> None:
        """Find out, once, whether it serves such a model and can take weights.

        Raises:
            UserError: it doesn't, or can't.
        """
        if self._checked:
            return
        with self._reading("/server_info"):
            config = self._get("/server_info?config_format=json")["vllm_config"]["model_config"]
            config = {name: config[name] for name in ("logprobs_mode", "max_model_len")}
        if config["logprobs_mode"] != "processed_logprobs":
            raise UserError(
                f"{self.url} gives {config['logprobs_mode']}, and training needs processed_logprobs, after the temperature: {START}"
            )
        if config["max_model_len"] < longest:
            raise UserError(
                f"{self.url} takes {config['max_model_len']} tokens of prompt and response together, and here are up to {longest}: "
                f"start it by `rlvr vllm-serve MODEL --max-model-len {longest}`"
            )
        own = tokenizer.encode(PROBE, add_special_tokens=False)
        with self._reading("/v1/models and /tokenize"):
            served = str(self._get("/v1/models")["data"][0]["id"])
            asked = {"model": served, "prompt": PROBE, "add_special_tokens": False}
            given = [int(token) for token in self._post("/tokenize", asked)["tokens"]]
        if given != own:
            raise UserError(
                f"{self.url} serves {escape_control_characters(served)}, whose tokenizer is not that of the model that is trained: {PROBE!r} "
                f"is {given} there and {own} here. Serve the model that is trained: {START}"
            )
        self._checked = True

    def version(self) -> str:
        """Of its weights."""
        with self._reading("/weight_info"):
            return str(self._get("/weight_info")["weight_version"])

    def load(self, folder: Path, version: str) -> None:
        """Have it load the weights in the folder, and forget what it has computed with others.

        Raises:
            UserError: it can't.
        """
        self._post("/update_weight_version", {"new_version": UNKNOWN})  # what fails half-way has none
        try:
            self._post("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}})
        except _Lost as error:  # what a worker raises, vLLM tells by an error 500 or by closing the connection
            self._get("/health")  # raises if it is lost indeed
            raise UserError(
                f"{error} when it was to load the weights in {folder}. It must see that folder under the same name (--save_path on a file "
                f"system that trainer and servers share), and serve the model that is trained: {START}"
            ) from None
        self._post("/reset_prefix_cache", {})
        self._post("/update_weight_version", {"new_version": version})

    def answer(self, request: dict[str, Any], version: str, vocabulary: int) -> tuple[list[int], list[float]]:
        """The tokens of a response and their logprobs, if it is wholly by these weights.

        Args:
            vocabulary: number of tokens that there are. What else a server says is not believed either.
        """
        with self._reading(GENERATE):
            choice = self._post(GENERATE, request)["choices"][0]
            versions = {span["version"] for span in choice["weight_versions"] or ()}
            tokens = [int(token) for token in choice["token_ids"]]
            logprobs = [float(token["logprob"]) for token in choice["logprobs"]["content"]]
            most = request["sampling_params"]["max_tokens"]
            if len(tokens) != len(logprobs) or len(tokens) > most or not all(0 <= t < vocabulary for t in tokens):
                raise ValueError("tokens that the model does not have, or not as many as were asked for")
        if versions != {version}:
            raise _Lost(f"{self.url} answered with other weights: it was started again, or another run gives it some")
        return tokens, logprobs

    @contextmanager
    def _reading(self, path: str) -> Iterator[None]:
        """Raise `UserError` if within the block an answer turns out to be none of vLLM's."""
        try:
            yield
        except (LookupError, TypeError, ValueError) as error:
            raise UserError(
                f"{self.url} answers {path} otherwise than vLLM 0.32 and later do ({type(error).__name__}: {error}); {START}"
            ) from None

    def _get(self, path: str) -> Any:
        return self._call("GET", path, None)

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        return self._call("POST", path, body)

    def _call(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        import httpx

        try:
            response = self._client.request(method, f"{self.url}{path}", json=body)
        except httpx.TransportError as error:
            self._checked = False  # who answers there next may be another
            raise _Lost(f"{self.url} does not answer ({type(error).__name__}: {error})") from None
        if response.status_code == 404:
            raise UserError(
                f"{self.url} has no {path.partition('?')[0]}: it is no vLLM server of 0.32 or later whose weights can be changed; {START}"
            )
        if response.status_code in (401, 403):
            raise UserError(f"{self.url} wants a key: set VLLM_API_KEY to that of the server")
        if response.status_code >= 500:
            raise _Lost(f"{self.url} failed ({response.status_code}: {_said(response)})")
        if response.status_code >= 400:
            raise UserError(f"{self.url} refused a request to {path} ({response.status_code}): {_said(response)}")
        return response.json() if response.content else None


def _said(response: Any) -> str:
    """What a server says of its error, on one line."""
    return escape_control_characters(" ".join(response.text.split()))[:300]
