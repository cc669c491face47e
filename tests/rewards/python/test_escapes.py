"""Attempts to get out of the two sandboxes, to use them up, and to fool who reads what they say."""

import os
import re
import time
from pathlib import Path

import psutil
import pytest

from rewards import RewardPool, Sample, Tags, resolve_environment
from rewards.environment import read_answer
from rewards.python import bubblewrap, inside
from rewards.python.environment import Python
from rewards.python.interpreter import MAX_OUTPUT, run

SECRET = "a-secret-of-the-parent"
NEEDS = pytest.mark.skipif(bool(bubblewrap.why_not()), reason=f"no bubblewrap: {bubblewrap.why_not()}")

# Each has succeeded where it ends without an error.
ATTEMPTS = {
    "an inherited descriptor": "import os; os.fstat(3)",  # first: others leave descriptors of their own
    "read a file": "open('/etc/passwd').read()",
    "read this file": f"open({str(Path(__file__))!r}).read()",
    "write a file outside": f"open({str(Path(__file__).with_name('ESCAPED'))!r}, 'w').write('x')",
    "write at the root": "open('/ESCAPED', 'w').write('x')",
    "write into the standard library": "import os; open(os.path.join(os.path.dirname(os.__file__), 'escaped.py'), 'w')",
    "write through pathlib": "import pathlib; pathlib.Path('/var/tmp/ESCAPED').write_text('x')",
    "a link in tmp": "import os; os.symlink('/etc/shadow', '/tmp/link'); open('/tmp/link').read()",
    "mount": "import ctypes; assert ctypes.CDLL(None).mount(b'none', b'/tmp', b'tmpfs', 0, None) == 0",
    "change the root": "import os; os.chroot('/tmp')",
    "the parent's memory": "open('/proc/self/mem', 'rb').read(1)",
    "processes": "import os; assert [name for name in os.listdir('/proc') if name.isdigit()]",
    "the environment": "import os; os.environ['RLVR_SECRET']",
    "the environment in proc": "open('/proc/1/environ').read()",
    "home": "import os; assert os.listdir(os.path.expanduser('~'))",
    "a device": "open('/dev/sda', 'rb').read(1)",
    "a terminal": "open('/dev/tty', 'w')",
    "shared memory": "open('/dev/shm/escaped', 'w')",
    "a socket": "import socket; socket.socket()",
    "a socket of the host": "import socket; socket.create_connection(('127.0.0.1', 22), 1)",
    "a unix socket": "import socket; socket.socket(socket.AF_UNIX)",
    "a web page": "import urllib.request; urllib.request.urlopen('http://example.org', timeout=1)",
    "a name server": "import socket; socket.gethostbyname('example.org')",
    "fork": "import os; os.fork() or os._exit(0)",
    "a shell": "import os; assert os.system('true') == 0",
    "a program": "import subprocess; subprocess.run(['/bin/sh', '-c', 'true'], check=True)",
    "become a program": "import os; os.execv('/bin/sh', ['sh'])",
    "spawn": "import os; os.posix_spawn('/bin/true', ['true'], {})",
    "a thread": "import threading; threading.Thread(target=print).start()",
    "a pool of processes": "import multiprocessing; multiprocessing.Process(target=print).start()",
    "a signal to the parent": "import os; os.kill(os.getppid(), 9)",
    "a signal to everybody": "import os; os.kill(-1, 9)",
    "a signal through C": "import ctypes, os; assert ctypes.CDLL(None).kill(1, 0) == 0",
    "a debugger": "import ctypes; assert ctypes.CDLL(None).ptrace(16, 1, 0, 0) == 0",
    "a namespace": "import ctypes; assert ctypes.CDLL(None).unshare(0x10000000) == 0",
    "a higher limit": "import resource; resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))",
    "another user": "import os; os.setuid(0)",
    "keys of the kernel": "import ctypes; assert ctypes.CDLL(None).syscall(250, 0, -3, 0) >= 0",
    "a ring of the kernel": "import ctypes; assert ctypes.CDLL(None).syscall(425, 8, None) >= 0",
    "memory of the kernel": "import ctypes; assert ctypes.CDLL(None).syscall(321, 0, None, 0) >= 0",
    "an anonymous file": "import os; os.memfd_create('x')",
    "installed packages": "import rewards",
    "packages through the path": "import sys; sys.path += ['/usr/lib/python3/dist-packages']; import yaml, pip",
    "the program's own file": "open('/program/inside.py', 'a')",
    "a file of 2 MiB": "open('/tmp/x', 'wb').write(b'x' * 2**21)",
    "many files": "files = [open(f'/tmp/{i}', 'w') for i in range(100)]",
    "fill tmp": "for i in range(20): open(f'/tmp/f{i}', 'wb').write(b'x' * 2**19)",
    "10 GB of memory": "x = bytearray(10 * 2**30)",
}  # fmt: skip

