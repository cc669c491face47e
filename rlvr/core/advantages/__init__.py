"""Advantage estimators: registered plain functions from `AdvantageInputs` to `AdvantageOutputs`.

    @estimator("mine", groups=True)
    def mine(inputs: AdvantageInputs) -> AdvantageOutputs: ...

The decorator says what an estimator needs (a critic, several responses to each prompt, a greedy response); the trainer
reads that and leaves out what is not needed. A new one is a function in a file of this folder and a test.

Whitening is not done here: it needs all samples of all ranks (`reductions.whiten`), and returns are never whitened.
"""

from rlvr.core.advantages.grouped import dr_grpo, grpo, has_signal, opo, reinforce_pp_baseline, remax, rloo
from rlvr.core.advantages.per_token import gae, reinforce_pp
from rlvr.core.advantages.registry import (
    AdvantageInputs,
    AdvantageOutputs,
    Estimator,
    estimator,
    estimator_names,
    get_estimator,
)

__all__ = [
    "AdvantageInputs",
    "AdvantageOutputs",
    "Estimator",
    "dr_grpo",
    "estimator",
    "estimator_names",
    "gae",
    "get_estimator",
    "grpo",
    "has_signal",
    "opo",
    "reinforce_pp",
    "reinforce_pp_baseline",
    "remax",
    "rloo",
]
