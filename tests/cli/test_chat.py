"""`rlvr chat`: through a pipe, on a terminal, and its mistakes."""

import io
import json
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest
from saved_models import save_micro_model
from transformers import AutoModelForCausalLM

from rlvr.cli.main import main
from rlvr.prompting.template import template_dir

SHORT = ["--max_new_tokens", "24", "--mixed_precision", "fp32", "--num_threads", "1"]


def chat(monkeypatch, text: str, *words: str) -> int:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    return main(["chat", *words])


def test_a_pipe_is_answered_line_by_line_with_verdicts(tiny_cache, monkeypatch, capsys) -> None:
    said = "2+3=?\n\n/gold 9\n4+5=?\n/quit\nnever asked\n"
    words = ["tiny", *SHORT, "--gold", "5", "--reward_functions", "gsm8k_reward_fn"]
    assert chat(monkeypatch, said, *words) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert len(lines) == 8 and all(lines[i].startswith("<think>") for i in (0, 5)) and lines[0].endswith("</answer>")
    assert lines[1].startswith("grader: ") and "gold 5" in lines[1] and lines[2].startswith("gsm8k_reward_fn: ")
    assert "gold 9" in lines[3] and "gold 9" in lines[6]  # the new gold, of the old answer and of the next
    assert "\x1b" not in out and "answers are compared with 9" in err


def test_answers_are_those_of_the_evaluation(tiny_cache, monkeypatch, capsys, tmp_path) -> None:
    """Greedy, one question a line: the same responses as `rlvr eval` gives."""
    from rlvr.boost import process as processes

    processes.start(0, 1)
    data = tmp_path / "d.jsonl"
    questions = ["12+30=?", "7*8=?", "Ann has 3 pens, buys 4. How many now?"]
    data.write_text("".join(json.dumps({"question": q, "answer": "1"}) + "\n" for q in questions))
    flags = ["--max_new_tokens", "24", "--mixed_precision", "fp32"]
    assert (
        main(
            ["eval", "tiny", "--dataset", str(data), *flags, "--max_length", "160", "--save_path", str(tmp_path / "e")]
        )
        == 0
    )
    lines = [json.loads(line) for line in (tmp_path / "e" / "responses.jsonl").read_text().splitlines()]
    want = {line["question"]: line["response"] for line in lines}
    capsys.readouterr()
    assert (
        chat(monkeypatch, "\n".join(questions), "tiny", *flags) == 0
    )  # each by itself, which is the built-in model's default
    assert capsys.readouterr().out.splitlines() == [want[q] for q in questions]
    assert chat(monkeypatch, "\n".join(questions), "tiny", *flags, "--no-single-turn") == 0
    together = capsys.readouterr().out.splitlines()
    assert together[0] == want[questions[0]] and together != [want[q] for q in questions]


def test_a_command_that_is_none_ends_a_pipe(micro_model, monkeypatch, capsys) -> None:
    assert chat(monkeypatch, "1\n/golf\n2\n", micro_model, *SHORT, "--max_new_tokens", "2") == 2
    out, err = capsys.readouterr()
    assert err.count("error: ") == 1 and "Did you mean 'gold'?" in err and "cut at 2 tokens" in err
    assert out.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "MODEL"),
        (["./no-such-model"], "no-such-model"),
        (["MICRO", "--temperature", "-1"], "--temperature -1.0: must be at least 0"),
        (["MICRO", "--temperature", "nan"], "--temperature nan"),
        (["MICRO", "--top_p", "0"], "--top_p"),
        (["MICRO", "--top_k", "5"], "greedy answers, which this model gives"),
        (["MICRO", "--temperature", "0", "--top_k", "5"], "--temperature 0, which is greedy"),
        (["MICRO", "--max_new_tokens", "0"], "--max_new_tokens 0"),
        (["MICRO", "--seed", "-1"], "--seed -1"),
        (["MICRO", "--reward_options", "{}"], "--reward_functions"),
        (["MICRO", "--reward_functions", "gsm8k_rewad_fn"], "Did you mean"),
        (["MICRO", "--conversation_template_config", "qwen3"], "conversation template"),
        (["MICRO", "--engine", "replay"], "invalid choice"),
        (["MICRO", "--golf", "3"], "Did you mean '--gold'?"),
    ],
)
def test_mistakes(words, said, micro_model, monkeypatch, capsys) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert chat(monkeypatch, "1\n", *(micro_model if word == "MICRO" else word for word in words)) == 2
    told = capsys.readouterr().err
    assert said in told and "Traceback" not in told and told.count("error:") == 1


def read_until(terminal: int, wanted: bytes, seen: bytes = b"", more: int = 0, press: bytes = b"") -> bytes:
    """What the terminal shows up to and with `wanted`, and at least so many bytes more; `press` each second until then."""
    end = time.monotonic() + 120
    while wanted not in seen or len(seen) < seen.index(wanted) + len(wanted) + more:
        assert time.monotonic() < end, seen.decode(errors="replace")
        if select.select([terminal], [], [], 1)[0]:
            seen += os.read(terminal, 4096)
        else:
            os.write(terminal, press)
    return seen


def endless(folder: Path) -> list[str]:
    """A model and a template with which no answer ends by itself, as `rlvr chat` takes them."""
    save_micro_model(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    model.config.max_position_embeddings = 100_000
    model.save_pretrained(folder)
    template = json.loads((template_dir() / "tiny.json").read_text())
    path = folder / "endless.json"
    path.write_text(json.dumps(template | {"stop_ids": [], "stop_strings": ["no such text"], "end_of_assistant": "."}))
    return [str(folder), "--conversation_template_config", str(path)]


def test_on_a_terminal_ctrl_c_stops_an_answer_and_ctrl_d_the_chat(tmp_path: Path, clean_env) -> None:
    terminal, theirs = pty.openpty()
    words = [
        *endless(tmp_path / "model"),
        "--max_new_tokens",
        "90000",
        "--mixed_precision",
        "fp32",
        "--num_threads",
        "1",
    ]
    command = [sys.executable, "-m", "rlvr", "chat", *words]
    run = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=clean_env | {"TERM": "xterm"}, start_new_session=True,
        preexec_fn=lambda: __import__("fcntl").ioctl(0, __import__("termios").TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(theirs)
    try:
        start = read_until(terminal, b"> ")
        assert b"/help" in start and b"greedy" in start
        os.write(terminal, b"/temperature 1\n2+3=?\n")
        read_until(terminal, b"=?\r\n", more=400)  # some of the answer
        os.write(terminal, b"\x03")
        seen = read_until(terminal, b"tokens)")
        assert b"(stopped after " in seen
        read_until(terminal, b"> ", seen.rpartition(b"tokens)")[2])
        os.write(terminal, b"/max_new_tokens 2\n4\n")
        seen = read_until(terminal, b"(cut at 2 tokens")
        read_until(terminal, b"> ", seen.partition(b"(cut at")[2])
        # At the prompt. Python's readline does not notice a signal that comes between its prompt and its waiting.
        seen = read_until(terminal, b"Ctrl-D ends", press=b"\x03")
        read_until(terminal, b"> ", seen.partition(b"Ctrl-D")[2])
        os.write(terminal, b"\x04")
        assert run.wait(timeout=60) == 0
    finally:
        run.kill()
        run.wait()
        os.close(terminal)