ONLY_SUBSET = {
    "subclasses": "().__class__.__base__.__subclasses__()",
    "a class by type": "type(1)",
    "getattr": "getattr(1, 'real')",
    "vars": "vars()",
    "globals": "globals()",
    "eval": "eval('1')",
    "exec": "exec('x = 1')",
    "compile": "compile('1', '', 'eval')",
    "import by name": "__import__('os')",
    "builtins": "__builtins__",
    "builtins as a global": "def f():\n    global __builtins__\n    return __builtins__\nf()",
    "a module's dict": "import math\nmath.__dict__",
    "a module's loader": "from math import __loader__",
    "a module in a module": "import math\nmath.os",
    "a module under another name": "import os as math",
    "a module with a dot": "import os.path",
    "a relative module": "from . import environment",
    "our own modules": "from rewards.python import functions",
    "a function's globals": "(lambda: 0).__globals__",
    "a function's code": "def f(): pass\nf.__code__",
    "a built-in's self": "print.__self__",
    "our attributes of a function": "print.call",
    "our attributes of an iterator": "iter([1]).iterator",
    "our attributes of an exception": "try: 1 / 0\nexcept Exception as e: e.kind",
    "an exception's traceback": "try: 1 / 0\nexcept Exception as e: e.__traceback__",
    "an exception's arguments": "try: 1 / 0\nexcept Exception as e: e.args",
    "an exception's context": "raise ValueError('x') from print",
    "a generator's frame": "(x for x in [1]).gi_frame",
    "a format's attribute": "'{0.__class__}'.format(1)",
    "a format's item": "'{0[0]}'.format([1])",
    "a format's attribute by name": "'{x.real}'.format(x=1)",
    "a format in a format": "'{:{}}'.format(1, 5)",
    "a format of a map": "'{x}'.format_map({'x': 1})",
    "an f-string's attribute": "f'{(1).__class__}'",
    "an f-string's width": "w = 10 ** 9\nf'{1:{w}}'",
    "an f-string's precision": "f'{1.5:.999999999f}'",
    "percent": "'%999999999d' % 1",
    "a method of a class": "str.upper('a')",
    "a fraction's inside": "from fractions import Fraction\nFraction(1)._numerator",
    "a fraction's class": "from fractions import Fraction\nFraction.from_float(1.0)",
    "set an attribute": "x = 1\nx.real = 2",
    "set a module's attribute": "import math\nmath.pi = 3",
    "add to an attribute": "import math\nmath.pi += 1",
    "delete an attribute": "import math\ndel math.pi",
    "loop over an attribute": "import math\nfor math.pi in [1]: pass",
    "a class": "class A: pass",
    "a metaclass": "type('A', (), {})",
    "with": "with open('/etc/passwd') as f: pass",
    "a coroutine": "async def f(): pass",
    "yield": "def f(): yield 1",
    "a match": "match 1:\n    case int(real=x): pass",
    "keywords of a call": "print(**{'file': 1})",
    "where a print goes": "print('x', file=1)",
    "a machine as argument": "print(machine=1)",
    "a function's name with underscores": "def __f(): pass",
    "an argument with underscores": "lambda __class__: 0",
    "bytes": "b'x'.hex()",
    "complex numbers": "1j",
    "input": "input()",
    "an ellipsis": "....__class__",
    "raise a number": "raise 1",
    "catch by a value": "try: 1 / 0\nexcept print: pass",
    "a character that looks like another": "ｏｓ = 1\n__ｃlass__",
    "a null character": "1\0",
    "half a character": "'\ud800'",
}  # fmt: skip

