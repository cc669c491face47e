"""TRL's side: its GRPOTrainer on the given work; runs in an environment of its own."""

import json
import sys
from typing import Any

import torch
from datasets import Dataset
from transformers import PreTrainedTokenizerFast, TrainerCallback

from benchmarks.sides.talk import Side
from benchmarks.sides.work import EOS, GROUP, MINI_BATCHES, PAD, PROMPTS, SIZES, Work, make_model, prompts


def parity(completion_ids: list[list[int]], **kwargs: Any) -> list[float]:
    """The rule that our side has too."""
    return [float(bool(ids) and ids[0] % 2 == 0) for ids in completion_ids]


def main() -> None:
    side, work = Side(), Work(**json.loads(sys.argv[1]))
    import transformers
    import trl

    trainer = _make_trainer(work)

    class Report(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step % MINI_BATCHES == 0:
                side.done(tokens=float("nan"))
                side.wait()

    trainer.add_callback(Report())
    side.say(
        ready=True,
        versions={"torch": torch.__version__, "trl": trl.__version__, "transformers": transformers.__version__},
    )
    side.wait()
    trainer.train()


def _make_trainer(work: Work) -> Any:
    from trl import GRPOConfig, GRPOTrainer

    rows = [
        " ".join(f"<{i}>" for i in ids)
        for iteration in range(200)
        for ids in prompts(work, iteration)[: PROMPTS // GROUP]
    ]
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
        processing_class=_tokenizer(work),
    )


def _tokenizer(work: Work) -> Any:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit

    tokenizer = Tokenizer(WordLevel({f"<{i}>": i for i in range(SIZES[work.size][0])}, unk_token="<2>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=f"<{PAD}>", eos_token=f"<{EOS}>", bos_token="<2>", padding_side="left"
    )


if __name__ == "__main__":
    main()
