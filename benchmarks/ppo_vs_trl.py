"""PPO here and in TRL 1.12.0 (its last release with PPO): the same work, in turn, in one run.

    uv run python benchmarks/ppo_vs_trl.py                     # model M, about half an hour on two cores
    uv run python benchmarks/ppo_vs_trl.py --sizes S --iterations 5
    uv run python benchmarks/ppo_vs_trl.py --model smollm2-135m --precisions bf16

The work (benchmarks/sides/work.py): a random Llama of 3M (S) or 42M parameters (M), 64 prompts of 48 tokens, one response
each, one epoch of four mini-batches of 16, a reference model, a critic of the same size. "fixed": every response has all
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

TARGETS = {"fixed": Target(1.3), "realistic": Target(2.0), "best": Target(2.5)}

if __name__ == "__main__":
    sys.exit(Versus("ppo", "1.12.0", TARGETS, Target(3.0), __doc__ or "").main())
