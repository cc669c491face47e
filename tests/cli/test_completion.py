"""`rlvr completion`: a script for each shell; bash's is run."""

import shutil
import subprocess

import pytest

from rlvr.cli.commands import COMMANDS
from rlvr.cli.main import main
from rlvr.config import Config
from rlvr.config.catalog import catalog


def script(shell: str, capsys, *words: str) -> str:
    assert main([*(words or ("completion",)), shell]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "tcsh"])
def test_every_command_and_flag_is_in_the_script(shell: str, capsys) -> None:
    text = script(shell, capsys)
    assert text == script(shell, capsys, "--print_completion") == script(shell, capsys, "--print-completion")
    for name in COMMANDS:
        assert name in text
    for section in catalog(Config):
        for flag in section.flags:
            assert flag.name in text
    assert "--dry_run" in text or "dry_run" in text
    # A shell that is here reads it without complaint.
    if shutil.which(shell):
        check = ["-n"] if shell != "tcsh" else ["-f"]
        done = subprocess.run([shell, *check], input=text, capture_output=True, text=True)
        assert done.returncode == 0 and not done.stderr, done.stderr


def complete(text: str, *words: str) -> list[str]:
    """What bash offers for the last of these words."""
    line = " ".join(f"'{word}'" for word in words)
    code = f"{text}\nCOMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _rlvr; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    assert not done.stderr
    return done.stdout.split()


def test_bash_completes_commands_flags_and_values(capsys, tmp_path, monkeypatch) -> None:
    text = script("bash", capsys)
    assert complete(text, "rlvr", "tr") == ["train"]
    assert set(complete(text, "rlvr", "")) >= set(COMMANDS)
    assert complete(text, "rlvr", "train", "--kl_coe") == ["--kl_coef"]
    assert complete(text, "rlvr", "train", "--kl-coe") == ["--kl_coef"]
    assert complete(text, "rlvr", "train", "--no_dyn") == ["--no_dynamic_sampling"]
    assert complete(text, "rlvr", "train", "--kl_in", "") == ["reward", "loss"]
    assert complete(text, "rlvr", "train", "--kl-estimator", "k2") == ["k2"]
    assert complete(text, "rlvr", "eval", "--engine", "v") == ["vllm"]
    assert complete(text, "rlvr", "completion", "--h") == ["--help"]
    (tmp_path / "answers.jsonl").touch()
    monkeypatch.chdir(tmp_path)
    assert complete(text, "rlvr", "score", "ans") == ["answers.jsonl"]


def test_another_shell(capsys) -> None:
    assert main(["completion", "powershell"]) == 2
    told = capsys.readouterr().err
    assert "powershell" in told and "fish" in told and told.count("\n") == 1
