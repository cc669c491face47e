"""The process that the pool starts: it loads plugins and functions once, then forks workers when it is asked.

It calls no reward function and has one thread, so that forking is safe and it always answers. It ends, and takes its
workers along, when the pool's process ends.

Its stdin is a file with the settings (see `Settings`); it is started by `rewards.pool.starting`.
"""

import gc
import importlib
import json
import os
import pickle
import select
import signal
import socket
import sys
from dataclasses import dataclass
from typing import Any

from rewards.errors import UserError
from rewards.grade import grade
from rewards.pool.carry import Parcel, unpack
from rewards.pool.worker import serve, threads
from rewards.registry import RewardFunction, load_plugins
from rewards.tags import Tags

MESSAGE_BYTES = 2**16
_LOOK_FOR_PARENT_S = 0.5


@dataclass(frozen=True)
class Settings:
    """What the pool tells a process that it starts.

    Attributes:
        fork: be a zygote if you can; else be one worker.
        sock, memory, stderr: file descriptors: the socket to the pool, the shared memory (-1 for a zygote), where prints go.
        parent: the pool's process.
    """

    fork: bool
    sock: int
    memory: int
    stderr: int
    parent: int
    plugins: tuple[str, ...]
    functions: tuple[Parcel, ...]
    memory_limit_bytes: int | None


def main() -> None:
    """Started by the pool; see the module."""
    settings: Settings = pickle.load(sys.stdin.buffer)  # a file that the pool wrote, our parent
    sock = socket.socket(fileno=settings.sock)
    _settle(settings.parent)
    try:
        load_plugins(settings.plugins)
        functions = [unpack(parcel) for parcel in settings.functions]
    except UserError as error:
        if settings.fork:
            sock.send(json.dumps({"failed": str(error)[:8000]}).encode())
        else:
            print(error, file=sys.stderr)
        sys.exit(1)
    _warm_up()
    _quiet(settings.stderr)
    if not settings.fork:
        serve(sock, settings.memory, functions, settings.memory_limit_bytes)
        leave(0)
    forks = threads() == 1 and hasattr(os, "fork")
    gc.collect()
    gc.freeze()  # what is here now is shared with all workers, and stays so when they collect
    try:
        sock.send(b'{"ready": "fork"}' if forks else b'{"ready": "threads"}')
    except BrokenPipeError:  # the pool was closed before it had any work for us
        leave(0)
    if forks:
        Zygote(sock, settings, functions).run()
    leave(0)


class Zygote:
    """Forks, kills and reaps workers."""

    def __init__(self, sock: socket.socket, settings: Settings, functions: list[RewardFunction]) -> None:
        self.sock, self.settings, self.functions = sock, settings, functions
        self.workers: dict[int, int] = {}  # process -> the pool's number for it
        self.woken, wake = os.pipe()
        os.set_blocking(self.woken, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def run(self) -> None:
        """Until the pool closes the socket or is no more."""
        poll = select.poll()  # select.select takes no descriptor beyond 1023
        poll.register(self.sock, select.POLLIN)
        poll.register(self.woken, select.POLLIN)
        while True:
            ready = [fd for fd, _ in poll.poll(_LOOK_FOR_PARENT_S * 1000)]
            if os.getppid() != self.settings.parent:
                break
            if self.woken in ready:
                os.read(self.woken, 4096)
                self.reap()
            if self.sock.fileno() in ready:
                data, fds, _, _ = socket.recv_fds(self.sock, MESSAGE_BYTES, 2)
                if not data:
                    break
                self.obey(json.loads(data), fds)
        for process in self.workers:
            kill(process)
        for process in self.workers:
            os.waitpid(process, 0)
        leave(0)

    def obey(self, order: dict[str, Any], fds: list[int]) -> None:
        if "fork" in order:
            self.fork(order["fork"], fds)
        elif "kill" in order:
            for process in [p for p, number in self.workers.items() if number == order["kill"]]:
                kill(process)
        elif "import" in order:
            _import_all(order["import"])

    def fork(self, number: int, fds: list[int]) -> None:
        try:
            process = os.fork()
        except OSError as error:
            self.say({"dead": number, "how": f"it can't be forked: {error}"})
        else:
            if process == 0:
                self.become_worker(fds)
            self.workers[process] = number
            self.say({"alive": number, "process": process})
        for fd in fds:
            os.close(fd)

    def become_worker(self, fds: list[int]) -> None:
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            self.sock.close()
            os.setpgid(0, 0)  # what a function starts is killed with it
            die_with_parent()
            if os.getppid() == _zygote:
                serve(socket.socket(fileno=fds[0]), fds[1], self.functions, self.settings.memory_limit_bytes)
            status = 0
        # The end of this process: there is nobody above to raise to. The pool sees the status, people the traceback.
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            leave(status)

    def reap(self) -> None:
        while self.workers:
            try:
                process, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not process:
                return
            if process in self.workers:
                self.say({"dead": self.workers.pop(process), "how": how_it_ended(os.waitstatus_to_exitcode(status))})

    def say(self, message: dict[str, Any]) -> None:
        try:
            self.sock.send(json.dumps(message).encode())
        except OSError:  # the pool is no more: `run` sees it at once
            pass


_zygote = 0


def _settle(parent: int) -> None:
    """Signals as in a fresh process, an own process group, and no life without the parent."""
    global _zygote
    _zygote = os.getpid()
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent()
    if os.getppid() != parent:
        leave(0)


def _warm_up() -> None:
    """Grade a little: our grader imports what it needs at the first hard answer, and every worker would do so anew."""
    for answer, gold in [
        ("42", "42"),
        (r"\frac{1}{2}", "0.5"),
        (r"\sqrt{2}", "2^{1/2}"),
        ("(1,2)", "(1,3)"),
        ("x+1", "1+x"),
    ]:
        for _ in range(10):  # so that the interpreter has adapted its code, too
            grade(f"<think>1</think><answer>{answer}</answer>", gold, tags=Tags.default())


def _import_all(names: list[str]) -> None:
    for name in names:
        try:
            importlib.import_module(name)
        except BaseException:  # what a worker managed to import may not import by itself; then it stays theirs
            continue
    gc.freeze()


def _quiet(stderr: int) -> None:
    """From here on prints go where the pool's errors go; until now they were kept, for the pool to quote."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(stderr, 1)
    os.dup2(stderr, 2)
    os.close(stderr)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(line_buffering=True)  # what is killed flushes nothing


def leave(status: int) -> None:
    """End without running what plugins left for the end."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):  # closed by a plugin, or a reader that is no more
            continue
    os._exit(status)


def kill(process: int) -> None:
    """Kill a worker with all that it started."""
    for send in (os.killpg, os.kill):
        try:
            send(process, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):  # no group yet, or gone
            continue


KILLED = "it was killed by SIGKILL"


def how_it_ended(code: int) -> str:
    """In words: `it was killed by SIGSEGV`, `it ended with status 3`."""
    if code >= 0:
        return f"it ended with status {code}"
    try:
        return f"it was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"it was killed by signal {-code}"


def die_with_parent() -> None:
    """Ask Linux to kill this process when its parent ends; elsewhere the end of the socket has to do."""
    if _prctl is not None:
        _prctl(1, int(signal.SIGKILL))  # PR_SET_PDEATHSIG


def _find_prctl() -> Any:
    if not sys.platform.startswith("linux"):
        return None
    import ctypes

    return getattr(ctypes.CDLL(None), "prctl", None)


_prctl = _find_prctl()
