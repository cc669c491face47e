"""What an environment has paid over the turns of an episode, as a reward function."""

from collections.abc import Mapping

from rewards.registry import reward_fn


@reward_fn("environment")
def environment(environment_scores: Mapping[str, float] | None) -> dict[str, float] | None:
    """The scores that the environment of `--environment` gave, added up over the turns by name; does not apply where it failed.

    >>> environment({"score": 1.0}), environment({"right": 1.0, "calls": -0.2}), environment(None)
    ({'score': 1.0}, {'right': 1.0, 'calls': -0.2}, None)
    """
    return None if environment_scores is None else dict(environment_scores)
