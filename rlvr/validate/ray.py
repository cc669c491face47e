"""Checks of a run on Ray: settings that don't go together, and batches that don't divide among its processes."""

from collections.abc import Mapping

from rlvr.config import Config
from rlvr.config.conditions import correction_of
from rlvr.errors import UserError

PLUGINS = ("ddp", "zero1", "zero2", "zero2_cpu", "gemini", "gemini_auto")
_WHAT = {
    "actor": "the actor",
    "critic": "the critic",
    "initial": "the reference model",
    "reward": "the reward model",
    "rollout": "generation",
}


def check_ray(config: Config) -> None:
    """Refuse combinations that can't work, before a cluster is asked.

    Raises:
        UserError: names the setting, and what is allowed.
    """
    r = config.ray
    if not r.ray:
        return
    if r.max_reward_workers < r.min_reward_workers:
        raise UserError(
            f"--max_reward_workers {r.max_reward_workers} is less than --min_reward_workers {r.min_reward_workers}: raise the "
            "former or lower the latter"
        )
    if config.parallel.plugin not in PLUGINS:
        raise UserError(
            f"--plugin {config.parallel.plugin} does not go with --ray, whose roles hold whole models: give one of "
            f"{', '.join(PLUGINS)}, or run under torchrun without --ray"
        )
    if config.train.memory_limit is not None:
        raise UserError(
            "--memory_limit is that of a process with all roles, and does not go with --ray: give --micro_batch_tokens"
        )
    if r.one_step_off_policy:
        _check_off_policy(config)


def _check_off_policy(config: Config) -> None:
    if correction_of(config).how == "none":
        raise UserError(
            "--one_step_off_policy learns from responses of the policy before the last update, which --mismatch_correction none would "
            "leave uncorrected: give truncate or mask, or leave it out (truncate)"
        )
    if config.algo.dynamic_sampling:
        raise UserError(
            "--one_step_off_policy does not go with --dynamic_sampling, which draws prompts by what the responses were paid, "
            "and those are not there yet; leave one out"
        )
    if config.algo.estimator == "remax":
        raise UserError(
            "--one_step_off_policy does not go with --estimator remax, whose greedy responses are those of the present policy; "
            "choose another estimator"
        )


def check_shares(config: Config, processes: Mapping[str, int]) -> None:
    """Refuse batches that don't divide among the processes of each role.

    Raises:
        UserError: shows the arithmetic.
    """
    r, t = config.rollout, config.train
    for role, count in processes.items():
        if role == "reward":
            continue
        units = [("experience_batch_size", r.experience_batch_size, count * r.num_generations)]
        if role in ("actor", "critic"):
            units.append(("train_batch_size", t.train_batch_size, count))
        if role == "actor" and config.algo.ptx_coef:
            units.append(("ptx_batch_size", config.data.ptx_batch_size, count))
        for flag, value, unit in units:
            if value % unit:
                raise UserError(
                    f"--{flag} {value} does not divide among the {count} processes of {_WHAT[role]}: give a multiple of {unit}"
                )
