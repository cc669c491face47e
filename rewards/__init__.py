"""Rule rewards: what a response is worth, decided by a rule. Needs no torch and imports in a moment.

from rewards import grade, reward_fn

@reward_fn("mine")
def mine(response, gold, tags):
    return float(grade(response, gold, tags=tags).correct)
"""

from rewards.combine import Combined, RewardSet
from rewards.environment import Environment
from rewards.errors import UserError
from rewards.export import export
from rewards.functions import format_reward_fn, gsm8k_reward_fn, math_competition_reward_fn
from rewards.grade import check_gold, equivalent, gold_from_gsm8k, grade
from rewards.outcome import STATUSES, Outcome, Score
from rewards.pool import RewardPool, grade_many
from rewards.registry import RewardFunction, load_plugins, names, resolve, resolve_environment, reward_fn
from rewards.sample import Sample
from rewards.tags import Tag, Tags

__all__ = [
    "STATUSES",
    "Combined",
    "Environment",
    "Outcome",
    "RewardFunction",
    "RewardPool",
    "RewardSet",
    "Sample",
    "Score",
    "Tag",
    "Tags",
    "UserError",
    "check_gold",
    "equivalent",
    "export",
    "format_reward_fn",
    "gold_from_gsm8k",
    "grade",
    "grade_many",
    "gsm8k_reward_fn",
    "load_plugins",
    "math_competition_reward_fn",
    "names",
    "resolve",
    "resolve_environment",
    "reward_fn",
]
