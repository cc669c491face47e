"""Main loop of a worker process: take chunks of samples from a socket, call one function on each, answer in JSON."""

import gc
import os
import pickle
import socket
import sys
import time

from rewards.call import score
from rewards.errors import UserError
from rewards.pool import protocol
from rewards.pool.limits import limit_memory
from rewards.pool.protocol import Progress
from rewards.registry import RewardFunction
from rewards.sample import Sample


def serve(
    sock: socket.socket,
    memory_fd: int,
    functions: list[RewardFunction],
    memory_limit_bytes: int | None,
    imported: frozenset[str],
) -> None:
    """Answer chunks until the pool closes the socket. `imported`: the modules that the fork server has."""
    progress = Progress(memory_fd)
    os.close(memory_fd)
    if memory_limit_bytes is not None:
        limit_memory(memory_limit_bytes)
    # Collected here, the names would cost a copy of each page of memory that one of them lies in.
    pid, modules = os.getpid(), imported
    while (payload := protocol.receive(sock)) is not None:
        start = time.monotonic()
        quit_after = _work(sock, progress, functions, payload, pid)
        new = sorted(set(sys.modules) - modules) if len(sys.modules) != len(modules) else []
        modules = modules.union(new) if new else modules
        # The fork server may import these too, for later workers, unless they brought threads.
        said = {
            "done": True,
            "ends": quit_after,
            "took_s": time.monotonic() - start,
            "modules": new if threads() == 1 else [],
        }
        _send(sock, said, progress.lines())
        if quit_after:
            return


def _work(sock: socket.socket, progress: Progress, functions: list[RewardFunction], payload: bytes, pid: int) -> bool:
    """Do one chunk; true if this process had better end."""
    try:
        index, samples = pickle.loads(payload)  # written by the pool, our parent
    # A class of the user's may be unknown here, or its methods fail; whatever it is, the user is told.
    except Exception as error:
        text = f"a sample can't be read in a worker process: {type(error).__name__}: {error}"
        progress.append(protocol.encode_failure("user_error", text))
        return False
    function: RewardFunction = functions[index]
    calls = [samples] if function.batched else [[sample] for sample in samples]
    for number, call in enumerate(calls):
        if progress.stopped:
            break
        progress.begin(number, time.monotonic())
        line, quit_after = _line(function, call)
        if os.getpid() != pid:  # the function forked, and its child came back out of it
            os._exit(0)
        if not progress.append(line):
            # Forget before sending: killed in between, we lose lines, which are computed again, and double none.
            _send(sock, {}, progress.take() + line + b"\n")
        if quit_after:
            return True
    return False


def _line(function: RewardFunction, call: list[Sample]) -> tuple[bytes, bool]:
    try:
        return protocol.encode(score(function, call)), False
    except UserError as error:
        text = str(error)
        return protocol.encode_failure(
            "user_error", text if function.name in text else f"{function.name}: {text}"
        ), False
    except MemoryError as error:
        gc.collect()
        return protocol.encode_failure(
            "error", f"MemoryError: {error} (--reward_memory_mb, of a RewardPool memory_limit_bytes)"
        ), True
    # Whatever a function raises, sys.exit and KeyboardInterrupt too, is this sample's failure and is counted as such.
    except BaseException as error:
        return protocol.encode_failure("error", f"{type(error).__name__}: {error}"), False


def _send(sock: socket.socket, said: dict[str, object], lines: bytes) -> None:
    import json

    sock.sendall(protocol.frame(json.dumps(said).encode() + b"\n" + lines))


def threads() -> int:
    """Threads of this process; 1 where the platform does not say."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 1
