"""What holds the pool together when a function attacks it, part by part. Functions that misbehave, by the dozen: tests/misbehaviour."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from leftovers import is_alive

from rewards import Outcome, UserError, resolve
from rewards.call import score
from rewards.pool import RewardPool, launch, output, protocol
from rewards.pool.protocol import Progress

from .conftest import children, samples

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the pool forks on Linux alone")

ATTACKS = """
import os, time
from rewards import Outcome


def attack(response):
    kind, _, text = response.partition(" ")
    if kind == "escape":  # a grandchild in a session of its own
        if os.fork() == 0:
            os.setsid()
            with open(text, "w") as file:
                file.write(str(os.getpid()))
            time.sleep(120)
            os._exit(0)
        while not os.path.exists(text) or not open(text).read():
            time.sleep(0.01)
        time.sleep(30)
    elif kind == "print":
        for _ in range(200):
            os.write(1, b"x" * 2**16)
    elif kind == "outcome":
        return Outcome("correct", answer=42)
    return 1.0


def lazily(response):
    import blocks_twice
    return 1.0
"""
# Its import blocks, but for the first process that tries.
BLOCKS_TWICE = """
import os, time
try:
    os.mkdir(os.environ["BLOCKS_ONCE"])
except FileExistsError:
    time.sleep(600)
"""


@pytest.fixture
def attacks(tmp_path: Path) -> Iterator[RewardPool]:
    path = tmp_path / "attacks.py"
    path.write_text(ATTACKS)
    with RewardPool([resolve(f"{path}:attack")], workers=2, timeout_s=3.0, max_failed_share=1.0) as pool:
        yield pool


def test_shared_memory_keeps_its_size() -> None:
    fd = Progress.create()
    with pytest.raises(PermissionError):
        os.ftruncate(fd, 0)
    Progress(fd).reset()
    os.close(fd)


def test_a_chunks_answer_is_bounded() -> None:
    assert protocol.MAX_FRAME_BYTES <= 2**26
    with pytest.raises(ValueError, match="a frame of"):
        protocol.FrameReader().feed(protocol._LENGTH.pack(2**26 + 1))


def test_what_a_function_starts_in_a_session_of_its_own_dies_with_its_worker(
    attacks: RewardPool, tmp_path: Path
) -> None:
    place = tmp_path / "pid"
    (found,) = attacks.score(samples("good", f"escape {place}"))
    assert found[1].outcome is not None and found[1].outcome.status == "timed_out"
    grandchild = int(place.read_text())
    end = time.monotonic() + 30
    while psutil.pid_exists(grandchild) and time.monotonic() < end:
        time.sleep(0.02)
    assert not psutil.pid_exists(grandchild)
    assert [one.value for one in attacks.score(samples("good", "good"))[0]] == [1.0, 1.0]


def test_output_is_bounded_and_the_scores_come(attacks: RewardPool, capfd, monkeypatch) -> None:
    (found,) = attacks.score(samples("print", "print", "good"))
    assert [one.value for one in found] == [1.0] * 3
    attacks.close()
    told = capfd.readouterr().err
    assert 0 < told.count("x") < 2 * output.BURST_BYTES and "what follows is left out" in told


@pytest.mark.parametrize("pooled", [True, False])
def test_a_mistaken_outcome_is_told_and_names_the_function(attacks: RewardPool, pooled: bool) -> None:
    with pytest.raises(UserError, match=r"'attack' returned Outcome\(.*answer=42.* texts as answer, stage and message"):
        if pooled:
            attacks.score(samples("good", "outcome"))
        else:
            score(attacks.functions[0], samples("outcome"))
    good = Outcome("wrong", answer="41", message="no")
    assert score(resolve(lambda response: good), samples("x"))[0].outcome == good


def test_a_fork_server_that_is_stopped_is_replaced(attacks: RewardPool, monkeypatch) -> None:
    monkeypatch.setattr(launch, "ANSWER_LIMIT_S", 3.0)
    attacks.score(samples("good"))
    (server,) = [p for p in psutil.Process().children() if "rewards.pool.forkserver" in " ".join(p.cmdline())]
    workers = server.children()
    server.send_signal(signal.SIGSTOP)
    for worker in workers:
        worker.kill()
    began = time.monotonic()
    (found,) = attacks.score(samples(*["good 1"] * 3, "good 2"))
    assert [one.value for one in found] == [1.0] * 4 and time.monotonic() - began < 20
    assert not is_alive(server)


def test_an_import_that_blocks_the_fork_server_costs_a_moment(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(launch, "ANSWER_LIMIT_S", 3.0)
    monkeypatch.setenv("BLOCKS_ONCE", str(tmp_path / "once"))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "attacks.py").write_text(ATTACKS)
    (tmp_path / "blocks_twice.py").write_text(BLOCKS_TWICE)
    function = resolve(f"{tmp_path / 'attacks.py'}:lazily")
    others = children(os.getpid())  # of tests before this one
    with RewardPool([function], workers=1, timeout_s=3.0, max_failed_share=1.0) as pool:
        assert pool.score(samples("good"))[0][0].value == 1.0
        began = time.monotonic()
        # The same worker has it; a second one, whose import blocks, is ended at its deadline, as any call.
        for _ in range(3):
            (found,) = pool.score(samples("a", "b"))
            assert all(
                one.value == 1.0 or (one.outcome and one.outcome.status in ("timed_out", "error")) for one in found
            )
        assert time.monotonic() - began < 60
        everyone = [process for process in children(os.getpid()) if process not in others]
        assert everyone
    end = time.monotonic() + 30
    while any(map(is_alive, everyone)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(map(is_alive, everyone))
