"""Functions are sent to the workers by reference or by value; errors say why one can't be."""

import os
import sys
import threading
import time

import psutil
import pytest

from rewards import UserError, load_plugins, resolve
from rewards.pool import RewardPool
from rewards.pool.pickling import pack

from .conftest import samples
from .test_lifetime import run_script


def module_function(response: str, weight: float = 2.0) -> float:
    return weight * len(response)


class Holder:
    @staticmethod
    def nested(response: str) -> float:
        return 7.0


def values(function, *responses, options=None, **settings):
    with RewardPool([resolve(function, options=options)], workers=1, **settings) as pool:
        return [s.value for s in pool.score(samples(*responses))[0]]


def test_a_function_of_a_module_with_options() -> None:
    assert values(module_function, "ab", options={"module_function": {"weight": 5.0}}) == [10.0]
    assert values(Holder.nested, "ab") == [7.0]


def test_by_registered_name_module_and_file(plugin, tmp_path, monkeypatch) -> None:
    assert values("format_reward_fn", "<think>a</think><answer>b</answer>") == [1.0]
    assert values("rewards.functions.format:format_reward_fn", "b") == [0.0]
    assert values(f"{plugin}:length", "abcde") == [0.5]
    (tmp_path / "module_of_rewards.py").write_text("def f(response):\n    return 3.0\n")
    monkeypatch.syspath_prepend(tmp_path)  # the workers have the path of this process
    assert values("module_of_rewards:f", "a") == [3.0]
    monkeypatch.chdir(tmp_path)
    assert values("module_of_rewards.py:f", "a") == [3.0]


def test_decorated_in_a_plugin(plugin) -> None:
    load_plugins([plugin])
    assert values("pool_length", "abcde", plugins=[plugin]) == [0.5]
    assert values("pool_length", "abcde") == [0.5]


def test_by_an_entry_point(tmp_path, monkeypatch) -> None:
    (tmp_path / "pointed_pool.py").write_text("def pointed(response):\n    return 0.5\n")
    info = tmp_path / "pointed_pool-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pointed_pool\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[rlvr.rewards]\npointed_pool_fn = pointed_pool:pointed\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert values("pointed_pool_fn", "a") == [0.5]


def test_made_when_it_is_registered(tmp_path) -> None:
    """Not where its name says, so that only the plugin's own registration finds it."""
    path = tmp_path / "made.py"
    path.write_text(
        "from rewards import reward_fn\n"
        "def make(n):\n    def made(response):\n        return n\n    return made\n"
        'reward_fn("pool_made_4")(make(4.0))\n'
    )
    load_plugins([str(path)])
    function = resolve("pool_made_4")
    assert pack(function, [str(path)]).how == "spec"
    assert values("pool_made_4", "a", plugins=[str(path)]) == values("pool_made_4", "a") == [4.0]


def test_lambdas_and_closures() -> None:
    bonus = {"a": 2.0}
    assert values(lambda response: bonus["a"] + len(response), "abc") == [5.0]

    def closure(response, gold):
        return module_function(response) + bonus["a"]

    assert values(closure, "abc") == [8.0]


def test_an_unpicklable_closure_is_the_users_mistake() -> None:
    lock = threading.Lock()

    def holds_a_lock(response):
        with lock:
            return 1.0

    with pytest.raises(UserError, match="'holds_a_lock' can't be sent to a worker.*lock.*file of its own"):
        RewardPool([resolve(holds_a_lock)])


def test_a_class_of_the_script_in_a_column_is_the_users_mistake() -> None:
    with RewardPool([resolve(module_function)], workers=1) as pool:
        with pytest.raises(UserError, match="columns must be plain values"):
            pool.score(samples("a", lock=threading.Lock()) if False else samples("a", columns={"x": threading.Lock()}))
        assert pool.score(samples("a", columns={"x": 1}))[0][0].value == 2.0


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise OSError('no such disk')", "no such disk"),
        ("import no_such_module_at_all", "no_such_module_at_all"),
        ("import sys; sys.exit('I give up')", "I give up"),
        ("import os; os.write(2, b'last words'); os._exit(5)", "status 5.*last words"),
        ("import os; os.kill(os.getpid(), 11)", "SIGSEGV"),
        ("x = 1", "registers no reward function"),
    ],
)
def test_a_plugin_that_can_not_be_loaded(tmp_path, code, said) -> None:
    path = tmp_path / "broken_plugin.py"
    path.write_text(code + "\n")
    start = time.monotonic()
    with RewardPool([resolve("gsm8k_reward_fn")], plugins=[str(path)]) as pool:
        for _ in range(2):
            with pytest.raises(UserError, match=f"(?s)reward workers can't start.*{said}"):
                pool.score(samples("a"))
    assert time.monotonic() - start < 30


def test_a_python_that_can_not_be_run(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path))
    with RewardPool([resolve("gsm8k_reward_fn")]) as pool, pytest.raises(UserError, match="can't be run"):
        pool.score(samples("a"))


def test_a_plugin_that_runs_threads_is_not_forked(tmp_path) -> None:
    path = tmp_path / "threads_plugin.py"
    path.write_text(
        "import os, threading, time\n"
        "threading.Thread(target=time.sleep, args=(1e6,), daemon=True).start()\n"
        "def parent(response):\n"
        "    if response == 'die':\n        os._exit(4)\n"
        "    if response == 'sleep':\n        time.sleep(60)\n"
        "    return float(os.getppid())\n"
    )
    with RewardPool([resolve(f"{path}:parent")], workers=2, timeout_s=2.0) as pool:
        (scores,) = pool.score(samples("a", "die", "sleep", "b"))
        assert [s.value for s in scores] == [os.getpid(), None, None, os.getpid()]
        assert "status 4" in scores[1].outcome.message and scores[2].outcome.status == "timed_out"
    assert [p for p in psutil.Process().children() if p.status() == psutil.STATUS_ZOMBIE] == []


def test_a_function_in_an_unguarded_main(tmp_path) -> None:
    code = """
    print("once")
    from rewards import Sample, resolve, reward_fn
    from rewards.pool import RewardPool
    FACTOR = 3
    def helper(n):
        return n * FACTOR
    @reward_fn
    def of_main(response):
        return helper(len(response))
    with RewardPool([resolve("of_main")], workers=2) as pool:
        print([s.value for s in pool.score([Sample("ab", None)])[0]])
    """
    done = run_script(tmp_path / "unguarded.py", code)
    assert (done.stdout, done.stderr) == ("once\n[6.0]\n", "")
