"""Settings of rewards that need parsing: the names of reward functions and objectives, and options given as JSON."""

from inspect import Parameter
from typing import TYPE_CHECKING, Any

from rlvr.config.files import parse_json
from rlvr.errors import UserError, did_you_mean, listed

if TYPE_CHECKING:
    from rewards import RewardFunction

NEURAL = "reward_model"
"""Name of the neural model's scores among those of functions, in metrics and in weights."""

PLAYED = "environment"
"""Name of the reward function that pays the scores of `--environment`."""

_OF_ENVIRONMENT: dict[str, tuple[str, ...]] = {
    "text_generation": (),
    "multi_objective": (),
    "preference_comparison": ("judge", "tie_margin"),
}
_OBJECTIVES = '{"correctness": 1.0, "formatting": 0.1}'


def is_multi_objective(config: Any) -> bool:
    """True if several objectives are weighted by name."""
    return config.env.rl_multi_objective or config.env.rl_env_type == "multi_objective"


def function_names(config: Any) -> list[str]:
    """Names of the reward functions: `--reward_functions`, or else the objectives that are functions, or else what pays the scores of
    the environment, if there is one and nothing else pays."""
    pays_nothing = not (config.reward.reward_functions or config.model.rm_checkpoint_path or is_multi_objective(config))
    if pays_nothing and config.env.environment is not None:
        return [PLAYED]
    if config.reward.reward_functions or not is_multi_objective(config):
        return list(config.reward.reward_functions)
    owners = (
        name if ":" in name else name.partition("/")[0] for name in parse_objectives(config.env.rl_reward_weights)
    )
    return [name for name in dict.fromkeys(owners) if name != NEURAL]


def parse_env_config(kind: str, text: str | None) -> dict[str, Any]:
    """`--rl_env_config` as keyword arguments of the environment.

    Keys of `preference_comparison`: `judge`, the name of the score that is compared (a function, `reward_model`, or a
    component; by default the weighted total), and `tie_margin`, the difference up to which two responses tie (default 0).

    Raises:
        UserError: it is not a JSON object, or has a key that the environment does not know or a value of the wrong type.
    """
    given = _json_object("--rl_env_config", text, '{"tie_margin": 0.1}')
    known = _OF_ENVIRONMENT[kind]
    for key, value in given.items():
        if key not in known:
            raise UserError(
                f"--rl_env_config: --rl_env_type {kind} has no setting {key!r}; its settings: {listed(known)}."
                f"{did_you_mean(key, known)}"
            )
        if key == "tie_margin" and not (_is_number(value) and value >= 0):
            raise UserError(f"--rl_env_config: tie_margin must be a number of at least 0, not {value!r}")
        if key == "judge" and not isinstance(value, str):
            raise UserError(f"--rl_env_config: judge must be the name of a score, not {value!r}")
    return given


def parse_objectives(text: str | None) -> dict[str, float]:
    """`--rl_reward_weights` as objective -> weight; empty if it is not given.

    Raises:
        UserError: it is not a JSON object of finite numbers, or all of them are 0.
    """
    given = _json_object("--rl_reward_weights", text, _OBJECTIVES)
    for name, weight in given.items():
        if not _is_number(weight):
            raise UserError(f"--rl_reward_weights: the weight of {name!r} must be a finite number, not {weight!r}")
    if text is not None and not any(given.values()):
        raise UserError(f"--rl_reward_weights {text}: without a weight nothing is paid; give some as in {_OBJECTIVES}")
    return {name: float(weight) for name, weight in given.items()}


def parse_reward_options(text: str | None) -> dict[str, dict[str, Any]]:
    """`--reward_options` as a mapping from function name to keyword arguments.

    Raises:
        UserError: it is not JSON, or not a mapping of mappings.
    """
    example = '{"gsm8k_reward_fn": {"format_score": 0.2}}'
    options = _json_object("--reward_options", text, example)
    if not all(isinstance(value, dict) for value in options.values()):
        raise UserError(f"--reward_options must look like {example}, not {text!r}")
    return options


def reward_options(config: Any) -> dict[str, dict[str, Any]]:
    """`--reward_options`, where `max_tokens` of a function that needs one (the length limit of a response) is `--max_new_tokens`
    unless it is given.

    Raises:
        UserError: they are no mapping of mappings, or a function can't be found.
    """
    from rewards import resolve

    options = parse_reward_options(config.reward.reward_options)
    for spec in function_names(config):
        function = resolve(spec)
        limit = function.parameters.get("max_tokens")
        if limit is not None and limit.default in (None, Parameter.empty):
            options[function.name] = {"max_tokens": config.rollout.max_new_tokens} | options.get(function.name, {})
    return options


def environment_of(config: Any) -> "RewardFunction | None":
    """The environment of the run, with its options; None if there is none.

    Raises:
        UserError: it can't be found, is none, or takes no such option.
    """
    if config.env.environment is None:
        return None
    from rewards import resolve_environment

    return resolve_environment(config.env.environment, options=parse_reward_options(config.reward.reward_options))


def reads_tags(config: Any) -> bool:
    """True if a reward function reads the tags of responses, and so needs prompts that ask for them.

    Raises:
        UserError: a function can't be found.
    """
    from rewards import resolve

    return any("tags" in resolve(spec).parameters for spec in function_names(config))


def _json_object(flag: str, text: str | None, example: str) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        given = parse_json(text)
    except ValueError as error:
        raise UserError(f"{flag} is not valid JSON ({error}): {text!r:.200}; it must look like {example}") from None
    if not isinstance(given, dict):
        raise UserError(f"{flag} must be a JSON object like {example}, not {text!r}")
    return given


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < float("inf")
