"""GRPO here and in TRL 1.16.0: the same work, in turn, in one run.

    uv run python benchmarks/grpo_vs_trl.py                     # model M, about half an hour on two cores
    uv run python benchmarks/grpo_vs_trl.py --sizes S --iterations 5
    uv run python benchmarks/grpo_vs_trl.py --model smollm2-135m --precisions bf16

The work (benchmarks/sides/work.py): a random Llama of 3M (S) or 42M parameters (M), 8 prompts of 48 tokens, eight
responses each, one epoch of four mini-batches of 16, no reference model. "fixed": every response has all
its tokens; "realistic": responses end by themselves, after a third of the cap on average. "best": each side in bf16 or
fp32, whichever is faster for it. TRL runs in an environment of its own, which uv makes.
`--model`: a real model instead, on SVAMP's problems through its own template, responses of at most 96 tokens that end as they
come.
"""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])  # benchmarks/rewards.py must not stand for the package

from benchmarks.sides.report import Target  # noqa: E402
from benchmarks.sides.versus import Versus  # noqa: E402

TARGETS = {"fixed": Target(1.5), "realistic": Target(1.5), "best": Target(1.5)}

if __name__ == "__main__":
    sys.exit(Versus("grpo", "1.16.0", TARGETS, Target(3.0, 0.5), __doc__ or "").main())
