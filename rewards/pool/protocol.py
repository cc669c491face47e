"""The protocol between the pool and its workers. Work goes to a worker as a pickle in a frame of bytes; results come back as
checked JSON, one line a call.

`Progress` is memory that both sides share: which call the worker is on, since when, and the lines it has finished. A message
for each sample would cost more than many a reward function; and what a worker had finished is not lost when it is killed.
"""

import json
import math
import mmap
import os
import socket
import struct
import tempfile
from typing import Any

from rewards.outcome import STATUSES, Outcome, Score

_LENGTH = struct.Struct("!Q")
MAX_FRAME_BYTES = 2**26
"""Most bytes that a worker may send at once, and for one chunk."""
INVALID = (ValueError, TypeError, AttributeError, KeyError, OverflowError, RecursionError)
"""What reading anything but a worker's proper answer may raise: JSON that is deeply nested, numbers of 400 digits, other types."""


def frame(payload: bytes) -> bytes:
    return _LENGTH.pack(len(payload)) + payload


class FrameReader:
    """Takes bytes as they come and gives whole frames."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that `data` completes.

        Raises:
            ValueError: a frame longer than `MAX_FRAME_BYTES`.
        """
        self._bytes += data
        done: list[bytes] = []
        while len(self._bytes) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._bytes)
            if length > MAX_FRAME_BYTES:
                raise ValueError(f"a frame of {length} bytes")
            end = _LENGTH.size + length
            if len(self._bytes) < end:
                break
            done.append(bytes(self._bytes[_LENGTH.size : end]))
            del self._bytes[:end]
        return done


def receive(sock: socket.socket) -> bytes | None:
    """The next frame; None at the end of the stream. Blocks."""
    head = _exactly(sock, _LENGTH.size)
    return None if head is None else _exactly(sock, _LENGTH.unpack(head)[0])


def _exactly(sock: socket.socket, count: int) -> bytes | None:
    parts = bytearray(count)
    view, got = memoryview(parts), 0
    while got < count:
        read = sock.recv_into(view[got:])
        if not read:
            return None
        got += read
    return bytes(parts)


# One line of JSON for each call: [[value, outcome, components, text], ...] with one score for each sample of the call (without a text
# that is empty),
# {"error": text} for a call that failed, {"user_error": text} for a mistake of the user.


def encode(scores: list[Score]) -> bytes:
    """The line for a call's scores.

    Raises:
        ValueError: a number that is not finite.
    """
    only = scores[0] if len(scores) == 1 else Score(None)
    if only.value is not None and only.outcome is None and not only.components and not only.text:
        value = float(only.value)
        if not math.isfinite(value):
            raise ValueError(f"the total is {value}")
        return b"[[%s,null,null]]" % repr(value).encode()
    return json.dumps([_plain(score) for score in scores], allow_nan=False, separators=(",", ":")).encode()


def encode_failure(kind: str, message: str) -> bytes:
    return json.dumps({kind: message[:2000]}).encode()


def _plain(score: Score) -> list[Any]:
    o = score.outcome
    elapsed = float(o.elapsed_s) if o is not None and math.isfinite(o.elapsed_s) else 0.0
    outcome = None if o is None else [o.status, o.answer, o.stage, elapsed, o.message]
    return [score.value, outcome, dict(score.components) or None, *([score.text] if score.text else [])]


def decode(lines: bytes) -> list[list[Score] | dict[str, str]]:
    """The result of each line: the scores of its call, or its failure.

    Raises:
        ValueError: anything that `encode` does not write.
    """
    if not lines:
        return []
    values = _DECODER.decode("[" + lines.decode("ascii").replace("\n", ",") + "]")
    return [_failure(v) if isinstance(v, dict) else [_score(s) for s in _list(v)] for v in values]


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is no score")


_DECODER = json.JSONDecoder(parse_constant=_constant)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"not a list of scores: {value!r:.80}")
    return value


def _failure(value: dict[str, Any]) -> dict[str, str]:
    if len(value) != 1 or not all(k in ("error", "user_error") and isinstance(v, str) for k, v in value.items()):
        raise ValueError(f"not a failure: {value!r:.80}")
    return value


