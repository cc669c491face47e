"""Whatever a function does to its worker, its sample has an outcome and no other sample notices."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count

import pytest

from rewards import Outcome, UserError, resolve
from rewards.call import score
from rewards.pool import RewardPool, workers
from rewards.pool.launch import CAN_FORK
from rewards.pool.limits import Limits
from rewards.pool.protocol import Progress
from rewards.pool.workers import Worker, cpu_times

from .conftest import samples


def test_scores_are_those_of_a_single_process_in_order(plugin) -> None:
    functions = [resolve("gsm8k_reward_fn"), resolve(f"{plugin}:length"), resolve(f"{plugin}:batch")]
    some = samples(*[f"<think>{'x' * (i % 50)}</think><answer>{i % 45}</answer>" for i in range(500)])
    with RewardPool(functions, workers=2) as pool:
        found = pool.score(some)
    for function, column in zip(functions, found, strict=True):
        for one, other in zip(column, score(function, some), strict=True):
            assert (one.value, one.components) == (other.value, other.components)
            assert (one.outcome and one.outcome.status) == (other.outcome and other.outcome.status)
    assert pool._scheduler.group.forks == CAN_FORK  # warm workers cost a millisecond, with our own grader in them too
    assert {name: count.calls for name, count in pool.failures.items()} == {
        "gsm8k_reward_fn": 500,
        "length": 500,
        "batch": 500,
    }


@pytest.mark.parametrize(
    ("bad", "status", "said"),
    [
        ("sleep 60", "timed_out", "timed out after 1.5"),
        ("spin 60", "timed_out", "timed out after"),
        ("regex", "timed_out", "timed out after"),
        ("raise it broke", "error", "ValueError: it broke"),
        ("exit 3", "error", "SystemExit: 3"),
        ("interrupt", "error", "KeyboardInterrupt"),
        ("die 7", "error", "status 7"),
        ("die 0", "error", "status 0"),
        ("segv", "error", "SIGSEGV"),
        ("eat 4000000000", "error", "MemoryError"),
        ("recurse", "error", "RecursionError"),
    ],
)
def test_a_bad_sample_among_good_ones(naughty, bad, status, said) -> None:
    start = time.monotonic()
    (scores,) = naughty.score(samples(*["good"] * 5, bad, *["good"] * 6))
    took = time.monotonic() - start
    assert [s.value for s in scores] == [1.0] * 5 + [None] + [1.0] * 6
    outcome = scores[5].outcome
    assert outcome.status == status and outcome.stage == "naughty" and outcome.answer is None
    assert said in outcome.message and said in naughty.failures["naughty"].last
    assert (outcome.elapsed_s >= 1.5) == (status == "timed_out")
    assert took < 20  # and not the minute that it hangs


def test_all_of_them_at_once_and_each_is_counted(plugin) -> None:
    bad = ["sleep 60", "raise x", "die 1", "spin 60", "segv", "exit", "eat 4000000000", "interrupt"]
    mixed = [text for one in bad for text in ["good"] * 10 + [one]] * 3
    function = resolve(f"{plugin}:naughty")
    with RewardPool([function], workers=2, timeout_s=1.5, memory_limit_bytes=2**28) as pool:
        (scores,) = pool.score(samples(*mixed))
    assert [s.value for s in scores] == [1.0 if text == "good" else None for text in mixed]
    count = pool.failures["naughty"]
    assert (count.calls, count.timed_out, count.error) == (len(mixed), 6, 18)


def test_memory_below_the_limit_is_given(naughty) -> None:
    assert [s.value for s in naughty.score(samples("eat 50000000", "eat 1000"))[0]] == [1.0, 1.0]


def test_prints_and_forks_do_not_disturb_the_protocol(naughty) -> None:
    texts = ["print {}", "good", "print \x00", "fork", "good", "huge", "good"]
    (scores,) = naughty.score(samples(*texts))
    assert [s.value for s in scores] == [1.0] * len(texts)
    assert len(next(iter(scores[5].components))) == 300_000


def test_a_worker_that_closes_its_connection_is_replaced(naughty) -> None:
    (scores,) = naughty.score(samples(*["good"] * 5, "close", *["good"] * 6))
    assert [s.value for s in scores] == [1.0] * 12


def test_a_worker_that_sends_rubbish_is_replaced(naughty) -> None:
    (scores,) = naughty.score(samples("good", "rubbish", "good"))
    assert [s.value for s in scores] == [1.0, None, 1.0] and scores[1].outcome.status == "error"


@pytest.mark.parametrize(("bad", "said"), [("nan", "nan"), ("text a", "'a'")])
def test_what_is_no_score_is_the_users_mistake(naughty, bad, said) -> None:
    with pytest.raises(UserError, match=f"naughty.*{said}"):
        naughty.score(samples("good", bad, "good"))
    assert naughty.score(samples("good"))[0][0].value == 1.0


def test_an_argument_that_nothing_supplies_is_the_users_mistake() -> None:
    def wants(response, temperature_outside):
        return 0

    with RewardPool([resolve(wants)], workers=1) as pool, pytest.raises(UserError, match="wants.*temperature_outside"):
        pool.score(samples("a"))


def test_a_batch_goes_whole_to_one_worker_with_a_deadline_for_each_sample(plugin) -> None:
    with RewardPool([resolve(f"{plugin}:batch")], workers=2, timeout_s=1.0, max_failed_share=1.0) as pool:
        assert [s.value for s in pool.score(samples(*"abcd", "sleep 2"))[0]] == [5.0] * 5
        slow = pool.score(samples("a", "sleep 60"))[0]
        assert [s.outcome.status for s in slow] == ["timed_out"] * 2 and slow[0].outcome.elapsed_s >= 2
        assert [s.outcome.status for s in pool.score(samples("a", "die", "b"))[0]] == ["error"] * 3
        assert pool.failures["batch"].error == 3 and pool.failures["batch"].calls == 10


def test_the_clock_starts_when_the_worker_takes_the_sample(plugin) -> None:
    with RewardPool([resolve(f"{plugin}:naughty")], workers=1, timeout_s=1.5, cache_size=0) as pool:
        (scores,) = pool.score(samples(*["sleep 0.15"] * 12))  # all queued at once, in all more than the deadline
    assert [s.value for s in scores] == [1.0] * 12


def test_hanging_samples_do_not_hold_up_others(plugin) -> None:
    with RewardPool([resolve(f"{plugin}:naughty")], workers=2, timeout_s=30) as pool:
        pool.score(samples("warm"))
        hanging = pool.submit(samples(*["sleep 60"] * 6))
        start = time.monotonic()
        assert [s.value for s in pool.score(samples(*["good"] * 500))[0]] == [1.0] * 500
        assert time.monotonic() - start < 20 and not hanging.done


def test_slow_samples_that_end_in_time_keep_their_scores(plugin) -> None:
    texts = ["good", "spin 0.02", "sleep 0.3", "good", "spin 0.3"] * 4
    with RewardPool([resolve(f"{plugin}:naughty")], workers=2, timeout_s=10, cache_size=0) as pool:
        for _ in range(3):
            assert [s.value for s in pool.score(samples(*texts))[0]] == [1.0] * len(texts)
    assert pool.failures["naughty"].failed == 0


def test_a_function_that_fails_too_often_is_an_error(plugin) -> None:
    function = resolve(f"{plugin}:naughty")
    with RewardPool([function, resolve("gsm8k_reward_fn")], workers=2, min_failures=5, max_failed_share=0.3) as pool:
        assert pool.score(samples(*["good"] * 10, *["raise no luck"] * 4))[0][10].outcome.status == "error"
        with pytest.raises(UserError, match=r"(?s)'naughty' failed on .*errors.*ValueError: no luck.*max_failed_share"):
            pool.score(samples(*["good"] * 3, *["raise no luck"] * 6))
        with pytest.raises(UserError, match="naughty"):
            pool.score(samples("good"))


def test_outcomes_come_through_whole() -> None:
    def says(response, gold):
        return Outcome("wrong", "\u221a2 \ud800", "a stage", 0.25, "a message")

    with RewardPool([resolve(says)], workers=1) as pool:
        assert pool.score(samples("a"))[0][0].outcome == Outcome(
            "wrong", "\u221a2 \ud800", "a stage", 0.25, "a message"
        )


def test_time_without_a_processor_is_not_held_against_a_call_up_to_as_much_again() -> None:
    """On a busy machine deadlines by the clock alone would make zeros of good answers."""
    limits = Limits(workers=1, timeout_s=1.0, memory_limit_bytes=None, max_failed_share=0.5, min_failures=20)
    assert limits.deadline_s(3) == 3.0
    for on_call_s, waited_s, killed in [
        (0.9, 0, False),
        (1.1, 0, True),
        (1.1, 0.5, False),
        (1.6, 0.5, True),
        (1.9, 9, False),
        (2.1, 9, True),
    ]:
        assert limits.is_overdue(1, on_call_s, waited_s) == killed


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux says how long a process waited")
def test_what_a_process_does_with_its_time() -> None:
    sleeps = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    spins = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    time.sleep(0.8)
    try:
        slept, spun = cpu_times(sleeps.pid), cpu_times(spins.pid)
        assert slept is not None and spun is not None and sum(spun) > sum(slept) + 0.3
    finally:
        for process in (sleeps, spins):
            process.kill()
            process.wait()
    assert cpu_times(spins.pid) is None


@pytest.fixture
def slow_worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    """A worker whose call has just become slow; each look at its use of the processor says 1 s more of waiting for one."""
    looks = count(1)
    monkeypatch.setattr(workers, "cpu_times", lambda process: (0.0, float(next(looks))))
    ours, theirs = socket.socketpair()
    theirs.close()
    memory = Progress.create()
    worker = Worker(1, ours, Progress(memory), 0.0)
    os.close(memory)
    worker.stop_after_call()
    yield worker
    worker.close()


def test_a_call_that_goes_on_is_looked_at_ever_more_rarely(slow_worker) -> None:
    """Fifty calls that hang would else take a part of a processor to watch."""
    for tenth in range(1, 101):
        slow_worker.measure_cpu(tenth / 10)
    assert 5 < slow_worker.waited_s < 12


def test_a_call_is_looked_at_once_more_before_it_is_killed(slow_worker) -> None:
    slow_worker.measure_cpu(1.0)
    slow_worker.measure_cpu(2.0)
    waited_s = slow_worker.waited_s
    slow_worker.measure_cpu(2.01)
    assert slow_worker.waited_s == waited_s
    slow_worker.measure_cpu(2.01, at_once=True)
    assert slow_worker.waited_s == waited_s + 1


KILLED_ONCE = '''
import os, signal

def suicidal(response):
    """Kills its worker (or the process that forked it): the first time for "once", else always."""
    mark = response.split()[-1]
    if not response.startswith("ok") and not (response.startswith("once") and os.path.exists(mark)):
        open(mark, "w").close()
        os.kill(os.getppid() if "fork_server" in response else os.getpid(), signal.SIGKILL)
        signal.pause()
    return float(len(response))
'''


@pytest.mark.parametrize("whom", ["worker", "fork_server"])
def test_a_call_whose_worker_is_killed_from_outside_is_done_again_once(whom, tmp_path) -> None:
    """Else a kill by whoever needs memory would change what is learned."""
    (tmp_path / "plugin.py").write_text(KILLED_ONCE)
    once, always = (f"{word} {whom} {tmp_path / word}" for word in ("once", "always"))
    responses = ["ok", once, "ok 2"] + ([always] if whom == "worker" else [])
    function = resolve(f"{tmp_path / 'plugin.py'}:suicidal")
    with RewardPool([function], workers=1, timeout_s=20) as pool:
        scores = pool.score(samples(*responses))[0]
        failed = pool.failures["suicidal"].failed
    assert [s.value for s in scores[:3]] == [2.0, float(len(once)), 4.0]
    assert failed == len(responses) - 3
    if whom == "worker":
        assert scores[3].outcome.status == "error" and "SIGKILL" in scores[3].outcome.message
