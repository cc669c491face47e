"""When each setting of a PPO run is read (`rlvr.checks.unread` says what comes of it)."""

from collections.abc import Collection

from rlvr.checks.unread import Rule, refuse_unread
from rlvr.checks.unread_parallel import PARALLEL
from rlvr.checks.unread_ray import ON_RAY
from rlvr.checks.unread_results import RESULTS
from rlvr.config import Config, base_config, trains_on_builtin
from rlvr.config.catalog import Place
from rlvr.core.advantages import Estimator, estimator_names, get_estimator
from rlvr.models.adapter import is_adapter
from rlvr.reward_settings import function_names, is_multi_objective

BUILTIN = "builtin"


def check_unread(config: Config, flags: Collection[Place] = ()) -> None:
    """Refuse settings of the user that nothing reads; `flags` are those that flags gave.

    Raises:
        UserError: names the first such setting, says why it has no effect and what to do.
    """
    refuse_unread(config, untouched(config), RULES, flags)


def untouched(config: Config) -> Config:
    """What the settings would be, had the user given none but model and preset."""
    return base_config({"model": {"pretrain": config.model.pretrain}, "algo": {"preset": config.algo.preset}})


def _estimator(c: Config) -> Estimator:
    return get_estimator(c.algo.estimator)


def _has_critic(c: Config) -> bool:
    return _estimator(c).critic


def _source(c: Config) -> str:
    """The estimator as the user said it."""
    preset = f"--preset {c.algo.preset}: estimator" if c.algo.preset else "--estimator"
    return f"{preset} {c.algo.estimator}"


def _those(**needs: bool) -> str:
    """Names of the estimators with these properties."""
    found = (get_estimator(name) for name in estimator_names())
    return ", ".join(e.name for e in found if all(getattr(e, need) == value for need, value in needs.items()))


def runs_workers(c: Config) -> bool:
    """Whether reward functions run in processes of their own."""
    if c.reward.reward_workers is not None:
        return c.reward.reward_workers > 0
    from rewards import names, resolve

    own = [n for n in function_names(c) if n in names()]
    own = [n for n in own if resolve(n).function.__module__.startswith("rewards.functions.")]
    return len(own) < len(function_names(c))


def _pays_neural(c: Config) -> bool:
    return c.model.rm_checkpoint_path is not None


_NO_NEURAL = ": it is for a neural reward model, and there is none"


def _with_neural(c: Config) -> str:
    return "Leave it out, or give --rm_checkpoint_path"


def _reads_files(c: Config) -> bool:
    return not trains_on_builtin(c.data) or any(source != BUILTIN for source in c.data.eval_datasets)


def _evaluates(c: Config) -> bool:
    return bool(c.data.eval_datasets) or trains_on_builtin(c.data)


def _samples(c: Config) -> bool:
    return c.rollout.engine != "replay"


def _replayed(c: Config) -> str:
    return " with --engine replay, which takes responses from the data"


def _no_critic(c: Config) -> str:
    return f": {_source(c)} has no critic"


def _has_own_critic(c: Config) -> bool:
    return _has_critic(c) and not c.model.share_trunk


def _no_own_critic(c: Config) -> str:
    if not _has_critic(c):
        return _no_critic(c)
    return (
        " with --share_trunk, which does without a critic of its own: its value head starts from --checkpoint_path, if one "
        "lies there, and learns at --lr"
    )


def _with_critic(c: Config) -> str:
    return f"Leave it out, or choose one that has: {_those(critic=True)}"


