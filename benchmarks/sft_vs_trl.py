"""Supervised fine-tuning here and in TRL 1.16.0 (`SFTTrainer`): the same model and rows, in turn, in one run.

    uv run python benchmarks/sft_vs_trl.py --precisions bf16                # SmolLM2-135M

An iteration is an optimizer step on 16 rows of GSM8K with all lengths as they come, up to 384 tokens, the loss on responses only.
Both sides draw rows in an order of their own. "best": each side in the precision that is faster for it. TRL runs in an
environment of its own, which uv makes.
"""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])  # benchmarks/rewards.py must not stand for the package

from benchmarks.sides.report import Target  # noqa: E402
from benchmarks.sides.versus import Versus  # noqa: E402

if __name__ == "__main__":
    if not any(word.startswith("--model") for word in sys.argv[1:]):
        sys.argv += ["--model", "smollm2-135m"]
    sys.exit(Versus("sft", "1.16.0", {}, Target(1.5, 0.6), __doc__ or "").main())
