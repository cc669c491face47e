"""Train a language model by PPO with its roles on a Ray cluster.

    python scripts/train_rlvr_on_ray.py --prompt_csv_url prompts.csv --model gpt2 --strategy ddp --rm_checkpoint_path my_rm
    python scripts/train_rlvr_on_ray.py --prompt_dataset builtin --pretrain tiny --reward_functions gsm8k_reward_fn

Takes the flags of ColossalAI's `train_prompts_on_ray.py`, with its defaults, and those of `rlvr train`. Without the former,
`rlvr train --ray` is the same.
"""

import sys

from rlvr.cli.main import run
from rlvr.cli.train import ray_command

if __name__ == "__main__":
    sys.exit(run(ray_command, sys.argv[1:]))
