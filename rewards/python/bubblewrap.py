"""`run`: a program in the machine's Python, in a sandbox of Linux made by bubblewrap (`bwrap`), which needs no root.

A new process for each, in namespaces of its own: no network, no processes but itself, no users, no environment variables. It sees
the standard library and the system's shared libraries, read-only, and an empty folder /tmp of 1 MiB; no /proc, no /dev, no home. Of the
kernel's calls it has those of `CALLS`: none that start, signal or trace a process or open a socket. Memory, files and computing time are
limited in `inside.py` before the program is read; what it prints is read up to a bound, and the process killed at its deadline.
"""

import os
import platform
import selectors
import shutil
import struct
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from rewards.python.interpreter import MAX_OUTPUT, MAX_SOURCE, Ran

TMP_BYTES = 2**20
START_S = 10.0
"""Most that the probe may take; a start takes some 40 ms."""
INSIDE = "/program/inside.py"

CALLS = (
    "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 23 24 25 28 32 33 35 39 59 60 61 63 72 74 77 78 79 80 82 83 84 87 89 96 97 98 99 100 "
    "102 104 107 108 110 131 158 160 186 201 202 204 217 218 228 229 230 231 257 258 262 263 264 267 269 270 271 273 292 293 302 316 318 332 "
    "334 439"
)
"""Numbers of the system calls of x86-64 that there are: reading and writing (0 to 20), open, stat, poll, memory (mmap, mprotect, munmap, brk,
mremap, madvise), signals of its own, dup, sleep, getpid and its like, execve (for the start), exit, wait4 (bubblewrap's), files (rename,
mkdir, unlink, readlink, getdents), limits, clocks, futex, getrandom. Any other is answered by ENOSYS."""
_ARCHITECTURE = 0xC000003E  # AUDIT_ARCH_X86_64
_LOAD, _EQUAL, _ABOVE, _RETURN = 0x20, 0x15, 0x35, 0x06
_KILL, _ALLOW, _REFUSE = 0x80000000, 0x7FFF0000, 0x00050000 | 38  # ENOSYS


