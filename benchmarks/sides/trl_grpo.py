"""TRL's side: its GRPOTrainer on the given work; runs in an environment of its own."""

from typing import Any

import torch
from datasets import Dataset

from benchmarks.sides.talk import Side
from benchmarks.sides.trl_side import make_tokenizer, run
from benchmarks.sides.work import GROUP, MINI_BATCHES, PROMPTS, Work, make_model, prompt_texts, prompts


def parity(completion_ids: list[list[int]], **kwargs: Any) -> list[float]:
    """The rule that our side has too."""
    return [float(bool(ids) and ids[0] % 2 == 0) for ids in completion_ids]


def make_trainer(side: Side, work: Work) -> Any:
    """TRL's trainer on the work."""
    from trl import GRPOConfig, GRPOTrainer

    if work.folder:
        rows = [text for iteration in range(200) for text in prompt_texts(work, iteration)]
    else:
        rows = [" ".join(f"<{i}>" for i in ids) for iteration in range(200) for ids in prompts(work, iteration)]
    args = GRPOConfig(
        output_dir="/tmp/trl_grpo_benchmark", per_device_train_batch_size=PROMPTS // MINI_BATCHES, gradient_accumulation_steps=1,
        steps_per_generation=MINI_BATCHES, num_iterations=1, num_generations=GROUP, max_completion_length=work.response_tokens,
        temperature=1.0, beta=0.0, learning_rate=1e-6, report_to=[], save_strategy="no", logging_strategy="no", max_steps=100_000,
        use_cpu=not torch.cuda.is_available(), bf16=work.precision == "bf16", gradient_checkpointing=False, disable_dropout=True,
    )  # fmt: skip
    return GRPOTrainer(
        model=make_model(work),
        reward_funcs=parity,
        args=args,
        train_dataset=Dataset.from_dict({"prompt": rows}),
        processing_class=make_tokenizer(work),
    )


if __name__ == "__main__":
    run(make_trainer, steps=MINI_BATCHES)