RULES = (
    Rule("model", ("critic_checkpoint_path",), _has_own_critic, _no_own_critic, _with_critic),
    Rule(
        "model",
        ("ref_model",),
        lambda c: c.algo.kl_coef > 0,
        lambda c: " at --kl_coef 0",
        lambda c: "Leave it out, or give a coefficient",
    ),
    Rule(
        "model",
        ("rm_pretrain",),
        lambda c: _has_own_critic(c) or is_adapter(c.model.rm_checkpoint_path),  # whose base it is then
        _no_own_critic,
        _with_critic,
    ),
    Rule("train", ("critic_lr",), _has_own_critic, _no_own_critic, _with_critic),
    Rule(
        "algo",
        ("critic_warmup_steps", "value_pretraining_episodes"),
        _has_own_critic,
        _no_own_critic,
        _with_critic,
        off=(0,),
    ),
    Rule(
        "algo",
        ("critic_lam", "lam_alpha", "value_clip", "vf_coef"),
        _has_critic,
        _no_critic,
        _with_critic,
        off=(None, 0),
    ),
    Rule("algo", ("lam",), _has_critic, _no_critic, _with_critic),
    Rule(
        "algo",
        ("lam",),
        lambda c: c.algo.lam_alpha is None,
        lambda c: f": --lam_alpha {c.algo.lam_alpha} gives each length its own",
        lambda c: "Leave one out",
    ),
    Rule(
        "algo",
        ("gamma", "whiten_rewards"),
        lambda c: _estimator(c).per_token,
        lambda c: f": {_source(c)} gives a response one advantage",
        lambda c: f"Leave it out, or choose one that looks at tokens: {_those(per_token=True)}",
        off=(1.0, False),
    ),
    Rule(
        "algo",
        ("kl_estimator", "kl_in"),
        lambda c: c.algo.kl_coef > 0,
        lambda c: " at --kl_coef 0",
        lambda c: "Leave it out, or give a coefficient",
    ),
    Rule(
        "algo",
        ("kl_horizon",),
        lambda c: c.algo.kl_target is not None,
        lambda c: " without --kl_target",
        lambda c: "Leave it out, or give a target",
    ),
    Rule(
        "algo",
        ("positive_threshold",),
        lambda c: c.algo.positive_lm_coef > 0,
        lambda c: " at --positive_lm_coef 0",
        lambda c: "Leave it out, or give a coefficient (VAPO: 0.1)",
    ),
    Rule(
        "algo",
        ("max_refills",),
        lambda c: c.algo.dynamic_sampling,
        lambda c: " without --dynamic_sampling",
        lambda c: "Leave it out, or give --dynamic_sampling",
    ),
    Rule(
        "data",
        ("ptx_batch_size",),
        lambda c: bool(c.data.ptx_dataset),
        lambda c: " without --ptx_dataset",
        lambda c: "Leave it out, or give --ptx_dataset and --ptx_coef",
    ),
    Rule(
        "data",
        ("question_column", "answer_column"),
        _reads_files,
        lambda c: ": the built-in problems have no columns",
        lambda c: "Leave it out, or name your data: --prompt_dataset",
    ),
    Rule(
        "reward",
        ("reward_timeout_s", "reward_memory_mb", "max_reward_failures"),
        runs_workers,
        lambda c: ": the reward functions run in the training process, where nothing can end them",
        lambda c: "Leave it out, or give --reward_workers N (1 or more)",
    ),
    Rule(
        "reward", ("rm_weight", "reward_normalisation"), _pays_neural, lambda c: _NO_NEURAL, _with_neural, off=("off",)
    ),
    Rule(
        "reward",
        ("reward_weights", "rm_weight"),
        lambda c: not is_multi_objective(c),
        lambda c: " with several objectives, whose weights --rl_reward_weights gives by name",
        off=([],),
    ),
    Rule(
        "env",
        ("rl_reward_weights",),
        is_multi_objective,
        lambda c: " without --rl_multi_objective (or --rl_env_type multi_objective)",
        lambda c: "Leave it out, or give that",
    ),
    Rule(
        "env",
        ("rl_env_config",),
        lambda c: c.env.rl_env_type is not None,
        lambda c: " without --rl_env_type, whose settings it holds",
        lambda c: "Leave it out, or give that",
    ),
    Rule("rollout", ("top_k", "top_p"), _samples, _replayed, off=(0, 1.0)),
    Rule(
        "train",
        ("offload_inference_models",),
        lambda c: c.algo.kl_coef > 0 or c.model.rm_checkpoint_path is not None,
        lambda c: " at --kl_coef 0: there is no reference model",
    ),
    *PARALLEL,
    Rule(
        "eval",
        ("eval_interval", "eval_samples", "eval_generations", "eval_temperature"),
        _evaluates,
        lambda c: ": there are no held-out problems",
        lambda c: "Leave it out, or give --eval_datasets",
    ),
    Rule("eval", ("eval_generations",), _samples, _replayed, off=(1,)),
    Rule("eval", ("eval_temperature",), _samples, _replayed),
    *ON_RAY,
    *RESULTS,
    Rule(
        "data",
        ("prompt_dataset",),
        lambda c: c.data.prompt_csv_url is None,
        lambda c: " with --prompt_csv_url, which names the data",
        lambda c: "Leave one out",
    ),
)  # fmt: skip
