"""Checks of rewards, reward models and environments: settings that don't go together."""

from rlvr.config import Config, EnvConfig
from rlvr.config.conditions import estimator_of, has_reward_model
from rlvr.config.reward_options import (
    NEURAL,
    PLAYED,
    environment_of,
    function_names,
    is_multi_objective,
    parse_env_config,
    parse_objectives,
    parse_reward_options,
)
from rlvr.errors import UserError

ONE_TURN = ("vllm", "replay")
"""Engines that give a response and no more: vLLM's was never tried with several turns, and recorded responses can't be gone on with."""


def check_rewards(config: Config) -> None:
    """Refuse rewards that can't work, and settings of rewards that have no effect.

    Raises:
        UserError: says what was given, what is allowed and what to do.
    """
    _check_turns(config)
    _check_sources(config)
    _check_neural(config)
    _check_environment(config)
    _check_weights(config)


def _check_turns(config: Config) -> None:
    """Refuse an environment that can't be found, and what can't do several turns."""
    engine = config.rollout.engine
    if environment_of(config) is None:
        if PLAYED in function_names(config):
            raise UserError(
                f"the reward function {PLAYED!r} pays the scores of an environment, and there is none: give --environment "
                "path/to/file.py:Class"
            )
        return
    if engine in ONE_TURN:
        raise UserError(
            f"--environment: --engine {engine} gives one turn and no more; take --engine hf, generate or paged, or leave --environment out"
        )
    if has_reward_model(config):
        raise UserError(
            "--environment: a neural reward model (--rm_checkpoint_path) reads one question and one response, and not several turns; leave "
            "one of them out"
        )
    if config.ray.num_rollout_workers or config.ray.max_staleness:
        raise UserError(
            "--environment: rollout workers (--num_rollout_workers, --max_staleness) generate single turns; leave them out, and the actor's "
            "own processes play"
        )


def _check_sources(config: Config) -> None:
    r, neural = config.reward, has_reward_model(config)
    if neural and not r.neural_reward_model:
        raise UserError("--no_neural_reward_model and --rm_checkpoint_path exclude each other; leave one of them out")
    if not function_names(config) and not neural:
        from rewards import names

        or_model = ", or --rm_checkpoint_path with a trained reward model" if r.neural_reward_model else ""
        raise UserError(
            f"no reward: give --reward_functions with one or more of {', '.join(names())}, package.module:function, or "
            f"path/to/file.py:function{or_model}"
        )
    if r.reward_weights and len(r.reward_weights) != len(r.reward_functions):
        raise UserError(
            f"--reward_weights has {len(r.reward_weights)} numbers for {len(r.reward_functions)} reward functions; give "
            "one for each"
        )
    named = {name.rsplit(":", 1)[-1] for name in function_names(config)}
    if (environment := environment_of(config)) is not None:
        named.add(environment.name)
    if unread := sorted(set(parse_reward_options(r.reward_options)) - named):
        raise UserError(
            f"--reward_options for {', '.join(unread)} have no effect: the reward functions are "
            f"{', '.join(sorted(named)) or 'none'}. Leave them out, or name the function"
        )


def _check_neural(config: Config) -> None:
    if not has_reward_model(config) or config.reward.reward_normalisation != "running":
        return
    if config.algo.dynamic_sampling:
        raise UserError(
            "--reward_normalisation running needs all processes to score equally often, and --dynamic_sampling samples where "
            "groups are missing: use fixed, or off"
        )
    if estimator_of(config).greedy:
        raise UserError(
            f"--reward_normalisation running moves between a greedy response and those that --estimator {config.algo.estimator} compares "
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
    sources = len(function_names(config)) + has_reward_model(config)
    if not objectives and sources < 2:
        raise UserError(
            "several objectives were asked for, and there is one: give more --reward_functions, or --rl_reward_weights such "
            'as {"correctness": 1.0, "formatting": 0.1}'
        )


def _check_known_neural(config: Config, name: str | None, where: str) -> None:
    if name is not None and name.partition("/")[0] == NEURAL and not has_reward_model(config):
        raise UserError(f"{where}: {name!r} is the neural reward model, and there is none: give --rm_checkpoint_path")


def _check_comparison(config: Config) -> None:
    if config.rollout.num_generations < 2:
        raise UserError(
            "--rl_env_type preference_comparison compares the responses to one prompt, and --num_generations is "
            f"{config.rollout.num_generations}: give at least 2 (4 to 8 is usual)"
        )
    if estimator_of(config).greedy:
        raise UserError(
            f"--estimator {config.algo.estimator} wants the score of a single greedy response, which --rl_env_type "
            "preference_comparison has nothing to compare with; choose another estimator"
        )


def _check_weights(config: Config) -> None:
    """Refuse weights that are all 0, unless a judge decides what is paid."""
    r, e = config.reward, config.env
    judged = e.rl_env_type == "preference_comparison" and "judge" in parse_env_config(e.rl_env_type, e.rl_env_config)
    of_functions = r.reward_weights or [1.0] * len(function_names(config))
    of_model = [r.rm_weight] if has_reward_model(config) else []
    if not judged and not is_multi_objective(config) and not any([*of_functions, *of_model]):
        raise UserError(
            f"--reward_weights {' '.join(f'{w:g}' for w in of_functions)}"
            f"{f' and --rm_weight {r.rm_weight:g}' if of_model else ''}: nothing has a weight, so nothing is paid; give some"
        )
