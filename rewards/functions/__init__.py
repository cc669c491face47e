"""The reward functions that come with rlvr, one file for each; importing this package registers them."""

from rewards.functions.correctness import correctness
from rewards.functions.cosine_length import cosine_length_fn
from rewards.functions.format import format_reward_fn
from rewards.functions.gsm8k import gsm8k_reward_fn
from rewards.functions.length_penalty import length_penalty
from rewards.functions.math_answer import math_reward_fn
from rewards.functions.math_competition import math_competition_reward_fn
from rewards.functions.repetition import repetition_penalty_fn
from rewards.functions.soft_overlong import soft_overlong_fn
from rewards.functions.tag_count import tag_count_fn
from rewards.functions.tag_order import tag_order_fn

__all__ = [
    "correctness",
    "cosine_length_fn",
    "format_reward_fn",
    "gsm8k_reward_fn",
    "length_penalty",
    "math_competition_reward_fn",
    "math_reward_fn",
    "repetition_penalty_fn",
    "soft_overlong_fn",
    "tag_count_fn",
    "tag_order_fn",
]
