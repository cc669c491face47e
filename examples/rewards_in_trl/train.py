"""TRL's GRPOTrainer on our built-in problems, paid by our reward functions: see README.md beside this file."""

import argparse
from pathlib import Path

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from rewards import export
from rlvr.data.readers import read_problems
from rlvr.models.loading import load_causal_lm, load_tokenizer
from rlvr.prompting.conversation import Conversation, choose_template


def main(argv: list[str] | None = None) -> GRPOTrainer:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="tiny", help="tiny, smollm2-135m, a folder, or a hub name")
    parser.add_argument("--max_steps", type=int, default=50, help="optimizer steps")
    parser.add_argument("--problems", type=int, default=512, help="how many to draw from")
    parser.add_argument("--output_dir", type=Path, default=Path("runs/trl"), help="where TRL writes")
    arguments = parser.parse_args(argv)

    tokenizer = load_tokenizer(arguments.model)
    conversation = Conversation(choose_template("auto", tokenizer), tokenizer)
    problems = read_problems(["builtin"], split="train", limit=arguments.problems, seed=0)
    rows = [{"prompt": conversation.prompt_text(p.question), "answer": p.answer} for p in problems]

    trainer = GRPOTrainer(
        load_causal_lm(arguments.model),
        reward_funcs=[
            export("trl", "gsm8k_reward_fn", tags=conversation.tags),
            export("trl", "repetition_penalty_fn", tags=conversation.tags),
        ],
        processing_class=tokenizer,
        train_dataset=Dataset.from_list(rows),
        args=GRPOConfig(
            output_dir=str(arguments.output_dir),
            max_steps=arguments.max_steps,
            reward_weights=[1.0, 0.1],
            num_generations=8,
            per_device_train_batch_size=64,
            max_completion_length=64,
            learning_rate=3e-4,
            logging_steps=5,
            report_to="none",
            use_cpu=True,
        ),
    )
    trainer.train()
    return trainer


if __name__ == "__main__":
    main()
