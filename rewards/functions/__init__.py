"""The reward functions that come with rlvr; importing this package registers them."""

from rewards.functions.correctness import correctness, gsm8k_reward_fn, math_competition_reward_fn, math_reward_fn
from rewards.functions.format import format_reward_fn, tag_count_fn, tag_order_fn
from rewards.functions.judged import judged_reward_fn
from rewards.functions.length import cosine_length_fn, length_penalty, soft_overlong_fn
from rewards.functions.played import environment
from rewards.functions.procedural import reasoning_gym_reward_fn
from rewards.functions.repetition import repetition_penalty_fn

__all__ = [
    "correctness",
    "cosine_length_fn",
    "environment",
    "format_reward_fn",
    "gsm8k_reward_fn",
    "judged_reward_fn",
    "length_penalty",
    "math_competition_reward_fn",
    "math_reward_fn",
    "reasoning_gym_reward_fn",
    "repetition_penalty_fn",
    "soft_overlong_fn",
    "tag_count_fn",
    "tag_order_fn",
]
