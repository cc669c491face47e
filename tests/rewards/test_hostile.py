"""No text hangs, blows up, attacks or breaks the grader: in the main thread, in others, in asyncio and in a process."""

import asyncio
import json
import os
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

from rewards import STATUSES, Outcome, Tags, check_gold, grade
from rewards.maths import fallback

CPU_S = 1.0
"""The most that one verdict may take."""
WALL_S = 5.0
"""The same on a machine that does much else at a time; the fallback process has 0.8 s, and may have to start again."""
MEMORY_BYTES = 256 << 20
TAGS = Tags.default()


@pytest.fixture(scope="module", autouse=True)
def started() -> None:
    """The fallback process, whose start is no part of a verdict."""
    fallback.verify("1", r"\frac{1}{1}")


@pytest.fixture
def marker(tmp_path: Path) -> Iterator[str]:
    """A file that only code from a text makes."""
    file = tmp_path / "MARKER"
    yield str(file)
    assert not file.exists(), "code from a text was run"


def texts(marker: str) -> Iterator[tuple[str, str]]:
    yield from hostile_texts.from_data()
    yield from hostile_texts.generated(marker)


def judge(name: str, text: Any) -> None:
    """As a response, with and without tags, and as a gold: a verdict, in time."""
    cases: list[tuple[Any, Any, Tags | None]] = [(text, "42", None), ("\\boxed{42}", text, None)]
    if isinstance(text, str):
        cases += [(f"<think>{text}</think><answer>{text}</answer>", "42", TAGS), (text, text, None)]
    for response, gold, tags in cases:
        cpu, wall = time.thread_time(), time.monotonic()
        outcome = grade(response, gold, tags=tags)
        cpu, wall = time.thread_time() - cpu, time.monotonic() - wall
        assert isinstance(outcome, Outcome) and outcome.status in STATUSES, name
        assert cpu < CPU_S and wall < WALL_S, f"{name}: {cpu:.2f} s of processor time, {wall:.2f} s"


def judge_all(marker: str) -> int:
    count = 0
    for name, text in texts(marker):
        judge(name, text)
        count += 1
    return count


def in_a_thread(marker: str) -> int:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(judge_all(marker)))
    thread.start()
    thread.join()
    return results[0]


def in_threads_at_once(marker: str) -> int:
    with ThreadPoolExecutor(4) as pool:
        return len(list(pool.map(lambda pair: judge(*pair), texts(marker))))


def in_a_loop(marker: str) -> int:
    async def run() -> int:
        return judge_all(marker)

    return asyncio.run(run())


def in_a_loops_executor(marker: str) -> int:
    async def run() -> int:
        return await asyncio.get_running_loop().run_in_executor(None, judge_all, marker)

    return asyncio.run(run())


@pytest.mark.parametrize("way", [judge_all, in_a_thread, in_threads_at_once, in_a_loop, in_a_loops_executor])
def test_every_text_gets_a_verdict_in_time(way: Callable[[str], int], marker: str) -> None:
    assert way(marker) > 600