def _score(value: Any) -> Score:
    number, outcome, components, *texts = value
    if len(texts) > 1 or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"not a score: {value!r:.80}")
    if components is not None:
        if not isinstance(components, dict):
            raise ValueError(f"not components: {components!r:.80}")
        components = {name: _number(v) for name, v in components.items()}
    return Score(
        None if number is None else _number(number),
        None if outcome is None else _outcome(outcome),
        components or {},
        *texts,
    )


def _outcome(value: Any) -> Outcome:
    status, answer, stage, elapsed, message = value
    texts = (stage, message) if answer is None else (answer, stage, message)
    if status not in STATUSES or not all(isinstance(t, str) for t in texts):
        raise ValueError(f"not an outcome: {value!r:.80}")
    return Outcome(status, answer, stage, _number(elapsed), message)


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError(f"not a number: {value!r:.80}")
    return float(value)


def message(head: bytes) -> dict[str, Any]:
    """The header of a worker's message: a JSON object.

    Raises:
        ValueError: it is no JSON object.
    """
    said = json.loads(head)
    if not isinstance(said, dict):
        raise ValueError(f"not a message: {head!r:.80}")
    return said


def module_names(value: Any) -> list[str]:
    """Names of modules.

    Raises:
        ValueError: something else is among them.
    """
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise ValueError(f"not names of modules: {value!r:.80}")
    return [name for name in value if all(part.isidentifier() for part in name.split("."))]


# Shared memory.


_INDEX, _SINCE, _WRITTEN, _STOP, _HEADER = range(5)  # 8 bytes each
_START = 64
BEFORE_THE_FIRST = -1
CAPACITY_BYTES = 2**18


class Progress:
    """A worker's place in its chunk. Numbers are 8 bytes, aligned: a reader sees an old or a new one, never half of it."""

    def __init__(self, fd: int) -> None:
        self._map = mmap.mmap(fd, _START + CAPACITY_BYTES)
        self._view = memoryview(self._map)
        self._ints = self._view[:_START].cast("q")
        self._floats = self._view[:_START].cast("d")

    @staticmethod
    def create() -> int:
        """A file that lives in memory, for both sides to map; the caller closes it."""
        if hasattr(os, "memfd_create"):
            fd = os.memfd_create("rewards-pool", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        else:
            with tempfile.TemporaryFile(buffering=0) as file:
                fd = os.dup(file.fileno())
        os.ftruncate(fd, _START + CAPACITY_BYTES)
        if hasattr(os, "memfd_create"):
            import fcntl

            # A worker that made it shorter would end us with SIGBUS.
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        return fd

    def reset(self) -> None:
        """Before a chunk is sent, while the worker waits."""
        self._ints[_INDEX], self._ints[_WRITTEN], self._ints[_STOP] = BEFORE_THE_FIRST, 0, 0

    def close(self) -> None:
        for view in (self._ints, self._floats, self._view):
            view.release()
        self._map.close()

    # The worker's side.

    def begin(self, index: int, now_s: float) -> None:
        """The worker takes the call `index` of its chunk."""
        # Time first: a reader between the two sees a call that began late, and kills nothing too early.
        self._floats[_SINCE] = now_s
        self._ints[_INDEX] = index

    def append(self, line: bytes) -> bool:
        """Keep a finished line; False where it does not fit."""
        start = self._ints[_WRITTEN]
        end = start + len(line) + 1
        if end > CAPACITY_BYTES:
            return False
        self._view[_START + start : _START + end] = line + b"\n"
        self._ints[_WRITTEN] = end
        return True

    def take(self) -> bytes:
        """The lines so far, which are forgotten."""
        lines = self.lines()
        self._ints[_WRITTEN] = 0
        return lines

    @property
    def stopped(self) -> bool:
        return bool(self._ints[_STOP])

    # The pool's side.

    def stop(self) -> None:
        """Ask the worker to stop after its present call."""
        self._ints[_STOP] = 1

    @property
    def index(self) -> int:
        """The call that the worker is on; -1 before the first."""
        return self._ints[_INDEX]

    @property
    def since_s(self) -> float:
        """When it took that call, by the monotonic clock."""
        return self._floats[_SINCE]

    def lines(self) -> bytes:
        """The finished results, one line each."""
        written = min(max(self._ints[_WRITTEN], 0), CAPACITY_BYTES)
        return bytes(self._view[_START : _START + written])
