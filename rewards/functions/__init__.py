"""The reward functions that come with rlvr, one file for each; importing this package registers them."""

from rewards.functions.format import format_reward_fn
from rewards.functions.gsm8k import gsm8k_reward_fn
from rewards.functions.math_competition import math_competition_reward_fn

__all__ = ["format_reward_fn", "gsm8k_reward_fn", "math_competition_reward_fn"]
