"""A reward plugin whose functions misbehave, each in its own way. `misbehave(response)` does what the response names; anything else is paid 1.

Imported by path in the pool's workers. Nothing here reaches beyond the processes that the pool started: where an act signals, it signals
its own process or group, or its parent, the fork server.
"""

import atexit
import builtins
import ctypes
import decimal
import gc
import json
import logging
import os
import random
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from rewards import Outcome, Score, UserError

Act = Callable[[], Any]
ACTS: dict[str, Act] = {}
POISONS: set[str] = set()
"""These change what later calls in the same worker meet: those may fail too, and are counted."""
MISTAKES: set[str] = set()
"""What they return is no score: the user's mistake, which ends a run with one message."""


def act(function: Act) -> Act:
    """Its name, with spaces, is the response that calls for it."""
    ACTS[function.__name__.strip("_").replace("_", " ")] = function
    return function


def poisons(function: Act) -> Act:
    POISONS.add(function.__name__.strip("_").replace("_", " "))
    return act(function)


def mistake(function: Act) -> Act:
    MISTAKES.add(function.__name__.strip("_").replace("_", " "))
    return act(function)


def misbehave(response: str) -> Any:
    return ACTS[response]() if response in ACTS else 1.0


def now_and_then(response: str) -> Any:
    """For whole runs, whose responses are a model's: the act that the environment names, on a third of them."""
    return ACTS[os.environ["MISBEHAVE"]]() if len(response) % 3 == 0 else 1.0


# It ends its process.


@act
def os_exit() -> None:
    os._exit(0)


@act
def os_exit_with_a_status() -> None:
    os._exit(77)


@act
def sys_exit() -> None:
    sys.exit()


@act
def sys_exit_with_words() -> None:
    sys.exit("done")


@act
def an_exit_at_exit() -> float:
    atexit.register(os._exit, 9)
    return 1.0


@act
def a_hang_at_exit() -> None:
    atexit.register(time.sleep, 600)
    sys.exit()


@act
def kill_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@act
def kill_its_group() -> None:
    os.killpg(os.getpgrp(), signal.SIGKILL)


@act
def terminate_itself() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


@act
def stop_itself() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


@act
def abort() -> None:
    os.abort()


@act
def a_null_pointer() -> None:
    ctypes.string_at(0)


@act
def kill_its_parent() -> None:
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(60)


@act
def stop_its_parent() -> None:
    os.kill(os.getppid(), signal.SIGSTOP)
    os._exit(1)


@act
def another_program() -> None:
    os.execv("/bin/true", ["true"])


@act
def another_program_that_stays() -> None:
    os.execv("/bin/sleep", ["sleep", "600"])


# It raises.


@act
def keyboard_interrupt() -> None:
    raise KeyboardInterrupt


@act
def generator_exit() -> None:
    raise GeneratorExit


@act
def no_exception() -> None:
    class Odd(BaseException):
        pass

    raise Odd("odd")


@act
def an_error_without_words() -> None:
    class Silent(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    raise Silent


@act
def an_error_of_100_mb() -> None:
    raise ValueError("x" * 100_000_000)


@act
def an_error_with_half_a_character() -> None:
    raise ValueError("\ud83d\x1b[31m\0")


@mistake
def a_user_error() -> None:
    raise UserError("misbehave: give it up")


# It does not end.


@act
def sleep() -> None:
    time.sleep(600)


@act
def spin() -> None:
    while True:
        pass


@act
def a_regular_expression() -> None:
    re.match("(a|aa)+$", "a" * 80 + "b")


@act
def a_power() -> None:
    _ = 3 ** (10**9)


@act
def a_sum() -> None:
    sum(range(10**13))


@act
def a_deadlock() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


@act
def read_stdin() -> float:
    sys.stdin.read()
    return 1.0


@act
def signals_blocked() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, signal.NSIG))
    signal.pause()


@act
def signals_ignored() -> None:
    for number in range(1, signal.NSIG):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass
    time.sleep(600)


@act
def whatever_is_raised_goes_on() -> None:
    while True:
        try:
            time.sleep(600)
        except BaseException:
            pass


@poisons
def an_alarm_later() -> float:
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    return 1.0


# It starts processes and threads.


@act
def fork() -> float:
    os.fork()
    return 1.0


@act
def fork_and_leave_a_child() -> float:
    if os.fork() == 0:
        time.sleep(600)
        os._exit(0)
    return 1.0


@act
def many_children() -> float:
    for _ in range(30):
        if os.fork() == 0:
            time.sleep(600)
            os._exit(0)
    return 1.0


@act
def a_daemon() -> float:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.chdir("/")
            time.sleep(600)
        os._exit(0)
    return 1.0


