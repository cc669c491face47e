"""A run's folder stands for the model that it trained."""

from pathlib import Path

import pytest
import torch

from rlvr.errors import UserError
from rlvr.models.loading import load_causal_lm, load_tokenizer, resolve_source
from rlvr.models.saved import trained_actor, trained_model


@pytest.mark.parametrize(
    ("folders", "model", "actor"),
    [
        (["actor/modeling", "actor/adapter", "critic/modeling"], "actor/modeling", True),
        (["actor/adapter", "critic/adapter"], "actor/adapter", True),
        (["reward_model/modeling"], "reward_model/modeling", False),
        (["modeling", "adapter"], "modeling", True),  # the folder of a role
        (["checkpoints/step-000001/actor/modeling"], None, False),
        ([], None, False),
    ],
)
def test_what_a_folder_holds(folders: list[str], model: str | None, actor: bool, tmp_path: Path) -> None:
    run = tmp_path / "actor"  # as the folder of a role is called; a run's may be
    for folder in folders:
        (run / folder).mkdir(parents=True)
    want = None if model is None else run / model
    assert trained_model(run) == want and trained_actor(run) == (want if actor else None)
    assert resolve_source(str(run)).path == str(want if actor and want else run)


def test_a_reward_models_folder_is_no_actor(tmp_path: Path) -> None:
    (tmp_path / "reward_model" / "modeling").mkdir(parents=True)
    assert trained_model(tmp_path / "reward_model") == tmp_path / "reward_model" / "modeling"
    assert trained_actor(tmp_path / "reward_model") is None
    assert resolve_source("nobody/nothing").path == "nobody/nothing"


def test_a_model_of_a_later_transformers_is_told_apart(tmp_path, monkeypatch) -> None:
    """Its tokenizer's class is unknown to an earlier one, whose own message names neither version."""
    (tmp_path / "config.json").write_text('{"model_type": "llama", "transformers_version": "99.1.0"}')
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "NewBackend"}')
    for load in (load_tokenizer, load_causal_lm):
        with pytest.raises(
            UserError, match=r"saved by transformers 99.1.0, and here is \S+: pip install 'transformers>=99'"
        ):
            load(str(tmp_path))


def test_an_old_torch_unpickles_no_model(tmp_path, monkeypatch, micro_model) -> None:
    """Before 2.6 its restricted unpickling can be made to run code."""
    from transformers import AutoModelForCausalLM

    from rlvr.models import loading

    model = AutoModelForCausalLM.from_pretrained(micro_model)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    model.config.save_pretrained(tmp_path)
    assert load_causal_lm(str(tmp_path)).num_parameters() == model.num_parameters()
    monkeypatch.setattr(loading, "UNPICKLES_CODE", True)
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("it was unpickled"))
    with pytest.raises(UserError, match="only safetensors are read"):
        load_causal_lm(str(tmp_path))
    load_causal_lm(micro_model)
