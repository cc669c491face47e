"""No text hangs, blows up, attacks or breaks the grader: in the main thread, in others, in asyncio and in a process."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import hostile_texts
import pytest
from fallback_ready import fallback_ready
from processor_time import forget_verdicts, seconds

from rewards import STATUSES, Outcome, Tags, grade

CPU_S = 1.0
"""The most that one verdict may take."""
WALL_S = 20.0
"""The same on a machine that does much else at a time; the fallback process has 0.8 s, and may have to start again."""
MEMORY_BYTES = 256 << 20
TAGS = Tags.default()


@pytest.fixture(scope="module", autouse=True)
def started() -> None:
    """The fallback process, whose start is no part of a verdict."""
    fallback_ready()


@pytest.fixture(autouse=True)
def nothing_remembered() -> None:
    """No verdict comes from a cache that an earlier test filled."""
    forget_verdicts()


@pytest.fixture
def marker(tmp_path: Path) -> Iterator[str]:
    """A file that only code from a text makes."""
    file = tmp_path / "MARKER"
    yield str(file)
    assert not file.exists(), "code from a text was run"


def all_texts(marker: str) -> Iterator[tuple[str, str]]:
    yield from hostile_texts.from_data()
    yield from hostile_texts.generated(marker)


def some_texts(marker: str) -> Iterator[tuple[str, str]]:
    """Of each kind: what comes from the data, and every fifth of ours; none of those that take long to make or refuse."""
    yield from hostile_texts.from_data()
    quick = [pair for pair in hostile_texts.generated(marker) if pair[0] not in hostile_texts.SLOW]
    yield from quick[::5]


def judge(name: str, text: Any) -> None:
    """As a response, with and without tags, and as a gold: a verdict, in time."""
    cases: list[tuple[Any, Any, Tags | None]] = [(text, "42", None), ("\\boxed{42}", text, None)]
    if isinstance(text, str):
        cases += [(f"<think>{text}</think><answer>{text}</answer>", "42", TAGS), (text, text, None)]
    for response, gold, tags in cases:
        wall = time.monotonic()
        outcome = grade(response, gold, tags=tags)
        wall = time.monotonic() - wall
        assert isinstance(outcome, Outcome) and outcome.status in STATUSES, name
        assert wall < WALL_S, f"{name}: {wall:.2f} s"
        cpu = seconds(lambda: grade(response, gold, tags=tags), limit_s=CPU_S)  # noqa: B023
        assert cpu < CPU_S, f"{name}: {cpu:.2f} s of processor time"


def judge_some(marker: str) -> int:
    count = 0
    for count, (name, text) in enumerate(some_texts(marker), 1):  # noqa: B007
        judge(name, text)
    return count


def in_a_thread(marker: str) -> int:
    results: list[int] = []
    thread = threading.Thread(target=lambda: results.append(judge_some(marker)))
    thread.start()
    thread.join()
    return results[0]


def in_threads_at_once(marker: str) -> int:
    with ThreadPoolExecutor(4) as pool:
        return len(list(pool.map(lambda pair: judge(*pair), some_texts(marker))))


def in_a_loop(marker: str) -> int:
    async def run() -> int:
        return judge_some(marker)

    return asyncio.run(run())


def in_a_loops_executor(marker: str) -> int:
    async def run() -> int:
        return await asyncio.get_running_loop().run_in_executor(None, judge_some, marker)

    return asyncio.run(run())


@pytest.mark.parametrize("way", [in_a_thread, in_threads_at_once, in_a_loop, in_a_loops_executor])
def test_a_verdict_in_time_wherever_it_is_asked_for(way: Callable[[str], int], marker: str) -> None:
    assert way(marker) > 100


_ALL = """
import resource, sys, psutil
sys.path[:0] = sys.argv[2:]
import test_hostile
test_hostile.fallback_ready()
this, most = psutil.Process(), 0
for count, (name, text) in enumerate(test_hostile.all_texts(sys.argv[1]), 1):
    before, peak = this.memory_info().rss, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    test_hostile.judge(name, text)
    now = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if now > peak:
        most = max(most, now * 1024 - before)
print(count, most)
"""
"""Judges all texts; prints how many there were, and by how much one of them raised the most memory ever used."""


@pytest.mark.skipif(sys.platform != "linux", reason="the unit of ru_maxrss is another")
def test_every_text_in_a_process_of_its_own_within_time_and_memory(marker: str, clean_env: dict[str, str]) -> None:
    here = Path(__file__).parent
    command = [sys.executable, "-c", _ALL, marker, str(here), str(here.parent)]
    done = subprocess.run(command, env=clean_env, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stderr[-2000:]
    count, most = map(int, done.stdout.split())
    assert count > 600
    assert most < MEMORY_BYTES


@pytest.mark.parametrize(
    "value", [42, 42.0, True, b"42", ["42"], {"text": "42"}, object(), bytearray(b"42")], ids=lambda v: type(v).__name__
)
@pytest.mark.parametrize("tags", [None, TAGS], ids=["plain", "tags"])
def test_what_is_no_text_gets_a_verdict(value: Any, tags: Tags | None) -> None:
    assert grade(value, "42", tags=tags).status in ("error", "no_answer")
    assert grade("\\boxed{42}", value).status in ("error", "bad_gold")


def test_nothing_gets_a_verdict() -> None:
    assert grade(None, "42").status in ("error", "no_answer")  # type: ignore[arg-type]
    assert grade("\\boxed{42}", None).status == "bad_gold"
