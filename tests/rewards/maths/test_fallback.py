"""The process that asks math-verify: killed when it hangs, started anew, safe from threads, and no way to run code."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from rewards import grade
from rewards.maths import equivalent, fallback, fallback_process

ROOT = Path(__file__).parents[3]
SUM = r"\sum_{k=1}^{n} k"


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> fallback._Process:
    """The process, started, with nothing remembered."""
    monkeypatch.setattr(fallback, "_verdicts", type(fallback._verdicts)())
    fallback.warm()
    assert fallback._running is not None
    return fallback._running


@pytest.mark.parametrize(
    ("gold", "asked"),
    [
        (SUM, True),
        (r"\int_0^1 x^2 dx", True),
        ("5", False),
        (r"\text{the midline}", False),
        (r"\begin{cases} 1 \end{cases}", False),
        ("a sentence", False),
        (r"\sum " + "x" * 300, False),
        (r"\sum ∑", False),
    ],
)
def test_only_short_latex_is_asked_about(gold, asked) -> None:
    assert fallback.applies(gold) is asked


def test_it_judges_what_we_cannot_read(running) -> None:
    assert equivalent(r"\sum_{k=1}^n k", SUM) == (True, "fallback")
    assert equivalent(r"\sum_{k=1}^n k^2", SUM) == (False, "fallback")


def test_a_process_that_died_is_replaced(running) -> None:
    running.process.kill()
    running.process.wait()
    fallback.verify("1", SUM)
    assert fallback._running is not running
    assert fallback.verify(SUM, SUM) is True


def test_what_takes_too_long_is_wrong_and_costs_the_next_question_nothing(running) -> None:
    """No answer ends the process, nor takes the gold away."""
    for answer in (r"9^{9^{9^{9}}}", r"\sum_{k=1}^{n} k^{k^k}", r"\prod_{k=1}^{10^9} k"):
        assert fallback.verify(answer, SUM) is False
        assert equivalent(answer, SUM) == (False, "fallback")
    assert fallback.verify(SUM, SUM) is True
    assert fallback._running is running and running.process.poll() is None


def test_an_answer_that_is_too_long_is_wrong(running) -> None:
    for text in ("1" * 301, "x" * 301):
        assert grade(f"\\boxed{{{text}}}", SUM).status == "wrong"


def test_a_gold_that_takes_too_long_is_asked_about_once(monkeypatch) -> None:
    asked: list[tuple[str, str]] = []
    monkeypatch.setattr(fallback, "_verdicts", type(fallback._verdicts)())
    monkeypatch.setattr(fallback, "_ask", lambda *pair: asked.append(pair) or {"same": None})
    assert [fallback.verify(answer, SUM) for answer in ("1", "2", SUM)] == [False] * 3
    assert asked == [(SUM, SUM)]


def test_without_a_process_the_sample_is_neither_right_nor_wrong(monkeypatch) -> None:
    monkeypatch.setattr(fallback, "_verdicts", type(fallback._verdicts)())
    monkeypatch.setattr(fallback, "_ask", lambda *_: None)
    assert grade(r"\boxed{5}", SUM).status == "timed_out"
    assert fallback._verdicts == {}


def test_what_lies_in_the_current_folder_is_not_run(tmp_path, clean_env) -> None:
    """Neither a file of the package's name nor one of a library's."""
    (tmp_path / "rewards").mkdir()
    for name in ("rewards.py", "rewards/__init__.py", "math_verify.py", "json.py", "sympy.py"):
        (tmp_path / name).write_text(f"open({str(tmp_path / 'RAN')!r}, 'a').write({name!r})\n")
    code = (
        "from rewards.maths import fallback\n"
        rf"print(fallback.verify(r'\sum_{{k=1}}^n k', r'{SUM}'), fallback.verify('k', r'{SUM}'))"
    )
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(
        command, cwd=tmp_path, env=clean_env | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=800
    )
    assert done.stdout.split() == ["True", "False"], done.stderr
    assert not (tmp_path / "RAN").exists()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs POSIX timers")
def test_computing_time_ends_a_question() -> None:
    """The kernel does it: no Python code of the process has to run."""
    code = "from rewards.maths.fallback_process import _end_after; _end_after(0.2)\nwhile True: pass"
    start = time.monotonic()
    process = subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=60, check=False)
    assert process.returncode < 0 and time.monotonic() - start < 30


def test_memory_is_limited() -> None:
    code = "from rewards.maths.fallback_process import _limit_memory; _limit_memory(); bytearray(3 << 30)"
    process = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, timeout=60, check=False, capture_output=True, text=True
    )
    assert "MemoryError" in process.stderr and fallback_process.MEMORY_BYTES < 3 << 30


def test_threads_may_ask_at_once(running) -> None:
    verdicts: list[object] = []

    def ask(number: int) -> None:
        verdicts.append((number, fallback.verify(rf"\sum_{{k=1}}^{{{number}}} k", SUM)))
        verdicts.append((number, fallback.verify(SUM, SUM)))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(verdicts, key=repr) == sorted([(n, v) for n in range(6) for v in (True, False)], key=repr)


def test_no_text_is_run(running, tmp_path) -> None:
    mark = tmp_path / "ran"
    for text in (f"__import__('pathlib').Path('{mark}').touch()", f"\\text{{__import__('os').system('touch {mark}')}}"):
        fallback.verify(text, SUM)
        fallback.verify(SUM, text)
    assert not mark.exists()


def test_plain_expressions_are_refused_in_the_process() -> None:
    code = (
        "from rewards.maths.fallback_process import _checker\n_checker()\nimport math_verify.parser\n"
        "try:\n    math_verify.parser.parse_expr('1+1')\nexcept ValueError as error:\n    print(error)"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, timeout=800, check=True, capture_output=True, text=True
    )
    assert "not read" in process.stdout


def test_a_verdict_is_remembered(running, monkeypatch) -> None:
    assert fallback.verify(SUM, SUM) is True
    monkeypatch.setattr(fallback, "_ask", lambda *_: pytest.fail("asked again"))
    assert fallback.verify(SUM, SUM) is True