def run(source: str, seconds: float) -> Ran:
    """Run a program for so many seconds at most. Never raises, whatever it is; OSError where the sandbox can't be started."""
    if len(source) > MAX_SOURCE:
        return Ran("", f"a program of {len(source):,} characters; at most {MAX_SOURCE:,} are read")
    if seconds <= 0:
        return Ran("", "no time is left in this turn")
    began = time.monotonic()
    calls = os.memfd_create("calls")
    try:
        os.write(calls, _filter())
        os.lseek(calls, 0, os.SEEK_SET)
        process = subprocess.Popen(
            [*_sandbox(calls), *_python(), INSIDE, str(int(seconds) + 1)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[calls],
        )
    finally:
        os.close(calls)
    with process:
        try:
            out, err, reason = _talk(process, source.encode(errors="replace"), began + seconds)
        finally:
            process.kill()  # bubblewrap, and with it all that runs in the sandbox
    if not reason and process.returncode:
        reason = err.strip() or _ended(process.returncode)
    return Ran(out[:MAX_OUTPUT], reason, seconds=time.monotonic() - began)


def _talk(process: "subprocess.Popen[bytes]", source: bytes, deadline_s: float) -> tuple[str, str, str]:
    """Give it the program and read what it says: its output, its errors, and why it was cut short ("" if it was not)."""
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    try:
        process.stdin.write(source)  # fits into a pipe: nobody waits
        process.stdin.close()
    except BrokenPipeError:
        pass
    said, reason = {process.stdout: b"", process.stderr: b""}, ""
    with selectors.DefaultSelector() as selector:
        for stream in said:
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map() and not reason:
            for ready, _ in selector.select(max(0.0, deadline_s - time.monotonic())):
                stream = process.stdout if ready.fileobj is process.stdout else process.stderr
                data = os.read(ready.fd, 2**16)
                said[stream] += data
                if not data:
                    selector.unregister(stream)
                if len(said[stream]) > 4 * MAX_OUTPUT:
                    reason = "more output than is read"
            if time.monotonic() >= deadline_s:
                reason = reason or "more time than a program may take"
    if not reason:
        try:
            process.wait(max(0.0, deadline_s - time.monotonic()))  # it may have closed its streams and live on
        except subprocess.TimeoutExpired:
            reason = "more time than a program may take"
    return said[process.stdout].decode(errors="replace"), said[process.stderr].decode(errors="replace"), reason


def _ended(status: int) -> str:
    """Why a program ended that said nothing. bubblewrap tells of a signal as a shell does."""
    return f"it was killed by signal {status - 128}" if status > 128 else f"it ended with status {status}"


def _sandbox(calls: int) -> Iterator[str]:
    """bubblewrap's command line, up to the program's."""
    yield from (shutil.which("bwrap") or "bwrap", "--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net")
    yield from ("--unshare-uts", "--unshare-cgroup-try", "--uid", "65534", "--gid", "65534", "--hostname", "sandbox")
    yield from ("--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL", "--seccomp", str(calls))
    stdlib = Path(sysconfig.get_path("stdlib"))
    for folder in ("/usr/lib", "/usr/lib64", "/lib", "/lib64"):
        if os.path.islink(folder):
            yield from ("--symlink", os.readlink(folder), folder)
        elif os.path.isdir(folder):
            yield from ("--ro-bind", folder, folder)
    for place in {
        str(stdlib),
        str(Path(sysconfig.get_path("platstdlib", vars=_of_base()))),
        _python()[0],
        *_libpython(),
    }:
        yield from ("--ro-bind", place, place)
    for packages in (stdlib / "site-packages", stdlib / "dist-packages", Path("/usr/lib/python3")):
        if packages.is_dir():
            yield from ("--tmpfs", str(packages), "--remount-ro", str(packages))
    yield from ("--ro-bind", str(Path(__file__).with_name("inside.py")), INSIDE)
    yield from ("--size", str(TMP_BYTES), "--tmpfs", "/tmp", "--remount-ro", "/", "--chdir", "/tmp")


def _of_base() -> dict[str, str]:
    """Of the Python that a virtual environment was made from."""
    return {"platbase": sys.base_exec_prefix, "base": sys.base_prefix}


def _libpython() -> list[str]:
    """Python's own shared library, where it has one beside its binary rather than among the system's."""
    library = Path(sysconfig.get_config_var("LIBDIR") or "/") / (sysconfig.get_config_var("INSTSONAME") or "-")
    return [str(library)] if library.suffix != ".a" and library.is_file() else []


def _python() -> list[str]:
    """The interpreter: isolated, without site-packages, writing no bytecode."""
    binary = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
    return [binary, "-I", "-S", "-B", "-X", "utf8"]


@cache
def _filter() -> bytes:
    """A filter of system calls for the kernel (seccomp): what is in `CALLS`, as a 64-bit program calls it, and nothing else."""
    numbers = [int(number) for number in CALLS.split()]
    allow = [(_EQUAL, len(numbers) - place, 0, number) for place, number in enumerate(numbers)]
    program = [
        (_LOAD, 0, 0, 4),  # the architecture
        (_EQUAL, 1, 0, _ARCHITECTURE),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, 0),  # the call's number; those of 32-bit programs are far above all of these
        *allow,
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("HBBI", *step) for step in program)


@cache
def why_not() -> str:
    """Why there is no sandbox on this machine, found out by trying; "" where there is one."""
    if not sys.platform.startswith("linux"):
        return "bubblewrap needs Linux"
    if platform.machine() != "x86_64":
        return f"there is no list of system calls for {platform.machine()}, only for x86_64"
    if shutil.which("bwrap") is None:
        return "bwrap is not installed (apt install bubblewrap)"
    try:
        tried = run("6 * 7", START_S)
    except OSError as error:
        return f"bwrap can't be started: {error}"
    return "" if tried.text == "42\n" and not tried.error else f"trying it said: {(tried.error or tried.text)[:300]}"
