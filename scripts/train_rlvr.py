"""Train a language model by PPO on problems whose answers a rule can check.

    torchrun scripts/train_rlvr.py --reward_functions gsm8k_reward_fn
    torchrun --nproc_per_node=2 scripts/train_rlvr.py --reward_functions gsm8k_reward_fn --plugin zero2

Every flag: `python scripts/train_rlvr.py --help`. The same as `rlvr train`.
"""

import sys
from argparse import Namespace

from rlvr.cli.main import run
from rlvr.cli.train import train_command


def train(args: Namespace) -> None:
    """Train by settings that a parser of one's own has read, under the names of flags."""
    import rlvr

    rlvr.train(**vars(args))


if __name__ == "__main__":
    sys.exit(run(train_command, sys.argv[1:]))
