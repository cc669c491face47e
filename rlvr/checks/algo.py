"""Settings of estimators and losses that don't go together. Those that nothing would read: `rlvr.checks.unread_ppo`."""

from rlvr.config import Config
from rlvr.core.advantages import Estimator, estimator_names, get_estimator
from rlvr.errors import UserError


def check_algo(config: Config) -> None:
    """Refuse combinations that can't work and settings without effect.

    Raises:
        UserError: says what was given, what is allowed and what to do.
    """
    a = config.algo
    try:
        estimator = get_estimator(a.estimator)
    except ValueError as error:
        raise UserError(f"--estimator: {error}") from None
    _check_estimator(config, estimator)
    _check_shared_trunk(config, estimator)
    _check_divergence(config)
    _check_losses(config, estimator)
    if a.dynamic_sampling and config.rollout.num_generations < 2:
        raise UserError(
            f"--dynamic_sampling compares the responses to one prompt, and --num_generations is "
            f"{config.rollout.num_generations}: give at least 2, or leave it out"
        )
    if a.dynamic_sampling and config.rollout.engine == "replay":
        raise UserError("--dynamic_sampling asks for further responses; --engine replay has only those of the data")


def _check_estimator(config: Config, estimator: Estimator) -> None:
    a, name, source = config.algo, estimator.name, _source(config, "estimator")
    if estimator.groups and config.rollout.num_generations < 2:
        raise UserError(
            f"{source} {name} compares the responses to one prompt, and --num_generations is "
            f"{config.rollout.num_generations}: give at least 2 (8 is usual), or choose one that needs one: "
            f"{_those(groups=False)}"
        )
    if estimator.greedy and config.rollout.engine == "replay":
        raise UserError(
            f"{source} {name} samples a greedy response, which --engine replay can't; choose another estimator"
        )
    if estimator.greedy and config.reward.reward_aggregation != "sum":
        raise UserError(
            f"--reward_aggregation {config.reward.reward_aggregation} makes scores of different responses incomparable with "
            f"that of the greedy one, which {source} {name} compares them with: use sum"
        )
    if estimator.critic:
        return
    for flag in ("critic_warmup_steps", "value_pretraining_episodes", "critic_lam", "lam_alpha"):
        if getattr(a, flag):  # perhaps from a preset whose estimator was replaced
            raise UserError(
                f"--{flag} {getattr(a, flag)} needs a critic, and {source} {name} has none: give --{flag} "
                f"{getattr(Config().algo, flag)}, or choose an estimator that has one: {_those(critic=True)}"
            )
    if a.truncated == "bootstrap":
        raise UserError(
            f"--truncated bootstrap continues a cut response by the critic's value, and {source} {name} has no critic: use "
            f"terminal or mask, or {_those(critic=True)}"
        )


def _check_shared_trunk(config: Config, estimator: Estimator) -> None:
    if not config.model.share_trunk:
        return
    if not estimator.critic:
        raise UserError(
            f"--share_trunk puts a value head on the actor, and {_source(config, 'estimator')} {estimator.name} reads no "
            f"values: leave it out, or choose one that does: {_those(critic=True)}"
        )
    for flag in ("critic_warmup_steps", "value_pretraining_episodes"):
        if getattr(config.algo, flag):  # perhaps from a preset
            raise UserError(
                f"--{flag} {getattr(config.algo, flag)} is for a critic of its own, which --share_trunk does without: give "
                f"--{flag} 0, or leave --share_trunk out"
            )
    if config.algo.old_logprobs == "sampled":
        raise UserError(
            "--old_logprobs sampled saves a forward pass of the actor, which --share_trunk makes anyway for the values: "
            "leave one of them out"
        )


def _check_divergence(config: Config) -> None:
    a = config.algo
    if a.kl_target is None:
        return
    if not a.kl_target > 0:
        raise UserError(
            f"--kl_target {a.kl_target}: must be above 0 (nats for a response), or left out for a fixed coefficient"
        )
    if not a.kl_coef:
        raise UserError(
            f"--kl_target {a.kl_target} adapts the coefficient by factors, and --kl_coef 0 stays 0: begin with one above 0, "
            "such as 0.01, or leave --kl_target out"
        )


def _check_losses(config: Config, estimator: Estimator) -> None:
    a = config.algo
    for flag, value, least in (("dual_clip", a.dual_clip, 1.0), ("tis_cap", a.tis_cap, 0.0)):
        if value is not None and not value > least:
            raise UserError(f"--{flag} {value}: must be above {least:g}, or left out")
    if a.eps_clip_high is not None and a.eps_clip_high < 0:
        raise UserError(f"--eps_clip_high {a.eps_clip_high}: must be at least 0, or left out")
    if a.lam_alpha is not None and not a.lam_alpha > 0:
        raise UserError(f"--lam_alpha {a.lam_alpha}: must be above 0, or left out for a fixed --lam")
    if a.critic_lam is not None and not 0 <= a.critic_lam <= 1:
        raise UserError(f"--critic_lam {a.critic_lam}: must lie between 0 and 1")
    if a.ratio == "sequence":
        _check_sequence_ratio(config, estimator)


def _check_sequence_ratio(config: Config, estimator: Estimator) -> None:
    a = config.algo
    if estimator.per_token:
        raise UserError(
            f"--ratio sequence moves a response as one, and {_source(config, 'estimator')} {estimator.name} gives its tokens "
            f"different advantages: use --ratio token, or one of {_those(per_token=False)}"
        )
    if a.loss_reduction != "sequence_mean":
        raise UserError(
            f"--ratio sequence needs --loss_reduction sequence_mean, not {a.loss_reduction}, which weighs single tokens"
        )
    if a.tis_cap is not None:
        raise UserError("--tis_cap weighs single tokens, which --ratio sequence moves as one; leave one of them out")


def _source(config: Config, name: str) -> str:
    """The flag, or the preset that it comes from."""
    return f"--preset {config.algo.preset}: {name}" if config.algo.preset else f"--{name}"


def _those(**needs: bool) -> str:
    """Names of the estimators with these properties."""
    found = (get_estimator(name) for name in estimator_names())
    return ", ".join(e.name for e in found if all(getattr(e, need) == value for need, value in needs.items()))
