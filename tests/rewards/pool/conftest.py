"""A plugin with functions that misbehave, and a pool of them."""

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from rewards import Sample, Tags, resolve
from rewards.pool import RewardPool

PLUGIN = '''
import os, re, sys, time
from rewards import reward_fn


@reward_fn("pool_length")
def length(response):
    return len(response) / 10


def deeper(text):  # without defaults: with one, Python 3.13.0 itself recurses until memory ends
    return deeper(text)


@reward_fn("pool_naughty")
def naughty(response, gold=None, prompt="", finished=True):
    """Does what the response says; 1 if that comes to an end."""
    act, _, text = response.partition(" ")
    if act == "sleep":
        time.sleep(float(text))
    elif act == "spin":
        end = time.monotonic() + float(text)
        while time.monotonic() < end:
            pass
    elif act == "regex":  # in C, with the interpreter's lock held
        re.match("(a|aa)+$", "a" * 60 + "b")
    elif act == "raise":
        raise ValueError(text)
    elif act == "exit":
        sys.exit(text)
    elif act == "interrupt":
        raise KeyboardInterrupt
    elif act == "die":
        os._exit(int(text))
    elif act == "segv":
        os.kill(os.getpid(), 11)
    elif act == "eat":
        return float(len(bytearray(int(text))) > 0)
    elif act == "recurse":
        return deeper(text)
    elif act == "print":
        print(text)
        os.write(1, b"rubbish on stdout")
        sys.stderr.write(text)
    elif act == "close":
        os.closerange(3, 1000)
    elif act == "rubbish":
        for fd in range(3, 50):
            try:
                os.write(fd, b"x" * 1000)
            except OSError:
                pass
    elif act == "fork":
        os.fork()
    elif act == "pid":
        return float(os.getpid())
    elif act == "nan":
        return float("nan")
    elif act == "text":
        return text
    elif act == "huge":
        return {"a" * 300_000: 1.0}
    return 1.0


@reward_fn("pool_batch")
def batch(responses, level=None):
    for response in responses:
        if response.startswith("sleep"):
            time.sleep(float(response.split()[1]))
        if response == "die":
            os._exit(1)
    return [float(len(responses))] * len(responses)
'''


@pytest.fixture(scope="session")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("pool") / "misbehaving_plugin.py"
    path.write_text(PLUGIN)
    return str(path)


@pytest.fixture(scope="module")
def naughty(plugin: str) -> Iterator[RewardPool]:
    """A pool of `pool_naughty` with a short deadline that takes any number of failures."""
    function = resolve(f"{plugin}:naughty")
    with RewardPool([function], workers=2, timeout_s=1.5, memory_limit_bytes=2**28, max_failed_share=1.0) as pool:
        yield pool


def samples(*responses: str, **more) -> list[Sample]:
    return [Sample(response, "42", tags=Tags.default(), **more) for response in responses]


def children(process: int) -> list[psutil.Process]:
    return psutil.Process(process).children(recursive=True)


REPOSITORY = Path(__file__).parents[3]
