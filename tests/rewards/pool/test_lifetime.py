"""A pool works in threads, forks and daemons, ends however it is ended, and leaves no process behind."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
from leftovers import is_alive

from rewards import UserError, resolve
from rewards.pool import RewardPool

from .conftest import REPOSITORY, children, samples

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}


def run_script(path, code: str, *flags: str, **more) -> subprocess.CompletedProcess[str]:
    path.write_text(textwrap.dedent(code))
    return subprocess.run(
        [sys.executable, *flags, str(path)], env=ENVIRONMENT, capture_output=True, text=True, timeout=800, **more
    )


def wait_until_gone(processes: list[psutil.Process], within_s: float) -> list[psutil.Process]:
    """Those that are still there; a zombie, which has only to be collected by whoever inherited it, is not."""
    end = time.monotonic() + within_s
    while time.monotonic() < end and any(map(is_alive, processes)):
        time.sleep(0.02)
    return [p for p in processes if is_alive(p)]


def wait_for_child(before: set[psutil.Process]) -> psutil.Process:
    """The one that this process has started since then."""
    end = time.monotonic() + 60
    while not (new := [p for p in psutil.Process().children() if p not in before]) and time.monotonic() < end:
        time.sleep(0.02)
    time.sleep(0.5)  # for it to begin its work
    (child,) = new
    return child


def test_from_several_threads_at_once(naughty) -> None:
    def use(number: int) -> list[float | None]:
        return [s.value for s in naughty.score(samples("good", f"die {number}", "good", f"raise {number}"))[0]]

    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(use, range(12))) == [[1.0, None, 1.0, None]] * 12


def test_from_asyncio(naughty) -> None:
    async def use() -> list[list]:
        loop = asyncio.get_running_loop()
        return await asyncio.gather(
            *[loop.run_in_executor(None, naughty.score, samples("good", "sleep 9")) for _ in range(4)]
        )

    for ((one, other),) in asyncio.run(use()):
        assert one.value == 1.0 and other.outcome.status == "timed_out"


DAEMON = """
import multiprocessing, sys
from rewards import Sample, resolve
from rewards.pool import RewardPool

def work(queue):
    with RewardPool([resolve(sys.argv[1] if len(sys.argv) > 1 else "PLUGIN:naughty")], workers=1, timeout_s=2.0) as pool:
        queue.put([s.value for s in pool.score([Sample("good", None), Sample("sleep 9", None), Sample("good 2", None)])[0]])

if __name__ == "__main__":
    for method in ("spawn", "fork"):
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        process = context.Process(target=work, args=(queue,), daemon=True)
        process.start()
        print(queue.get())
        process.join()
"""


def test_from_a_daemonic_process(plugin, tmp_path) -> None:
    done = run_script(tmp_path / "daemon.py", DAEMON.replace("PLUGIN", plugin))
    assert done.stdout == "[1.0, None, 1.0]\n" * 2 and done.stderr == ""


def test_an_unguarded_script_runs_once_and_says_nothing_at_the_end(tmp_path) -> None:
    code = """
    print("once")
    from rewards import Sample, resolve
    from rewards.pool import RewardPool
    seen = 3
    def mine(response):
        return seen + len(response)
    pool = RewardPool([resolve(mine), resolve(lambda response: seen)], workers=2)
    print([[s.value for s in column] for column in pool.score([Sample("ab", None), Sample("", None)])])
    """
    done = run_script(tmp_path / "script.py", code, "-X", "dev", "-W", "always::ResourceWarning")
    assert (done.stdout, done.stderr, done.returncode) == ("once\n[[5.0, 3.0], [3.0, 3.0]]\n", "", 0)


def test_a_pool_that_is_not_closed_ends_with_the_interpreter_though_work_hangs(plugin, tmp_path) -> None:
    code = f"""
    from rewards import Sample, resolve
    from rewards.pool import RewardPool
    pool = RewardPool([resolve("{plugin}:naughty")], workers=2)
    pending = pool.submit([Sample("spin 60", None)] * 4)
    import time; time.sleep(1)
    """
    start = time.monotonic()
    done = run_script(tmp_path / "script.py", code, "-X", "dev")
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0) and time.monotonic() - start < 40


ENDLESS = """
import sys
from rewards import Sample, resolve
from rewards.pool import RewardPool
pool = RewardPool([resolve(sys.argv[1])], workers=2, timeout_s=100)
pool.score([Sample("good", None)])
pending = pool.submit([Sample("spin 60", None), Sample("regex", None), Sample("sleep 60", None)])
import time
time.sleep(0.5)
print("ready", flush=True)
pending.result()
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_workers_die_with_their_parent(how, plugin, tmp_path) -> None:
    script = tmp_path / "endless.py"
    script.write_text(ENDLESS)
    with subprocess.Popen(
        [sys.executable, str(script), f"{plugin}:naughty"],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout.readline() == "ready\n"
        end = time.monotonic() + 30
        while len(alive := children(parent.pid)) < 4:  # the fork server, and a worker on each
            assert time.monotonic() < end, alive
            time.sleep(0.05)
        parent.send_signal(how)
        assert wait_until_gone(alive, 10.0) == []
        parent.communicate()
    assert parent.returncode in (-how, 1, 130)


def test_workers_die_with_a_plugin_that_hangs_while_it_is_loaded(tmp_path) -> None:
    (tmp_path / "hangs.py").write_text("import time\nwhile True: pass\n")
    code = f"""
    from rewards import resolve
    from rewards.pool import RewardPool
    pool = RewardPool([resolve("gsm8k_reward_fn")], plugins=["{tmp_path / "hangs.py"}"])
    import time; time.sleep(0.7)
    print("closing", flush=True)
    pool.close()
    """
    assert run_script(tmp_path / "script.py", code).stdout == "closing\n"


def test_close_leaves_nothing_and_raises_where_scores_are_awaited(plugin) -> None:
    before = set(children(os.getpid()))
    pool = RewardPool([resolve(f"{plugin}:naughty")], workers=2)
    pool.score(samples("good"))
    mine = [p for p in children(os.getpid()) if p not in before]
    assert mine
    said: list[str] = []

    def wait() -> None:
        try:
            pool.score(samples("sleep 60"))
        except RuntimeError as error:
            said.append(str(error))

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.4)
    start = time.monotonic()
    pool.close()
    thread.join()
    assert time.monotonic() - start < 20 and "closed" in said[0]
    assert wait_until_gone(mine, 5.0) == [] and not [p for p in mine if p.is_running()]  # no zombie either
    pool.close()
    with pytest.raises(RuntimeError, match="closed"):
        pool.score(samples("good"))