@act
def daemons_that_make_daemons() -> float:
    if os.fork() == 0:
        for _ in range(8):
            os.setsid()
            if os.fork():
                time.sleep(0.05)
                os._exit(0)
            if os.fork() == 0:  # else the next setsid would be a leader's
                time.sleep(600)
                os._exit(0)
        time.sleep(600)
    return 1.0


@act
def a_program() -> float:
    subprocess.Popen(["sleep", "600"])
    return 1.0


@act
def a_program_in_a_session_of_its_own() -> float:
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    return 1.0


@act
def a_program_in_the_shells_background() -> float:
    os.system("sleep 600 &")
    return 1.0


@act
def a_child_that_holds_every_descriptor() -> float:
    if os.fork() == 0:
        os.setsid()
        for name in range(3, 64):
            try:
                os.set_inheritable(name, True)
            except OSError:
                pass
        os.execv("/bin/sleep", ["sleep", "600"])
    return 1.0


@act
def a_thread_that_spins() -> float:
    threading.Thread(target=spin, daemon=True).start()
    return 1.0


@act
def a_thread_that_stays() -> float:
    threading.Thread(target=time.sleep, args=(600,)).start()
    return 1.0


@act
def many_threads() -> float:
    for _ in range(200):
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    return 1.0


@poisons
def a_thread_that_exits() -> float:
    threading.Timer(0.05, os._exit, (5,)).start()
    return 1.0


# It takes what is not its own: descriptors, shared memory, the protocol.


def _sockets() -> Iterator[socket.socket]:
    for name in os.listdir("/proc/self/fd"):
        try:
            yield socket.socket(fileno=os.dup(int(name)))
        except OSError:
            pass


def _sends(payload: bytes, length: int | None = None) -> None:
    head = json.dumps({"done": True, "ends": False, "took_s": 0.0, "modules": []}).encode() + b"\n"
    frame = head + payload
    for one in _sockets():
        try:
            one.sendall(struct.pack("!Q", len(frame) if length is None else length) + frame)
        except OSError:
            pass
    time.sleep(30)


@act
def close_every_descriptor() -> float:
    os.closerange(0, 4096)
    return 1.0


@act
def devnull_in_place_of_every_descriptor() -> float:
    null = os.open("/dev/null", os.O_RDWR)
    for name in range(0, 64):
        if name != null:
            os.dup2(null, name)
    return 1.0


@act
def too_many_files() -> float:
    try:
        while True:
            os.open("/dev/null", os.O_RDONLY)
    except OSError:
        return 1.0


@act
def rubbish_into_every_descriptor() -> float:
    for name in range(1, 64):
        try:
            os.set_blocking(name, False)
            os.write(name, b"x" * 10_000)
        except OSError:
            pass
    return 1.0


@act
def truncate_everything() -> float:
    for name in os.listdir("/proc/self/fd"):
        try:
            os.ftruncate(int(name), 0)
        except OSError:
            pass
    for line in open("/proc/self/maps"):
        if "rewards-pool" in line:
            first, last = line.split()[0].split("-")
            try:
                with open(f"/proc/self/map_files/{first}-{last}", "r+b") as file:
                    os.ftruncate(file.fileno(), 0)
            except OSError:
                pass
    return 1.0


@act
def overwrite_shared_memory() -> float:
    for line in open("/proc/self/maps"):
        if "rewards-pool" in line and " rw-s" in line:
            first, last = (int(part, 16) for part in line.split()[0].split("-"))
            ctypes.memset(first, 0xEE, last - first)
    return 1.0


@act
def a_deep_frame() -> None:
    _sends(b"[" * 200_000)


@act
def a_frame_of_many_digits() -> None:
    _sends(b"[[" + b"9" * 400 + b",null,null]]")


@act
def a_frame_that_never_ends() -> None:
    _sends(b"", 2**40)


@act
def half_a_frame() -> None:
    _sends(b"[", 1000)


@act
def steal_what_is_sent() -> None:
    for one in _sockets():
        one.setblocking(False)
        try:
            one.recv(2**20)
        except OSError:
            pass
    os._exit(0)


@act
def shut_sockets() -> float:
    for one in _sockets():
        try:
            one.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
    return 1.0


@act
def descriptors_that_do_not_wait() -> float:
    for name in range(0, 64):
        try:
            os.set_blocking(name, False)
        except OSError:
            pass
    return 1.0


# It prints.


@act
def print_13_mb() -> float:
    for _ in range(200):
        os.write(1, b"x" * 2**16)
    return 1.0


@act
def print_to_stderr_without_end() -> None:
    while True:
        os.write(2, b"\x1b[2J" * 10_000)


@act
def log_odd_text() -> float:
    logging.getLogger().error("\ud83d\0%s", "x" * 100_000)
    return 1.0


@poisons
def no_stdout() -> float:
    sys.stdout.close()
    sys.stdout = sys.stderr = sys.stdin = None  # type: ignore[assignment]
    return 1.0


# It takes memory, and the stack.