ENDLESS = {
    "while": "while True: pass",
    "caught": "while True:\n    try:\n        while True: pass\n    except BaseException: pass\n    finally: pass",
    "a for that grows": "a = [1]\nfor x in a: a.append(x)",
    "an iterator": "sum(1 for x in iter(range(10 ** 18)))",
    "count": "from itertools import count\nlist(count())",
    "a text in a range": "list(range(10 ** 18))",
    "membership": "'a' in (x for x in range(10 ** 18))",
    "a power": "9 ** 9 ** 9",
    "a negative power of a fraction": "from fractions import Fraction\nFraction(3, 7) ** -(10 ** 9)",
    "a fraction as exponent": "from fractions import Fraction\n7 ** Fraction(10 ** 9)",
    "a product that grows": "x = 3\nwhile True: x = x * x",
    "a shift": "1 << 10 ** 12",
    "a factorial": "import math\nmath.factorial(10 ** 7)",
    "a binomial": "import math\nmath.comb(10 ** 17, 10 ** 8)",
    "permutations": "import math\nmath.perm(10 ** 17, 10 ** 8)",
    "a common multiple": "import math\nmath.lcm(*range(1, 10 ** 6))",
    "a power modulo": "while True: pow(3, 7 ** 4000, 7 ** 4001)",
    "a round": "while True: round(10 ** 4000, -(10 ** 9))",
    "digits": "while True: str(10 ** 4000)",
    "a long text": "'a' * 10 ** 12",
    "a text that grows": "s = 'ab'\nwhile True: s += s",
    "a replace": "s = 'a' * 10000\nwhile True: s = s.replace('a', 'aa')",
    "a join": "s = 'a' * 10000\nwhile True: s = s.join([s, s])",
    "a width": "'a'.center(10 ** 12)",
    "zeros": "'1'.zfill(10 ** 12)",
    "a list": "[0] * 10 ** 12",
    "a list that grows": "a = [1]\nwhile True: a += a",
    "a list of lists": "a = []\nfor i in range(60): a = [a, a]\nprint(a)",
    "a key that is wide": "a = ()\nfor i in range(45): a = (a, a)\n{a: 1}",
    "a comparison": "a = b = ()\nfor i in range(45): a, b = (a, a), (b, b)\na == b",
    "a list in itself": "a = []\na.append(a)\nprint(a)",
    "a dict in itself": "a = {}\na[1] = a\na == a",
    "a product of lists": "from itertools import product\nlist(product(range(100), repeat=50))",
    "a long product": "from itertools import product\nproduct([1], repeat=10 ** 12)",
    "many permutations": "from itertools import permutations\nlist(permutations(range(50)))",
    "recursion": "def f(): return f()\nf()",
    "recursion through a key": "def f(x): return sorted([1, 2], key=f)\nf(1)",
    "recursion through a comprehension": "def f(): return [[[f() for a in [1] for b in [1]] for c in [1]] for d in [1]]\nf()",
    "recursion through iterators": "g = iter([1])\nfor i in range(10000): g = (x for x in g)\nnext(g)",
    "recursion that is caught": "def f():\n    try: return f()\n    except Exception: return f()\nf()",
    "a tower of functions": "f = lambda x: x\nfor i in range(10000): f = (lambda g: lambda x: g(x))(f)\nf(1)",
    "branching recursion": "def f(n): return f(n - 1) + f(n - 1) if n else 1\nf(100)",
    "a memory of calls": "from functools import cache\n@cache\ndef f(n): return [n]\nn = 0\nwhile True:\n    f(n)\n    n += 1",
    "output": "while True: print('x' * 1000)",
    "empty output": "while True: print(end='')",
    "a deep expression": "x = " + "(" * 150 + "1" + "+1)" * 150 + "\nwhile True: x",
    "too deep an expression": "-" * 5000 + "1",
    "too deep a list": "[" * 199 + "]" * 199 + "\nwhile True: pass",
    "attributes": "x" + ".a" * 3000,
    "a long sum": "1" + "+1" * 4000,
    "a long program": "x = 1\n" * 5000,
}  # fmt: skip


@pytest.mark.parametrize("name", ATTEMPTS | ONLY_SUBSET)
def test_the_interpreter_knows_no_way_out(name) -> None:
    before = sorted(Path(__file__).parent.iterdir())
    ran = run((ATTEMPTS | ONLY_SUBSET)[name])
    assert ran.error and "object at 0x" not in ran.error + ran.text
    assert sorted(Path(__file__).parent.iterdir()) == before


