"""What passes between the pool and its workers: frames of bytes, and scores as checked JSON."""

import json
import math
import socket
import struct
from typing import Any

from rewards.outcome import STATUSES, Outcome, Score

_LENGTH = struct.Struct("!Q")
MAX_FRAME_BYTES = 2**30


def frame(payload: bytes) -> bytes:
    return _LENGTH.pack(len(payload)) + payload


class Frames:
    """Takes bytes as they come and gives whole frames."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that `data` completes.

        Raises:
            ValueError: a length that no frame of ours has.
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


# One line of JSON for each call: [[value, outcome, components], ...] with one score for each sample of the call,
# {"error": text} for a call that failed, {"mistake": text} for one that the user has to mend.


def encode(scores: list[Score]) -> bytes:
    """The line for a call's scores.

    Raises:
        ValueError: a number that is not finite.
    """
    if len(scores) == 1 and scores[0].outcome is None and not scores[0].components and scores[0].value is not None:
        value = float(scores[0].value)
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
    return [score.value, outcome, dict(score.components) or None]


def decode(lines: bytes) -> list[list[Score] | dict[str, str]]:
    """What each line says: the scores of its call, or its failure.

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
    if len(value) != 1 or not all(k in ("error", "mistake") and isinstance(v, str) for k, v in value.items()):
        raise ValueError(f"not a failure: {value!r:.80}")
    return value


def _score(value: Any) -> Score:
    number, outcome, components = value
    if components is not None:
        if not isinstance(components, dict):
            raise ValueError(f"not components: {components!r:.80}")
        components = {name: _number(v) for name, v in components.items()}
    return Score(
        None if number is None else _number(number), None if outcome is None else _outcome(outcome), components or {}
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
    """What a worker says beside its lines.

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
