"""LoRA from the command line: whole runs on the built-in model, and the mistakes that a user can make."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file

from rlvr.cli.main import main
from rlvr.config import from_dict
from rlvr.models.actor import Actor
from rlvr.models.batch import collate
from rlvr.models.loading import load_causal_lm
from rlvr.models.lora import WEIGHTS, adapter_off, apply_lora, save_adapter
from rlvr.models.lora_config import LoraSettings
from rlvr.run.parts import make_models
from rlvr.validate.ppo import check_config, plan_batches

pytestmark = pytest.mark.usefixtures("process", "tiny_cache")
BATCH = collate([torch.tensor([5, 6, 7]), torch.tensor([8])], [torch.tensor([9, 10]), torch.tensor([11, 12, 1])])
SHORT = {
    "rollout": {"experience_batch_size": 16},
    "train": {"train_batch_size": 8, "num_collect_steps": 1},
    "reward": {"reward_functions": ["gsm8k_reward_fn"]},
}


@pytest.fixture
def lora_file(tmp_path) -> str:
    path = tmp_path / "lora.json"
    path.write_text(json.dumps({"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj", "down_proj"]}))
    return str(path)


def make(**model):
    config = from_dict({**SHORT, "model": {"pretrain": "tiny", **model}})
    check_config(config)
    return make_models(config, plan_batches(config, 1), torch.device("cpu"))


def saved_adapter(folder: Path) -> str:
    model = apply_lora(load_causal_lm("tiny"), LoraSettings(r=2, target_modules=["q_proj"]))
    with torch.no_grad():
        for p in model.parameters():
            if p.requires_grad:
                p += 0.3
    save_adapter(model, folder)
    return str(folder)


def test_one_base_for_actor_critic_and_reference(lora_file) -> None:
    models = make(lora_config=lora_file)
    assert models.initial_model is None and models.critic is not None
    of_actor, of_critic = ({id(p) for p in role.parameters()} for role in (models.actor, models.critic))
    held = {id(p) for o in (models.actor_optim, models.critic_optim) for g in o.param_groups for p in g["params"]}
    assert len(of_actor & of_critic) == 1 + 3 * 9 + 1  # embeddings, layers, last norm
    assert not held & of_actor & of_critic
    with torch.no_grad(), adapter_off(models.actor.model):
        assert torch.equal(models.actor(BATCH).logprobs, Actor(load_causal_lm("tiny"))(BATCH).logprobs)


def test_a_run_starts_from_an_adapter(tmp_path) -> None:
    folder = saved_adapter(tmp_path / "adapter")
    models = make(checkpoint_path=folder)
    want = PeftModel.from_pretrained(load_causal_lm("tiny"), folder).get_base_model()
    assert torch.equal(models.actor(BATCH).logprobs, Actor(want)(BATCH).logprobs)
    with torch.no_grad(), adapter_off(models.actor.model):
        assert torch.equal(models.actor(BATCH).logprobs, Actor(want)(BATCH).logprobs)
    assert models.critic is not None and models.critic.has_adapter


def test_the_whole_command_and_its_resumption(tmp_path, lora_file, capsys) -> None:
    run = tmp_path / "run"
    sizes = "--num_episodes 2 --experience_batch_size 16 --train_batch_size 8 --eval_samples 4 --max_new_tokens 24"
    flags = [
        "--reward_functions",
        "gsm8k_reward_fn",
        "--lora_config",
        lora_file,
        *sizes.split(),
        "--save_interval",
        "1",
    ]
    assert main(["train", *flags, "--save_path", str(run)]) == 0
    out = "".join(capsys.readouterr().out.split())
    assert "oftheactor's217,024weightslearn" in out and "actor/adapter" in out and "critic/modeling" in out
    whole = [load_file(run / role / "adapter" / WEIGHTS) for role in ("actor", "critic")]
    shutil.rmtree(run / "checkpoints" / "step-000002")
    assert main(["train", *flags, "--save_path", str(run), "--resume"]) == 0
    for role, before in zip(("actor", "critic"), whole, strict=True):
        after = load_file(run / role / "adapter" / WEIGHTS)
        assert before and all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.processes
def test_two_processes_give_the_losses_of_one(tmp_path, lora_file, ranks) -> None:
    rows = [
        {"question": f"{a}+{a}", "answer": str(2 * a), "response": f"<answer>{2 * a + a % 2}</answer>"}
        for a in range(10, 42)
    ]
    data = tmp_path / "data.jsonl"
    data.write_text("\n".join(json.dumps(row) for row in rows))
    flags = (
        "--reward_functions gsm8k_reward_fn --engine replay --num_episodes 2 --experience_batch_size 16 "
        "--train_batch_size 8 --max_new_tokens 30 --kl_coef 0.05 --lr 1e-2 --plugin zero1 --num_threads 1"
    ).split()
    metrics = []
    flags += ["--lora_config", lora_file, "--prompt_dataset", str(data), "--save_path"]
    assert main(["train", *flags, str(tmp_path / "1")]) == 0
    ranks.done(2, "train", *flags, tmp_path / "2")
    for count in ("1", "2"):
        metrics.append([json.loads(line) for line in (tmp_path / count / "metrics.jsonl").read_text().splitlines()])
    for one, two in zip(*metrics, strict=True):
        for name in ("train/actor_loss", "train/critic_loss", "grad_norm/actor", "grad_norm/critic", "objective/kl"):
            assert one[name] == pytest.approx(two[name], rel=5e-5, abs=2e-5), name
    assert metrics[0][0]["objective/kl"] == 0 != metrics[0][1]["objective/kl"]


def fails(capsys, tmp_path: Path, *flags: str) -> str:
    save = ["--save_path", str(tmp_path / "run")]
    assert main(["train", "--reward_functions", "gsm8k_reward_fn", *save, *flags]) == 2
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err + captured.out and captured.err.count("error:") == 1
    return " ".join(captured.err.split())


def test_mistakes(capsys, tmp_path, lora_file) -> None:
    def lora(**content) -> str:
        (tmp_path / "bad.json").write_text(json.dumps(content))
        return str(tmp_path / "bad.json")

    assert "No such file" in fails(capsys, tmp_path, "--lora_config", str(tmp_path / "none.json"))
    assert "unknown key 'rnk'" in fails(capsys, tmp_path, "--lora_config", lora(rnk=4))
    assert "set it to 0" in fails(capsys, tmp_path, "--lora_config", lora(lora_dropout=0.1))
    assert "matches nothing" in fails(capsys, tmp_path, "--lora_config", lora(target_modules=["c_attn"]))
    assert "nothing to merge" in fails(capsys, tmp_path, "--no_lora_merge")
    adapter = saved_adapter(tmp_path / "adapter")
    message = fails(capsys, tmp_path, "--checkpoint_path", adapter, "--lora_config", lora_file)
    assert "is an adapter with settings of its own" in message


def test_an_adapter_of_another_model_is_refused(capsys, tmp_path) -> None:
    adapter = saved_adapter(tmp_path / "adapter")
    base = json.loads((tmp_path / "adapter" / "base.json").read_text())
    (tmp_path / "adapter" / "base.json").write_text(json.dumps(base | {"fingerprint": "00", "name": "elsewhere"}))
    message = fails(capsys, tmp_path, "--checkpoint_path", adapter)
    assert "trained on another base model (elsewhere)" in message and "--pretrain" in message


def test_without_lora_nothing_is_adapted() -> None:
    models = make()
    assert not models.actor.has_adapter and models.initial_model is not None
