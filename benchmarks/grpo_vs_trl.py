"""GRPO here and in TRL 1.16.0: the same work, in turn, in one run.

    uv run python benchmarks/grpo_vs_trl.py                     # model M, about half an hour on two cores
    uv run python benchmarks/grpo_vs_trl.py --sizes S --iterations 5

The work (benchmarks/sides/work.py): a random Llama of 3M (S) or 42M parameters (M), 8 prompts of 48 tokens, eight
responses each, one epoch of four mini-batches of 16, no reference model. "fixed": every response has all
its tokens; "realistic": responses end by themselves, after a third of the cap on average. "best": each side in bf16 or
fp32, whichever is faster for it. TRL runs in an environment of its own, which uv makes.
"""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])  # benchmarks/rewards.py must not stand for the package

from benchmarks.sides.versus import Versus  # noqa: E402

TARGETS = {"fixed": 1.5, "realistic": 1.5, "best": 1.5}

if __name__ == "__main__":
    sys.exit(Versus("grpo", "1.16.0", TARGETS, __doc__ or "").main())
