"""What an environment has paid over the turns of an episode, as a reward function."""

from collections.abc import Mapping

from rewards.environment import paid
from rewards.outcome import Score
from rewards.registry import reward_fn


@reward_fn("environment")
def environment(environment_scores: Mapping[str, float] | None) -> Score:
    """The scores that the environment of `--environment` gave, added up over the turns; does not apply where it failed.

    Each name is a component. `score` is paid alone where it is among them, and else the sum; a name that begins with `_` is a curve and
    not paid.

    >>> environment({"score": 1.0}).value, environment({"right": 1.0, "cost": -0.2, "_calls": 2.0}).value, environment(None).value
    (1.0, 0.8, None)
    >>> dict(environment({"right": 1.0, "_calls": 2.0}).components)
    {'right': 1.0, 'calls': 2.0}
    """
    if environment_scores is None:
        return Score(None)
    return Score(
        paid(environment_scores), None, {name.lstrip("_"): value for name, value in environment_scores.items()}
    )
