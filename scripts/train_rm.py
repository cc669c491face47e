"""Train a reward model on pairs of a better and a worse response.

    torchrun scripts/train_rm.py
    torchrun scripts/train_rm.py --preference_dataset pairs.jsonl --eval_share 0.05

Every flag: `python scripts/train_rm.py --help`. The same as `rlvr reward-model`.
"""

import sys

from rlvr.cli.main import run
from rlvr.cli.train import reward_model_command

if __name__ == "__main__":
    sys.exit(run(reward_model_command, sys.argv[1:]))
