"""The examples of TRL's `PPOTrainer.train` (reference document 4) as they stand: `train()`, `save_model()`, the sharded launch, and the
calls of its functions."""

import ast
import inspect

import pytest
import torch
from seed_examples import TRL_FUNCTIONS, TRL_LAUNCH, TRL_TRAINER, flags
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer, HfArgumentParser

import rlvr
from rlvr.compat.trl import PPOConfig, PPOTrainer
from rlvr.models.reward_model import RewardModel

pytestmark = pytest.mark.usefixtures("process")


@pytest.fixture
def parts(micro_model, tmp_path) -> dict:
    """What the example assumes to be there."""
    RewardModel.from_base(micro_model, seed=3).save_pretrained(tmp_path / "classifier")
    load = AutoModelForSequenceClassification.from_pretrained
    tokenizer = AutoTokenizer.from_pretrained(micro_model)
    rows = [{"input_ids": tokenizer(f"what is {i} + {i}?")["input_ids"]} for i in range(16)]
    return {
        "processing_class": tokenizer,
        "model": AutoModelForCausalLM.from_pretrained(micro_model),
        "ref_model": AutoModelForCausalLM.from_pretrained(micro_model),
        "reward_model": load(tmp_path / "classifier", num_labels=1),
        "value_model": load(tmp_path / "classifier", num_labels=1),
        "train_dataset": rows[:12],
        "eval_dataset": rows[12:],
    }


def test_basic_training(parts, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = PPOConfig(
        output_dir=str(tmp_path / "run"), total_episodes=32, response_length=6, stop_token="eos", learning_rate=1e-2,
        num_ppo_epochs=2, bf16=False,
    )  # fmt: skip
    tokenizer, ref_policy = parts["processing_class"], parts["ref_model"]
    named = {"config": config, "tokenizer": tokenizer, "policy": parts["model"], "ref_policy": ref_policy, **parts}
    exec(TRL_TRAINER.replace("trl.experimental.ppo", "rlvr.compat.trl"), named)

    saved = AutoModelForCausalLM.from_pretrained(tmp_path / "ppo-trained-policy")
    changed = [n for n, p in saved.state_dict().items() if not torch.equal(p, ref_policy.state_dict()[n])]
    assert changed and len(AutoTokenizer.from_pretrained(tmp_path / "ppo-trained-policy")) == len(tokenizer)
    log = named["trainer"].log_history
    assert [row["episode"] for row in log if "objective/kl" in row] == [8, 16, 24, 32]
    assert (tmp_path / "run" / "samples.jsonl").is_file()


def test_sharded_launch(parts) -> None:
    """The flags of the DeepSpeed example, read as TRL's script reads them; ColossalAI's ZeRO shards here."""
    words = flags(TRL_LAUNCH, "examples/scripts/ppo/ppo.py", **{"10000": "32"})
    more = "--plugin zero2 --response_length 4 --bf16 False --disable_tqdm True".split()
    (args,) = HfArgumentParser(PPOConfig).parse_args_into_dataclasses([*words, *more])
    trainer = PPOTrainer(args=args, **parts)
    trainer.train()
    assert trainer.trainer.progress.optimizer_steps == 2 and trainer.trainer.progress.samples == 32


def test_functions_are_called_as_documented() -> None:
    for line in TRL_FUNCTIONS.strip().splitlines():
        definition = ast.parse(f"{line} pass").body[0]
        assert isinstance(definition, ast.FunctionDef)
        wanted = [argument.arg for argument in definition.args.args]
        ours = inspect.signature(getattr(rlvr, definition.name))
        assert list(ours.parameters)[: len(wanted)] == wanted
        ours.bind(*wanted)
        ours.bind(**dict.fromkeys(wanted))
