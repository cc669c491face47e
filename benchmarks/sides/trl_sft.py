"""TRL's side of supervised fine-tuning: its SFTTrainer on the given rows; runs in an environment of its own."""

from typing import Any

import torch
from datasets import Dataset

from benchmarks.sides.talk import Side
from benchmarks.sides.trl_side import make_tokenizer, run
from benchmarks.sides.work import SFT_BATCH, Work, make_model, rows_of


def make_trainer(side: Side, work: Work) -> Any:
    """TRL's trainer on the work, with the loss on completions alone."""
    from trl import SFTConfig, SFTTrainer

    args = SFTConfig(
        output_dir="/tmp/trl_sft_benchmark", per_device_train_batch_size=SFT_BATCH, gradient_accumulation_steps=1, max_length=None,
        completion_only_loss=True, learning_rate=1e-6, report_to=[], save_strategy="no", logging_strategy="no", max_steps=10_000,
        use_cpu=not torch.cuda.is_available(), bf16=work.precision == "bf16", gradient_checkpointing=False,
    )  # fmt: skip
    return SFTTrainer(
        model=make_model(work),
        args=args,
        train_dataset=Dataset.from_list(rows_of(work.folder)),
        processing_class=make_tokenizer(work),
    )


if __name__ == "__main__":
    run(make_trainer, steps=1)
