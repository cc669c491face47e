"""Settings of rewards, reward models and environments that don't go together, or that nothing would read."""

import math

from rlvr.config import Config, EnvConfig, RewardConfig
from rlvr.core.advantages import get_estimator
from rlvr.errors import UserError
from rlvr.reward_settings import (
    NEURAL,
    function_names,
    is_multi_objective,
    parse_env_config,
    parse_objectives,
    parse_reward_options,
)


def check_rewards(config: Config) -> None:
    """Refuse rewards that can't work and settings of them without effect.

    Raises:
        UserError: says what was given, what is allowed and what to do.
    """
    _check_sources(config)
    _check_neural(config)
    _check_environment(config)
    _check_weights(config)
    _check_workers(config.reward)


def _check_sources(config: Config) -> None:
    r, path = config.reward, config.model.rm_checkpoint_path
    if path and not r.neural_reward_model:
        raise UserError("--no_neural_reward_model and --rm_checkpoint_path exclude each other; leave one of them out")
    if not function_names(config) and not path:
        from rewards import names

        neural = ", or --rm_checkpoint_path with a trained reward model" if r.neural_reward_model else ""
        raise UserError(
            f"no reward: give --reward_functions with one or more of {', '.join(names())}, package.module:function, or "
            f"path/to/file.py:function{neural}"
        )
    if r.reward_weights and len(r.reward_weights) != len(r.reward_functions):
        raise UserError(
            f"--reward_weights has {len(r.reward_weights)} numbers for {len(r.reward_functions)} reward functions; give "
            "one for each"
        )
    named = {name.rsplit(":", 1)[-1] for name in function_names(config)}
    if unread := sorted(set(parse_reward_options(r.reward_options)) - named):
        raise UserError(
            f"--reward_options for {', '.join(unread)} have no effect: the reward functions are "
            f"{', '.join(sorted(named)) or 'none'}. Leave them out, or name the function"
        )


def _check_neural(config: Config) -> None:
    r, a = config.reward, config.algo
    if not config.model.rm_checkpoint_path:
        return
    if not math.isfinite(r.rm_weight):
        raise UserError(f"--rm_weight {r.rm_weight}: must be a finite number")
    if r.reward_normalisation != "running":
        return
    if a.dynamic_sampling:
        raise UserError(
            "--reward_normalisation running needs all processes to score equally often, and --dynamic_sampling samples where "
            "groups are missing: use fixed, or off"
        )
    if get_estimator(a.estimator).greedy:
        raise UserError(
            f"--reward_normalisation running moves between a greedy response and those that --estimator {a.estimator} compares "
            "with it: use fixed, or off"
        )


def _check_environment(config: Config) -> None:
    e: EnvConfig = config.env
    judge = parse_env_config(e.rl_env_type, e.rl_env_config).get("judge") if e.rl_env_type else None
    _check_known_neural(config, judge, "--rl_env_config: judge")
    objectives = parse_objectives(e.rl_reward_weights)
    if is_multi_objective(config):
        _check_objectives(config, objectives)
    if e.rl_env_type == "preference_comparison":
        _check_comparison(config)


def _check_objectives(config: Config, objectives: dict[str, float]) -> None:
    for name in objectives:
        _check_known_neural(config, name, "--rl_reward_weights")
    sources = len(function_names(config)) + bool(config.model.rm_checkpoint_path)
    if not objectives and sources < 2:
        raise UserError(
            "several objectives were asked for, and there is one: give more --reward_functions, or --rl_reward_weights such "
            'as {"correctness": 1.0, "formatting": 0.1}'
        )


def _check_known_neural(config: Config, name: str | None, where: str) -> None:
    if name is not None and name.partition("/")[0] == NEURAL and not config.model.rm_checkpoint_path:
        raise UserError(f"{where}: {name!r} is the neural reward model, and there is none: give --rm_checkpoint_path")


def _check_comparison(config: Config) -> None:
    if config.rollout.num_generations < 2:
        raise UserError(
            "--rl_env_type preference_comparison compares the responses to one prompt, and --num_generations is "
            f"{config.rollout.num_generations}: give at least 2 (4 to 8 is usual)"
        )
    if get_estimator(config.algo.estimator).greedy:
        raise UserError(
            f"--estimator {config.algo.estimator} wants the score of a single greedy response, which --rl_env_type "
            "preference_comparison has nothing to compare with; choose another estimator"
        )


def _check_weights(config: Config) -> None:
    """Something must be paid, unless a judge decides."""
    r, e = config.reward, config.env
    judged = e.rl_env_type == "preference_comparison" and "judge" in parse_env_config(e.rl_env_type, e.rl_env_config)
    of_functions = r.reward_weights or [1.0] * len(function_names(config))
    of_model = [r.rm_weight] if config.model.rm_checkpoint_path else []
    if not judged and not is_multi_objective(config) and not any([*of_functions, *of_model]):
        raise UserError(
            f"--reward_weights {' '.join(f'{w:g}' for w in of_functions)}"
            f"{f' and --rm_weight {r.rm_weight:g}' if of_model else ''}: nothing has a weight, so nothing is paid; give some"
        )


def _check_workers(r: RewardConfig) -> None:
    for flag, value, allowed, what in [
        ("--reward_workers", r.reward_workers, r.reward_workers is None or r.reward_workers >= 0, "at least 0"),
        ("--reward_timeout_s", r.reward_timeout_s, r.reward_timeout_s > 0, "above 0"),
        ("--reward_memory_mb", r.reward_memory_mb, r.reward_memory_mb >= 1, "at least 1"),
        ("--max_reward_failures", r.max_reward_failures, 0 <= r.max_reward_failures <= 1, "a share from 0 to 1"),
    ]:
        if not allowed:
            raise UserError(f"{flag} {value}: must be {what}")