def test_a_pool_works_on_in_a_fork_of_its_process(plugin, tmp_path) -> None:
    code = f"""
    import os, warnings
    from rewards import Sample, resolve
    from rewards.pool import RewardPool
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)  # said of every fork, since 3.12
    pool = RewardPool([resolve("{plugin}:naughty")], workers=1)
    pool.score([Sample("good", None)])
    child = os.fork()
    print([s.value for s in pool.score([Sample("good 1", None), Sample("die 1", None)])[0]], flush=True)
    if child:
        assert os.waitpid(child, 0)[1] == 0
        print(pool.score([Sample("good 2", None)])[0][0].value)
    """
    done = run_script(tmp_path / "script.py", code)
    assert done.stdout == "[1.0, None]\n[1.0, None]\n1.0\n" and done.stderr == ""


def test_the_fork_server_is_replaced_when_it_is_killed(plugin) -> None:
    before = set(children(os.getpid()))
    with RewardPool([resolve(f"{plugin}:naughty")], workers=2, timeout_s=20, cache_size=0) as pool:
        pool.score(samples("good"))
        pending = pool.submit(samples(*["sleep 0.2"] * 6))
        fork_server = wait_for_child(before)
        fork_server.kill()
        assert [s.value for s in pending.result(120)[0]].count(None) <= 2 * 6
        assert pool.score(samples("good"))[0][0].value == 1.0


def test_many_submissions(plugin) -> None:
    with RewardPool([resolve(f"{plugin}:length")], workers=2, cache_size=0) as pool:
        waiting = [pool.submit(samples(*["ab", "a" * i] * 50)) for i in range(200)]
        for i, pending in enumerate(waiting):
            assert [s.value for s in pending.result(60)[0]] == [0.2, i / 10] * 50


def test_submitting_waits_while_too_much_is_queued(plugin, monkeypatch) -> None:
    monkeypatch.setattr("rewards.pool.submissions.MAX_QUEUED", 3)
    with RewardPool([resolve(f"{plugin}:naughty")], workers=1, timeout_s=1.0) as pool:
        first = pool.submit(samples(*["sleep 9"] * 5))
        assert not first.done
        start = time.monotonic()
        second = pool.submit(samples("good"))
        assert 0.3 < time.monotonic() - start < 30
        assert second.result()[0][0].value == 1.0 and first.result()[0][0].value is None


def test_nothing_to_score(naughty) -> None:
    assert naughty.score([]) == [[]]
    with RewardPool([]) as pool:
        assert pool.score(samples("a")) == []


@pytest.mark.parametrize(
    ("setting", "value"), [("workers", 0), ("timeout_s", 0), ("max_failed_share", 2), ("memory_limit_bytes", 5)]
)
def test_settings_out_of_range_are_named(setting, value) -> None:
    with pytest.raises(UserError, match=f"{setting} is {value}"):
        RewardPool([], **{setting: value})
    with pytest.raises(UserError, match="named twice"):
        RewardPool([resolve("gsm8k_reward_fn")] * 2)


def test_a_fork_server_killed_while_it_loads_plugins_is_replaced(tmp_path) -> None:
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(1)\n\ndef one(response):\n    return 1.0\n")
    before = set(children(os.getpid()))
    with RewardPool([resolve(f"{tmp_path / 'slow.py'}:one")], workers=1, timeout_s=20) as pool:
        pending = pool.submit(samples("x"))
        fork_server = wait_for_child(before)
        fork_server.kill()
        assert [s.value for s in pending.result(120)[0]] == [1.0]
