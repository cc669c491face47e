"""`give`: a command with a bad file, in this process, and whether it refuses the file well."""

import contextlib
import io
import signal
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import rewards.registry
from rlvr.cli.main import USER_ERROR, main

from .kinds import BadFile
from .workshop import Workshop


@dataclass(frozen=True)
class Refusal:
    """What a command did.

    Attributes:
        wrong: what is wrong with it; nothing if the file was refused well.
        said: its last words.
        took_s: how long it took.
    """

    wrong: str
    said: str
    took_s: float


class TooSlow(BaseException):
    """No handler of the code under test takes it for its own."""


def give(bad: BadFile, shop: Workshop, limit_s: float = 60.0) -> Refusal:
    """Write the file, run the command with it, look at what comes."""
    with tempfile.TemporaryDirectory(prefix="bad-file-") as folder:
        words = bad.make(shop, Path(folder))
        if words[0] == "train" and "--save_path" not in words:
            words += ["--save_path", f"{folder}/out"]
        elif words[0] in ("sft", "reward-model"):
            words += ["--save_path", f"{folder}/out"]
        began = time.monotonic()
        status, said = _run(words, limit_s)
    return Refusal(_wrong(status, said, bad.named), said.strip(), time.monotonic() - began)


def _run(words: list[str], limit_s: float) -> tuple[int | str | None, str]:
    """(exit status, or what was raised; what was said)."""
    out, err = io.StringIO(), io.StringIO()
    registered = dict(rewards.registry._registered)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), _within(limit_s):
            status: int | str | None = main(words)
    except SystemExit as stop:
        status = stop.code
    except TooSlow:
        status = f"no end within {limit_s:g} s"
    except BaseException as error:  # whatever it is: the table says so
        status = f"{type(error).__name__} out of the command"
        err.write(traceback.format_exc())
    finally:
        rewards.registry._registered.clear()
        rewards.registry._registered.update(registered)
    return status, err.getvalue() or out.getvalue()[-300:]


def _wrong(status: int | str | None, said: str, named: str) -> str:
    if status != USER_ERROR:
        return status if isinstance(status, str) else f"exit status {status}"
    if "Traceback" in said:
        return "a traceback"
    if said.count("error: ") != 1:
        return f"{said.count('error: ')} messages"
    if named not in said:
        return f"the message does not name {named}"
    if any(ord(character) < 32 and character not in "\n\t" for character in said):
        return "control characters in the message"
    return ""


@contextlib.contextmanager
def _within(limit_s: float) -> Iterator[None]:
    def ring(*_: object) -> NoReturn:
        raise TooSlow

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
