"""Generation engines behind one interface (`engine`): `hf`, `generate`, `paged`, `vllm` and `replay`.

The first phase of a training step: prompts and the current policy in, sampled responses out. Padding never leaves an
engine: rollouts are ragged.
"""

from rlvr.rollout.engine import Engine, Rollout, Sampling
from rlvr.rollout.registry import make_engine

__all__ = ["Engine", "Rollout", "Sampling", "make_engine"]
