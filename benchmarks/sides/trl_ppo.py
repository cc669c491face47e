"""TRL's side: its PPOTrainer (1.12.0, the last release with PPO) on the given work; runs in an environment of its own."""

from typing import Any

import torch
from datasets import Dataset
from transformers import LlamaConfig, LlamaForSequenceClassification

from benchmarks.sides.talk import Side
from benchmarks.sides.trl_side import make_tokenizer, run
from benchmarks.sides.work import (
    MINI_BATCHES,
    PROMPTS,
    Work,
    copy_of,
    llama_config,
    make_model,
    prompts,
    special_ids,
    vocabulary,
)  # fmt: skip


def _time(side: Side, module: Any) -> None:
    """Put the clock around TRL's functions. Its update has no function of its own: it is what the phases leave over."""
    for name, phase in (
        ("batch_generation", "rollout"),
        ("get_reward", "score"),
        ("selective_log_softmax", "logprobs"),
    ):
        plain = getattr(module, name)

        def timed(*args: Any, plain: Any = plain, phase: str = phase, **kwargs: Any) -> Any:
            with side.phase(phase):
                return plain(*args, **kwargs)

        setattr(module, name, timed)


def make_trainer(side: Side, work: Work) -> Any:
    """TRL's trainer on the work, with the clock around its phases."""
    import trl.experimental.ppo.ppo_trainer as module
    from trl.experimental.ppo import PPOConfig, PPOTrainer

    _time(side, module)

    policy = make_model(work)
    if work.folder:
        value = LlamaForSequenceClassification.from_pretrained(work.folder, num_labels=1, dtype=torch.float32)
        value.config.pad_token_id = special_ids(work).pad
    else:
        value = LlamaForSequenceClassification(llama_config(work, LlamaConfig, None))
        value.config.num_labels = 1
        value.score = torch.nn.Linear(value.config.hidden_size, 1, bias=False)
    config = LlamaConfig(
        vocab_size=vocabulary(work),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=1,
        pad_token_id=special_ids(work).pad,
    )
    reward = LlamaForSequenceClassification(config)  # stands for a rule: it costs next to nothing
    reward.score = torch.nn.Linear(16, 1, bias=False)
    rows = [ids for iteration in range(40) for ids in prompts(work, iteration)]
    mini = PROMPTS // MINI_BATCHES
    # With all 64 at once it holds 20 GB of a real model's logits, with half of them 17, and with 16 it asked for more than 19 GB while it
    # learned; the gradient of a mini-batch in four parts is the same.
    at_once, parts = (PROMPTS // 4, 4) if work.folder else (PROMPTS, 1)
    args = PPOConfig(
        output_dir="/tmp/trl_ppo_benchmark", per_device_train_batch_size=mini // parts, gradient_accumulation_steps=parts * MINI_BATCHES,
        num_mini_batches=MINI_BATCHES, num_ppo_epochs=1, total_episodes=PROMPTS * 10_000, local_rollout_forward_batch_size=at_once,
        response_length=work.response_tokens, temperature=1.0, kl_coef=0.05, num_sample_generations=0, learning_rate=1e-6,
        stop_token="eos" if work.lengths == "realistic" else None, report_to=[], save_strategy="no", logging_strategy="no",
        use_cpu=not torch.cuda.is_available(), bf16=work.precision == "bf16", gradient_checkpointing=False, sft_model_path="", reward_model_path="",
    )  # fmt: skip
    return PPOTrainer(
        args=args, processing_class=make_tokenizer(work), model=policy, ref_model=copy_of(policy), reward_model=reward, value_model=value,
        train_dataset=Dataset.from_dict({"input_ids": rows}), eval_dataset=Dataset.from_dict({"input_ids": rows[:4]}),
    )  # fmt: skip


if __name__ == "__main__":
    run(make_trainer, steps=1)
