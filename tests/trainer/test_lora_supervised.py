"""LoRA in supervised training: language models and reward models."""

import json
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from supervised_harness import StopAfter, make, reward_model, weights
from tiny_models import tiny_model
from transformers import AutoModelForCausalLM

from rlvr.checkpoint import storage as checkpoint
from rlvr.config import RewardTrainingConfig, SFTConfig, build
from rlvr.errors import UserError
from rlvr.models.actor import Actor
from rlvr.models.batch import collate
from rlvr.models.lora import WEIGHTS
from rlvr.models.lora_config import LoraSettings
from rlvr.models.reward_model import RewardModel
from rlvr.run.supervised import train_reward_model, train_sft
from rlvr.trainer.base import Interrupted

pytestmark = pytest.mark.usefixtures("process")
SETTINGS = LoraSettings(r=4, lora_alpha=16, target_modules=["q_proj", "v_proj", "down_proj"])
BATCH = collate([torch.tensor([5, 6, 7]), torch.tensor([8])], [torch.tensor([9, 10]), torch.tensor([11, 12, 1])])


def output(role) -> torch.Tensor:
    out = role(BATCH)
    return out if isinstance(out, torch.Tensor) else out.logprobs


@pytest.mark.parametrize("kind", ["sft", "rm"])
def test_only_the_adapter_learns_and_the_result_is_whole(kind, tmp_path) -> None:
    trainer = make(kind, tmp_path, lora=SETTINGS)
    role = trainer.role.unwrapped
    base = {name: p.detach().clone() for name, p in role.named_parameters() if not p.requires_grad}
    before = output(role)
    trainer.fit()
    assert base and all(torch.equal(p, base[n]) for n, p in role.named_parameters() if not p.requires_grad)
    assert not torch.allclose(output(role), before, atol=1e-3)
    assert trainer.result.name == "modeling"
    if kind == "sft":
        again = Actor(AutoModelForCausalLM.from_pretrained(trainer.result).eval())
        theirs = Actor(PeftModel.from_pretrained(tiny_model(), tmp_path / "actor" / "adapter").get_base_model())
    else:
        again = RewardModel.from_pretrained(trainer.result)
        reward_model().decoder.save_pretrained(tmp_path / "base")
        theirs = RewardModel.from_pretrained(tmp_path / "reward_model" / "adapter", base=str(tmp_path / "base"))
    for model in (again, theirs):
        torch.testing.assert_close(output(model), output(role), atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", ["sft", "rm"])
@pytest.mark.parametrize(("plugin", "precision"), [("ddp", "fp32"), ("zero2", "bf16")])
def test_a30_a_stopped_run_goes_on_as_if_nothing_had_happened(kind, plugin, precision, tmp_path) -> None:
    options = {"lora": SETTINGS, "plugin": plugin, "precision": precision}
    whole = make(kind, **options)
    whole.fit()
    with pytest.raises(Interrupted) as interrupted:
        make(kind, tmp_path, callbacks=[StopAfter(3)], **options).fit()
    folder = Path(interrupted.value.checkpoint)
    assert list(folder.rglob(WEIGHTS)) and not list(folder.rglob("modeling"))
    again = make(kind, tmp_path, **options)
    again.load_checkpoint(folder)
    again.fit()
    assert torch.equal(weights(again), weights(whole))


def test_the_adapter_alone_on_request(tmp_path) -> None:
    trainer = make("sft", tmp_path, lora=SETTINGS, lora_merge=False)
    trainer.fit()
    assert trainer.result == tmp_path / "actor" / "adapter" and (trainer.result / WEIGHTS).is_file()
    assert not (tmp_path / "actor" / "modeling").exists()


def run(kind: str, folder: Path, **model) -> Path:
    """A whole run of two steps on the built-in data, from settings."""
    settings = SFTConfig if kind == "sft" else RewardTrainingConfig
    tree = {
        "model": {"pretrain": "tiny", **model},
        "data": {"max_samples": 16},
        "train": {"max_steps": 2, "train_batch_size": 4, "lr": 1e-2},
        "ckpt": {"save_path": str(folder)},
    }
    return (train_sft if kind == "sft" else train_reward_model)(build(settings, tree))


@pytest.fixture
def lora_file(tmp_path) -> str:
    path = tmp_path / "lora.json"
    path.write_text(json.dumps({"r": 4, "target_modules": "all-linear"}))
    return str(path)


@pytest.mark.usefixtures("tiny_cache")
@pytest.mark.parametrize("kind", ["sft", "rm"])
def test_whole_runs(kind, lora_file, tmp_path) -> None:
    folder = run(kind, tmp_path / "run", lora_config=lora_file)
    role = folder / ("actor" if kind == "sft" else "reward_model")
    assert sorted(p.name for p in role.iterdir() if p.is_dir()) == ["adapter", "modeling"]
    assert checkpoint.list_checkpoints(folder)
    if kind == "sft":  # the adapter is trained further, and the base stays what it is
        more = run(kind, tmp_path / "more", checkpoint_path=str(role / "adapter"))
        saved = [json.loads((f / "actor" / "adapter" / "base.json").read_text()) for f in (folder, more)]
        assert saved[0] == saved[1]


@pytest.mark.parametrize("kind", ["sft", "rm"])
def test_mistakes(kind, lora_file, tmp_path) -> None:
    Path(lora_file).write_text(json.dumps({"lora_dropout": 0.1}))
    with pytest.raises(UserError, match="lora_dropout 0.1.*set it to 0"):
        run(kind, tmp_path / "run", lora_config=lora_file)
    with pytest.raises(UserError, match="nothing to merge"):
        run(kind, tmp_path / "run", lora_merge=False)
