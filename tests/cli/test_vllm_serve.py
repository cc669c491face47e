"""`rlvr vllm-serve`: the model that a server is given, and the command that starts it. vLLM itself is a stand-in that says how it was called."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoTokenizer

from rlvr.cli.main import main
from rlvr.cli.vllm_serve import _run, write_served_model
from rlvr.models.loading import load_causal_lm, load_tokenizer

STAND_IN = """
import json, os, sys, time
from pathlib import Path
held = {path.name for path in Path(sys.argv[2]).iterdir()}
said = {"words": sys.argv[1:], "dev": os.environ["VLLM_SERVER_DEV_MODE"], "files": sorted(held)}
Path(os.environ["SAYS"]).write_text(json.dumps(said))
if "--stay" in sys.argv:
    time.sleep(60)
sys.exit(3 if "--fail" in sys.argv else 0)
"""


@pytest.fixture
def stand_in(tmp_path: Path, clean_env: dict[str, str]) -> dict[str, str]:
    """The environment of a process that finds the stand-in."""
    folder = tmp_path / "packages" / "vllm" / "entrypoints" / "openai"
    folder.mkdir(parents=True)
    (folder / "api_server.py").write_text(STAND_IN)
    for parent in (folder, folder.parent, folder.parent.parent):
        (parent / "__init__.py").touch()
    path = f"{tmp_path / 'packages'}{os.pathsep}{clean_env['PYTHONPATH']}"
    return clean_env | {"PYTHONPATH": path, "SAYS": str(tmp_path / "said.json")}


COMMAND = [sys.executable, "-m", "rlvr", "vllm-serve"]


def test_vllm_is_started_with_what_training_needs(stand_in, tmp_path, tiny_cache) -> None:
    done = subprocess.run([*COMMAND, "tiny", "--port", "8123", "--dtype", "float32"], env=stand_in, timeout=800)
    said = json.loads((tmp_path / "said.json").read_text())
    option, folder, *flags = said["words"]
    assert done.returncode == 0 and option == "--model" and said["dev"] == "1"
    assert flags == "--enable-scale-out --logprobs-mode processed_logprobs --host 127.0.0.1 --port 8123 --dtype float32".split()  # fmt: skip
    assert {"config.json", "tokenizer.json", "model-00000.safetensors"} <= set(said["files"])
    assert not Path(folder).exists()


def test_its_failure_is_ours(stand_in, tmp_path, tiny_cache) -> None:
    assert subprocess.run([*COMMAND, "tiny", "--fail"], env=stand_in, timeout=800).returncode == 3


def test_kill_ends_the_server(stand_in, tmp_path, tiny_cache) -> None:
    running = subprocess.Popen([*COMMAND, "tiny", "--stay", "--host", "0.0.0.0"], env=stand_in)
    said = tmp_path / "said.json"
    until = time.monotonic() + 100
    while not (said.exists() and said.read_text()) and time.monotonic() < until:
        time.sleep(0.1)
    flags = json.loads(said.read_text())["words"]
    running.send_signal(signal.SIGTERM)
    assert running.wait(30) == 0
    assert flags.count("--host") == 1 and not Path(flags[1]).exists()


def test_kill_while_the_server_starts_ends_it_too(monkeypatch) -> None:
    class Interrupted(subprocess.Popen):
        """The signal comes before whoever starts the server has it."""

        def __init__(self, *args, **named) -> None:
            super().__init__(*args, **named)
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    before, began = signal.signal(signal.SIGTERM, lambda *_: None), time.monotonic()
    try:
        _run([sys.executable, "-c", "import time; time.sleep(60)"])
    finally:
        signal.signal(signal.SIGTERM, before)
    assert time.monotonic() - began < 50


def test_the_served_model_is_the_one_that_is_trained(tmp_path, tiny_cache) -> None:
    write_served_model("tiny", tmp_path)
    model, tokenizer = load_causal_lm("tiny"), load_tokenizer("tiny")
    config = AutoConfig.from_pretrained(tmp_path)
    weights = load_file(tmp_path / "model-00000.safetensors")
    assert config.architectures == [type(model).__name__]
    # On a CPU vLLM has a head of its own.
    assert config.tie_word_embeddings is (torch.cuda.is_available() and model.config.tie_word_embeddings)
    for name, parameter in model.named_parameters():
        assert torch.equal(weights.pop(name), parameter)
    if model.config.tie_word_embeddings and not config.tie_word_embeddings:
        assert torch.equal(weights.pop("lm_head.weight"), model.get_output_embeddings().weight)
    assert not weights
    text = "2+3=? <think>"
    assert AutoTokenizer.from_pretrained(tmp_path).encode(text) == tokenizer.encode(text)


def test_without_vllm_it_is_said(capsys, monkeypatch) -> None:
    monkeypatch.setattr("rlvr.cli.vllm_serve.find_spec", lambda name: None)
    assert main(["vllm-serve", "tiny"]) == 2
    assert "vLLM is not installed here: `pip install vllm`" in capsys.readouterr().err


def test_without_a_model_it_is_said(capsys) -> None:
    assert main(["vllm-serve"]) == 2
    assert "MODEL" in capsys.readouterr().err
