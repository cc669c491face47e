"""The examples of TRL's `PPOTrainer.train` (reference document 4): `train()`, `save_model()`, and the sharded launch."""

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

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


def test_basic_training(parts, tmp_path) -> None:
    config = PPOConfig(
        output_dir=str(tmp_path / "run"), total_episodes=32, response_length=6, stop_token="eos", learning_rate=1e-2,
        num_ppo_epochs=2, bf16=False,
    )  # fmt: skip
    tokenizer, policy, ref_policy = parts["processing_class"], parts["model"], parts["ref_model"]
    reward_model, value_model = parts["reward_model"], parts["value_model"]
    train_dataset, eval_dataset = parts["train_dataset"], parts["eval_dataset"]

    trainer = PPOTrainer(
        args=config,
        processing_class=tokenizer,
        model=policy,
        ref_model=ref_policy,
        reward_model=reward_model,
        value_model=value_model,
        train_dataset=train_dataset,
        eval_dataset=eval_dataset,
    )

    # Run the full PPO training loop
    trainer.train()

    # Save the trained policy
    trainer.save_model(tmp_path / "ppo-trained-policy")

    saved = AutoModelForCausalLM.from_pretrained(tmp_path / "ppo-trained-policy")
    changed = [n for n, p in saved.state_dict().items() if not torch.equal(p, ref_policy.state_dict()[n])]
    assert changed and len(AutoTokenizer.from_pretrained(tmp_path / "ppo-trained-policy")) == len(tokenizer)
    assert [row["episode"] for row in trainer.log_history if "objective/kl" in row] == [8, 16, 24, 32]
    assert (tmp_path / "run" / "samples.jsonl").is_file()


def test_sharded_launch(parts) -> None:
    """The flags of the DeepSpeed example; ColossalAI's ZeRO shards here."""
    args = PPOConfig(
        num_ppo_epochs=1,
        num_mini_batches=1,
        per_device_train_batch_size=1,
        gradient_accumulation_steps=16,
        total_episodes=32,
        local_rollout_forward_batch_size=1,
        plugin="zero2",
        response_length=4,
        bf16=False,
        disable_tqdm=True,
    )
    trainer = PPOTrainer(args=args, **parts)
    trainer.train()
    assert trainer.trainer.progress.optimizer_steps == 2 and trainer.trainer.progress.samples == 32
