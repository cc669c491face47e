"""Checks of a run on Ray: settings that don't go together, and batches that don't divide among its processes."""

from collections.abc import Mapping

from rlvr.config import Config
from rlvr.config.conditions import correction_of
from rlvr.errors import UserError

PLUGINS = ("ddp", "zero1", "zero2", "zero2_cpu", "fsdp", "gemini", "gemini_auto")
_WHAT = {
    "actor": "the actor",
    "critic": "the critic",
    "initial": "the reference model",
    "reward": "the reward model",
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
            f"--plugin {config.parallel.plugin} does not go with --ray, which can't cut a model into stages or columns: give one of "
            f"{', '.join(PLUGINS)}, or run under torchrun without --ray"
        )
    if config.train.memory_limit is not None:
        raise UserError(
            "--memory_limit is that of a process with all roles, and does not go with --ray: give --micro_batch_tokens"
        )
    if r.max_staleness and correction_of(config).how == "none" and config.algo.old_logprobs == "recompute":
        raise UserError(
            f"--max_staleness {r.max_staleness} learns from responses of an earlier policy, which --mismatch_correction none would "
            "leave uncorrected: give truncate or mask, or leave it out (truncate); or take --old_logprobs sampled"
        )
    if r.partial_rollout_tokens >= config.rollout.max_new_tokens:
        raise UserError(
            f"--partial_rollout_tokens {r.partial_rollout_tokens}: no response is longer than --max_new_tokens {config.rollout.max_new_tokens}, "
            "so none would go on with other weights; give fewer, or leave it out"
        )
    if r.num_rollout_workers:
        _check_requests(config)


def _check_requests(config: Config) -> None:
    """Refuse workers that would never have anything to do."""
    r, workers = config.rollout, config.ray.num_rollout_workers
    # A request holds whole prompts, at least one.
    at_once = max(1, r.generation_batch_size // r.num_generations) * r.num_generations
    steps = config.train.num_collect_steps * (config.ray.max_staleness + 1) if config.ray.max_staleness else 1
    requests = steps * -(-r.experience_batch_size // at_once)
    if workers > requests:
        size = max(1, r.experience_batch_size * steps // workers // r.num_generations) * r.num_generations
        raise UserError(
            f"--num_rollout_workers {workers}: there are at most {requests} requests at a time (--experience_batch_size "
            f"{r.experience_batch_size} in parts of --generation_batch_size {r.generation_batch_size}), and some workers would never "
            f"have any: give --generation_batch_size {size}, or --num_rollout_workers {requests}"
        )


def check_shares(config: Config, processes: Mapping[str, int]) -> None:
    """Refuse batches that don't divide among the processes of each role.

    Raises:
        UserError: shows the arithmetic.
    """
    r, t = config.rollout, config.train
    for role, count in processes.items():
        if role in ("reward", "rollout"):  # they take what is there, in any number
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
