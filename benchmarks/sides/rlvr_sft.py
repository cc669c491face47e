"""Our side of supervised fine-tuning: `SFTTrainer` on the given rows. Run by the benchmark: python -m benchmarks.sides.rlvr_sft JSON."""

import json
import sys
from typing import Any

import torch

from benchmarks.sides.real import MOST_TOKENS
from benchmarks.sides.talk import Side
from benchmarks.sides.work import SFT_BATCH, Work, make_model, read_tokenizer, rows_of


def main() -> None:
    side, work = Side(), Work(**json.loads(sys.argv[1]))
    from rlvr.boost.plugins import make_booster
    from rlvr.boost.process import start
    from rlvr.config.flags import parse_sft
    from rlvr.data.examples import Example
    from rlvr.models.actor import Actor
    from rlvr.models.backbone import prepare
    from rlvr.trainer.callbacks import Callback
    from rlvr.trainer.sft import SFTTrainer

    class Report(Callback):
        def on_step_end(self, trainer: Any) -> None:
            side.done(tokens=float("nan"))
            side.wait()

    flags = [
        "--train_batch_size",
        str(SFT_BATCH),
        "--max_length",
        str(MOST_TOKENS),
        "--mixed_precision",
        work.precision,
    ]
    config = parse_sft([*flags, "--max_steps", "10000", "--num_epochs", "1"])
    process = start(0, torch.get_num_threads())
    tokenizer = read_tokenizer(work.folder)
    actor = Actor(prepare(make_model(work), False))
    optimizer = torch.optim.AdamW(actor.parameters(), lr=1e-6, fused=True)
    examples = []
    for row in rows_of(work.folder):
        prompt, response = (
            tokenizer(row[name], add_special_tokens=False)["input_ids"] for name in ("prompt", "completion")
        )
        examples.append(Example((*prompt, *response), len(prompt)))
    booster = make_booster(config.parallel, process.device, config.train.grad_clip)
    trainer = SFTTrainer(booster, actor, optimizer, None, tokenizer, examples, config, callbacks=[Report()])
    side.say(ready=True, versions={"torch": torch.__version__})
    side.wait()
    trainer.fit()


if __name__ == "__main__":
    main()