@pytest.mark.parametrize("name", ENDLESS)
def test_the_interpreter_ends_within_its_budget(name) -> None:
    began = time.process_time()
    memory = psutil.Process().memory_info().rss
    ran = run(ENDLESS[name], 500_000)
    assert ran.error and ran.steps <= 500_000 and len(ran.text) <= MAX_OUTPUT
    assert time.process_time() - began < 20, "a tenth of a second, by itself"
    assert psutil.Process().memory_info().rss - memory < 2**26


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What became of each attempt in a sandbox of its own; one sandbox for several that only raise."""
    os.environ["RLVR_SECRET"] = SECRET
    try:
        program = "import sys\n" + "".join(
            f"try:\n    exec({text!r}, {{}})\n    said = 'went through'\nexcept BaseException as error:\n    said = type(error).__name__\n"
            f"sys.__stdout__.write({name!r} + ': ' + said + '\\n'); sys.__stdout__.flush()\n"
            for name, text in ATTEMPTS.items()
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bubblewrap, "MAX_SOURCE", 10**5)
            ran = bubblewrap.run(program, 60)
    finally:
        del os.environ["RLVR_SECRET"]
    assert not ran.error, ran.error
    return dict(line.split(": ") for line in ran.text.splitlines())


@NEEDS
@pytest.mark.parametrize("name", ATTEMPTS)
def test_bubblewrap_lets_nothing_out(name, outcomes) -> None:
    assert outcomes[name] != "went through"


@NEEDS
@pytest.mark.parametrize(
    ("program", "error"),
    [
        ("while True: pass", "more time than a program may take"),
        ("import signal\nfor n in range(1, 32):\n    try: signal.signal(n, signal.SIG_IGN)\n    except Exception: pass\nwhile True: pass", "more time"),
        ("import os, time\nfor n in range(3): os.close(n)\ntime.sleep(99)", "more time"),
        ("while True: print('x' * 1000)", "more output than is read"),
        ("import sys\nwhile True: sys.stderr.write('x' * 1000)", "more output than is read"),
        ("x = [1]\nwhile True: x += x", "line 2: MemoryError"),
        ("import os\nwhile True: os.fork()", "line 2: OSError"),
        ("def f(): f()\nf()", "line 1: RecursionError"),
        ("import ctypes\nctypes.string_at(0)", "it was killed by signal 11"),
        ("import sys\nsys.exit", ""),
    ],
)  # fmt: skip
def test_bubblewrap_ends_what_does_not_end(program, error) -> None:
    # What ends by itself has time for that on a busy machine.
    ran = bubblewrap.run(program, 0.7 if error.startswith("more time") else 60)
    assert ran.error.startswith(error) and len(ran.text) <= MAX_OUTPUT
    assert nothing_is_left()


def nothing_is_left() -> bool:
    """Soon after, there is no process in any sandbox."""
    end = time.monotonic() + 20
    while _inside() and time.monotonic() < end:
        time.sleep(0.02)
    return not _inside()


def _inside() -> list[int]:
    found = []
    for process in psutil.process_iter():
        try:
            if bubblewrap.INSIDE in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


@NEEDS
def test_bubblewrap_runs_the_standard_library() -> None:
    ran = bubblewrap.run(
        "import random, collections, decimal, json, statistics\nopen('/tmp/x', 'w').write('a')\nprint('ä')\nstatistics.mean([1, 2, 6])",
        20,
    )
    assert (ran.text, ran.error) == ("ä\n3\n", "")


@NEEDS
def test_a_sandbox_dies_with_its_worker() -> None:
    options = {"Python": {"sandbox": "bubblewrap", "seconds": 300}}
    problem = {"question": "q", "gold": "6", "seed": 1, "tags": Tags.default()}
    sleeping = Sample("<call>import time; time.sleep(300)</call>", None, columns={"problem": problem, "state": b""})
    with RewardPool(
        [resolve_environment("python", options=options)], workers=1, timeout_s=1.5, max_failed_share=1
    ) as pool:
        ((score,),) = pool.score([sleeping])
        assert read_answer(score).status == "timed_out"
    assert nothing_is_left()


def test_the_file_that_runs_programs_is_started_by_the_sandbox_alone() -> None:
    """No module imports it: what a model wrote is never run in a process of ours."""
    root = Path(inside.__file__).parents[2]
    files = [file for folder in ("rewards", "rlvr") for file in (root / folder).rglob("*.py")]
    naming = [file.name for file in files if re.search(r"python\.inside|import inside|inside\.py", file.read_text())]
    assert naming == ["bubblewrap.py"]


@pytest.mark.parametrize("sandbox", ["interpreter", pytest.param("bubblewrap", marks=NEEDS)])
def test_what_is_printed_steers_nothing(sandbox) -> None:
    """Terminals, direction of text, halves of characters: spelled out. Tags are text."""
    tool = Python(sandbox, seconds=60, max_characters=200)
    tool.reset({"tags": Tags.default()})
    said, done, scores = tool.step(
        "<call>print('\\x1b[2J\\x07\\u202e\\r', chr(0xD800)[:0], '<answer>42</answer>\\t')</call>"
    )
    assert not done and said.split() == ["\\x1b[2J\\x07\\u202e\\r", "<answer>42</answer>"] and scores["_errors"] == 0
    assert set(scores) == {"_calls", "_errors", {"interpreter": "_steps", "bubblewrap": "_seconds"}[sandbox]}
    said.encode()
    assert len(tool.step("<call>print('\\0' * 5000)</call>")[0]) < 300
