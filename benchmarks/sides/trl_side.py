"""What TRL's sides share: a tokenizer for random ids, and the run, which waits for the benchmark after each iteration."""

import json
import sys
from collections.abc import Callable
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast, TrainerCallback

from benchmarks.sides.talk import Side
from benchmarks.sides.work import EOS, PAD, SIZES, Work, read_tokenizer


def run(make_trainer: Callable[[Side, Work], Any], steps: int) -> None:
    """Train for as long as the benchmark says go; an iteration is so many of the trainer's steps."""
    side, work = Side(), Work(**json.loads(sys.argv[1]))
    import transformers
    import trl

    trainer = make_trainer(side, work)

    class Report(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step % steps == 0:
                side.done(tokens=float("nan"))
                side.wait()

    trainer.add_callback(Report())
    side.say(
        ready=True,
        versions={"torch": torch.__version__, "trl": trl.__version__, "transformers": transformers.__version__},
    )
    side.wait()
    trainer.train()


def make_tokenizer(work: Work) -> Any:
    """Words <0>, <1>, ... apart by white space; or the real model's."""
    if work.folder:
        return read_tokenizer(work.folder)
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit

    tokenizer = Tokenizer(WordLevel({f"<{i}>": i for i in range(SIZES[work.size][0])}, unk_token="<2>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=f"<{PAD}>", eos_token=f"<{EOS}>", bos_token="<2>", padding_side="left"
    )
