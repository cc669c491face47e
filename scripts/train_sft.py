"""Fine-tune a language model on prompts and responses, the loss on responses only.

    torchrun scripts/train_sft.py
    torchrun --nproc_per_node=2 scripts/train_sft.py --pretrain smollm2-135m --dataset data.jsonl --packing

Every flag: `python scripts/train_sft.py --help`. The same as `rlvr sft`.
"""

import sys

from rlvr.cli.main import run
from rlvr.cli.train import sft_command

if __name__ == "__main__":
    sys.exit(run(sft_command, sys.argv[1:]))