@act
def four_gigabytes() -> float:
    return float(len(bytearray(4 * 2**30)) > 0)


@act
def ever_more_memory() -> None:
    kept = []
    while True:
        kept.append(bytearray(2**22))


@act
def recursion() -> Any:
    return recursion()


@act
def recursion_without_a_limit() -> Any:
    sys.setrecursionlimit(10**9)

    class Deep:
        def __repr__(self) -> str:
            return repr(self)

    return repr(Deep())


@act
def a_dictionary_of_a_million() -> dict[str, float]:
    return {str(number): 0.0 for number in range(10**6)}


@act
def a_name_of_300_kb() -> dict[str, float]:
    return {"a" * 300_000: 1.0}


# It changes its process.


@poisons
def no_json() -> float:
    json.dumps = json.loads = None  # type: ignore[assignment]
    return 1.0


@poisons
def another_score() -> float:
    import rewards.call

    rewards.call.score = lambda *_: [Score(7.0)] * 99  # type: ignore[assignment]
    return 1.0


@poisons
def another_protocol() -> float:
    from rewards.pool import protocol

    protocol.encode = lambda *_: b"\xff" * 100  # type: ignore[assignment]
    protocol.frame = lambda data: b"x" + data  # type: ignore[assignment]
    return 1.0


@poisons
def broken_builtins() -> float:
    for name in ("float", "len", "isinstance", "sorted", "set", "zip", "__import__"):
        delattr(builtins, name)
    return 1.0


@poisons
def no_modules() -> float:
    sys.modules.clear()
    return 1.0


@poisons
def other_clocks() -> float:
    time.monotonic = lambda: -1e300  # type: ignore[assignment]
    os.getpid = lambda: 1  # type: ignore[assignment]
    return 1.0


@poisons
def no_environment() -> float:
    os.environ.clear()
    sys.path.clear()
    return 1.0


@poisons
def a_folder_that_is_gone() -> float:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
    return 1.0


@poisons
def no_file_may_be_opened() -> float:
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
    return 1.0


@poisons
def a_second_of_processor_time() -> float:
    resource.setrlimit(resource.RLIMIT_CPU, (1, 1))
    return 1.0


@poisons
def a_trace_that_raises() -> float:
    def trace(*_: object) -> None:
        raise RuntimeError("traced")

    sys.settrace(trace)
    return 1.0


@act
def warnings_are_errors() -> float:
    warnings.simplefilter("error")
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    random.seed(0)
    return 1.0


# It returns what is no score, or what runs code as it is looked at.


@mistake
def nan() -> float:
    return float("nan")


@mistake
def infinity() -> float:
    return float("-inf")


@mistake
def text() -> str:
    return "1.0"


@mistake
def ten_to_the_400() -> int:
    return 10**400


@mistake
def a_complex_number() -> complex:
    return 1j


@mistake
def a_decimal_nan() -> Any:
    return decimal.Decimal("NaN")


@mistake
def a_list_of_a_million() -> list[float]:
    return [1.0] * 10**6


@mistake
def itself() -> Any:
    return itself


@mistake
def a_generator() -> Iterator[float]:
    return iter([1.0])


@mistake
def a_mistaken_outcome() -> Any:
    return Outcome("correct", answer=42)  # type: ignore[arg-type]


@mistake
def an_outcome_of_another_kind() -> Any:
    return Outcome("splendid")  # type: ignore[arg-type]


class _Number:
    def __init__(self, answer: Act) -> None:
        self.answer = answer

    def __float__(self) -> float:
        return self.answer()


@act
def a_number_that_raises() -> Any:
    return _Number(keyboard_interrupt)


@act
def a_number_that_exits() -> Any:
    return _Number(os_exit)


@act
def a_number_that_sleeps() -> Any:
    return _Number(sleep)


class _Hostile:
    def __repr__(self) -> str:
        os._exit(3)

    __str__ = __hash__ = __eq__ = __len__ = __iter__ = __reduce__ = __bool__ = __repr__  # type: ignore[assignment]


@act
def an_object_that_exits_when_it_is_shown() -> Any:
    return _Hostile()


class _Float(float):
    def __repr__(self) -> str:
        return "]]]" * 1000

    def __reduce__(self) -> Any:
        return os._exit, (3,)


@act
def a_float_with_a_text_of_its_own() -> Any:
    return _Float(1.0)


class _Endless(dict):  # type: ignore[type-arg]
    def items(self) -> Any:
        while True:
            yield "a", 1.0


@act
def a_mapping_without_end() -> Any:
    return _Endless(a=1.0)


class _Status(str):
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return True


@mistake
def a_status_that_equals_all() -> Any:
    return Outcome(_Status("splendid"))  # type: ignore[arg-type]


@act
def components_whose_names_sleep() -> Any:
    class Name:
        def __str__(self) -> str:
            time.sleep(600)
            return "a"

    return {Name(): 1.0}
