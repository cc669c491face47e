"""The fork server: a process that loads plugins and functions once, then forks a worker whenever the pool asks.

It calls no reward function and has one thread, so that forking is safe and it always answers. It ends, and takes its
workers along, when the pool's process ends.

Its stdin is a file with the settings (see `ProcessSettings`); it is started by `rewards.pool.launch`.
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
from typing import Any

from rewards.errors import UserError
from rewards.grade import grade
from rewards.pool.launch import MESSAGE_BYTES, ProcessSettings, describe_exit, kill
from rewards.pool.pickling import unpack
from rewards.pool.worker_main import serve, threads
from rewards.registry import RewardFunction, load_plugins
from rewards.tags import Tags

_CHECK_PARENT_S = 0.5
_STRAY_ROUNDS = 1000


def main() -> None:
    """Started by the pool; see the module."""
    settings: ProcessSettings = pickle.load(sys.stdin.buffer)  # a file that the pool wrote, our parent
    sock = socket.socket(fileno=settings.sock)
    _isolate(settings.parent)
    try:
        load_plugins(settings.plugins)
        functions = [unpack(packed) for packed in settings.functions]
        for function in functions:
            function.prepare()
    except UserError as error:
        if settings.fork:
            sock.send(json.dumps({"failed": str(error)[:8000]}).encode())
        else:
            print(error, file=sys.stderr)
        sys.exit(1)
    _warm_up()
    _redirect_output(settings.stderr)
    if not settings.fork:
        serve(sock, settings.memory, functions, settings.memory_limit_bytes, frozenset(sys.modules))
        exit_now(0)
    forks = threads() == 1 and hasattr(os, "fork")
    gc.collect()
    gc.freeze()  # what is here now is shared with all workers, and stays so when they collect
    try:
        sock.send(b'{"ready": "fork"}' if forks else b'{"ready": "threads"}')
    except BrokenPipeError:  # the pool was closed before it had any work for us
        exit_now(0)
    if forks:
        ForkServer(sock, settings, functions).run()
    exit_now(0)


class ForkServer:
    """Forks, kills and reaps workers."""

    def __init__(self, sock: socket.socket, settings: ProcessSettings, functions: list[RewardFunction]) -> None:
        self.sock, self.settings, self.functions = sock, settings, functions
        self.workers: dict[int, int] = {}  # process -> the pool's number for it
        self.imported = frozenset(sys.modules)
        self.woken, wake = os.pipe()
        os.set_blocking(self.woken, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def run(self) -> None:
        """Serve until the pool closes the socket or its process ends."""
        poll = select.poll()  # select.select takes no descriptor beyond 1023
        poll.register(self.sock, select.POLLIN)
        poll.register(self.woken, select.POLLIN)
        while True:
            ready = [fd for fd, _ in poll.poll(_CHECK_PARENT_S * 1000)]
            if os.getppid() != self.settings.parent:
                break
            if self.woken in ready:
                os.read(self.woken, 4096)
                self.reap()
            if self.sock.fileno() in ready:
                try:
                    data, fds, _, _ = socket.recv_fds(self.sock, MESSAGE_BYTES, 2)
                except ConnectionResetError:  # the pool was closed before it had read all our answers
                    break
                if not data:
                    break
                self.handle(json.loads(data), fds)
        for process in self.workers:
            kill(process)
        for process in self.workers:
            os.waitpid(process, 0)
        self.workers.clear()
        for _ in range(_STRAY_ROUNDS):
            if not _children():
                break
            self.kill_strays()
            os.waitpid(-1, 0)
        exit_now(0)

    def handle(self, request: dict[str, Any], fds: list[int]) -> None:
        if "fork" in request:
            self.fork(request["fork"], fds)
        elif "kill" in request:
            for process in [p for p, number in self.workers.items() if number == request["kill"]]:
                kill(process)
        elif "import" in request:
            _import_all(request["import"])
            self.imported = frozenset(sys.modules)
        self.send({"answered": 1})

    def fork(self, number: int, fds: list[int]) -> None:
        try:
            process = os.fork()
        except OSError as error:
            self.send({"dead": number, "how": f"it can't be forked: {error}"})
        else:
            if process == 0:
                self.become_worker(fds)
            self.workers[process] = number
            self.send({"alive": number, "process": process})
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
            kill_with_parent()
            if os.getppid() == _fork_server:
                limit = self.settings.memory_limit_bytes
                serve(socket.socket(fileno=fds[0]), fds[1], self.functions, limit, self.imported)
            status = 0
        # The process ends here, with no caller to raise to. The pool sees the status; the traceback goes to stderr.
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            exit_now(status)

    def reap(self) -> None:
        while True:
            try:
                process, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if not process:
                break
            if process in self.workers:
                self.send({"dead": self.workers.pop(process), "how": describe_exit(os.waitstatus_to_exitcode(status))})
        self.kill_strays()

    def kill_strays(self) -> None:
        """Kill what dead workers left behind in sessions of its own: it has become ours (`adopt_orphans`), and we have no children but
        workers. The end of each wakes us again, for what it left behind."""
        for process in _children():
            if process not in self.workers:
                kill(process)

    def send(self, message: dict[str, Any]) -> None:
        try:
            self.sock.send(json.dumps(message).encode())
        except OSError:  # the pool is no more: `run` sees it at once
            pass


_fork_server = 0


def _isolate(parent: int) -> None:
    """Reset signals, and end with the parent."""
    global _fork_server
    _fork_server = os.getpid()
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    kill_with_parent()
    adopt_orphans()
    if os.getppid() != parent:
        exit_now(0)


def _warm_up() -> None:
    """Grade a few answers: the grader imports modules at the first hard answer, and every worker would do so again."""
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


def _redirect_output(stderr: int) -> None:
    """Send prints where the pool's errors go; until now they were kept, for the pool to quote in an error."""
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


def exit_now(status: int) -> None:
    """End at once, without the exit handlers of plugins."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):  # closed by a plugin, or a reader that is no more
            continue
    os._exit(status)


def kill_with_parent() -> None:
    """Ask Linux to kill this process when its parent ends; elsewhere the end of the socket has to do."""
    if _prctl is not None:
        _prctl(1, int(signal.SIGKILL))  # PR_SET_PDEATHSIG


def adopt_orphans() -> None:
    """Ask Linux to make this process the parent of descendants whose own parents have ended, wherever these put them."""
    if _prctl is not None:
        _prctl(36, 1)  # PR_SET_CHILD_SUBREAPER


def _children() -> list[int]:
    """Our children, dead ones that were not waited for among them; none where the platform does not say."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return [int(word) for word in file.read().split()]
    except (OSError, ValueError):
        return []


def _find_prctl() -> Any:
    if not sys.platform.startswith("linux"):
        return None
    import ctypes

    return getattr(ctypes.CDLL(None), "prctl", None)


_prctl = _find_prctl()
