"""Generation engines behind one protocol. Padding never leaves an engine: rollouts are ragged."""

from rlvr.rollout.engine import Engine, Rollout, Sampling
from rlvr.rollout.make import make_engine

__all__ = ["Engine", "Rollout", "Sampling", "make_engine"]
