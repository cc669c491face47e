"""`OnlineTrainer`, the loop with its hooks, and `PPOTrainer` on top of it.

As ColossalChat's users import it: `from rlvr.trainer import PPOTrainer`. It is loaded only then.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "PPOTrainer":
        from rlvr.trainer.ppo import PPOTrainer

        return PPOTrainer
    raise AttributeError(f"module 'rlvr.trainer' has no attribute {name!r}")
