"""How many problems a model answers rightly, and how sure one can be of that.

    torchrun scripts/evaluate.py smollm2-135m --dataset openai/gsm8k --max_samples 200
    torchrun --nproc_per_node=2 scripts/evaluate.py RUN/actor/modeling --num_generations 8 --temperature 1

Every flag: `python scripts/evaluate.py --help`. The same as `rlvr eval`.
"""

import sys

from rlvr.cli.evaluate import eval_command
from rlvr.cli.main import run

if __name__ == "__main__":
    sys.exit(run(eval_command, sys.argv[1:]))
