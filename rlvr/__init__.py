"""rlvr: reinforcement learning with verifiable rewards.

Conversation templates with think/answer tags feed PPO generation; registered rule-based reward functions score the
answers; and one boosted actor/critic core trains on the result. Importing this package imports nothing heavy: the names
below are loaded when they are first used.
"""

import os
from importlib import import_module
from typing import Any

# Threads that wait for each other spin for some ten microseconds, and then sleep. By default they spin for milliseconds: where
# other processes want the cores, a thread then waits for one that is not running because of it, and work took 5 to 10 times as
# long. Without spinning each of a decoding step's many small products pays for waking a thread, and generation took 1.6 times as
# long. OpenMP reads this as torch loads it.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    os.environ.setdefault("GOMP_SPINCOUNT", "3000")

_WHERE = {
    "Config": "rlvr.config",
    "train": "rlvr.api",
    "PPOTrainer": "rlvr.trainer.ppo",
    "SFTConfig": "rlvr.config",
    "RewardTrainingConfig": "rlvr.config",
    "train_sft": "rlvr.run.supervised",
    "train_reward_model": "rlvr.run.supervised",
    "SFTTrainer": "rlvr.trainer.sft",
    "RewardModelTrainer": "rlvr.trainer.reward_model",
    "OnlineTrainer": "rlvr.trainer.online",
    "Callback": "rlvr.trainer.callbacks",
    "RLVRRewardModel": "rlvr.scorers.rules",
    "NaiveExperienceMaker": "rlvr.experience.maker",
    "Experience": "rlvr.experience.experience",
    "Actor": "rlvr.models.actor",
    "Critic": "rlvr.models.critic",
    "RewardModel": "rlvr.models.reward_model",
    "Boosted": "rlvr.boost.boosted",
    "UserError": "rlvr.errors",
    "LLMTrainingParams": "rlvr.compat.aitraining",
    "Project": "rlvr.compat.aitraining_project",
    "AutoTrainProject": "rlvr.compat.aitraining_project",
    "truncate_response": "rlvr.core.masked",
    "generate": "rlvr.compat.trl_functions",
    "batch_generation": "rlvr.compat.trl_functions",
    "forward": "rlvr.compat.trl_functions",
}
__all__ = ["__version__", *_WHERE]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name not in _WHERE:
        raise AttributeError(f"module 'rlvr' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("rlvr")
    except PackageNotFoundError:  # a checkout that was never installed
        return "0+unknown"


def __dir__() -> list[str]:
    return __all__
