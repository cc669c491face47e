"""Settings that don't go together are found before anything is loaded."""

from collections.abc import Collection
from dataclasses import dataclass

from rlvr.checks.algo import check_algo
from rlvr.checks.lora import lora_settings
from rlvr.checks.ray import check_ray
from rlvr.checks.results import check_results
from rlvr.checks.rewards import check_rewards
from rlvr.checks.unread_ppo import check_unread
from rlvr.config import Config
from rlvr.config.catalog import Place
from rlvr.errors import UserError
from rlvr.rollout.available import WITHOUT_LOGPROBS, check_engine


@dataclass(frozen=True)
class BatchPlan:
    """The batch arithmetic of a run.

    Attributes:
        prompts_per_step: prompts in one collect step, over all processes.
        samples_per_episode: responses in one episode, over all processes, as far as the buffers hold them.
        steps_per_epoch: optimizer steps in one pass over the buffer.
        total_steps: optimizer steps of the run.
        actor_steps: those in which the actor learns: not the critic's warm-up and pretraining.
        num_episodes: episodes of the run, with those that pretrain the critic.
    """

    prompts_per_step: int
    samples_per_episode: int
    steps_per_epoch: int
    total_steps: int
    actor_steps: int
    num_episodes: int


def plan_batches(config: Config, world_size: int) -> BatchPlan:
    """How batches, processes and optimizer steps divide.

    Raises:
        UserError: sizes that don't divide; the message shows the arithmetic.
    """
    r, t = config.rollout, config.train
    unit = r.num_generations * world_size
    if r.experience_batch_size % unit:
        raise UserError(
            f"--experience_batch_size {r.experience_batch_size} does not divide among {world_size} process(es) with "
            f"--num_generations {r.num_generations}: give a multiple of {unit}"
        )
    replicas = max(1, world_size // config.parallel.replica_size)
    if t.train_batch_size % replicas:
        what = "processes" if replicas == world_size else f"copies of the model on {world_size} processes"
        raise UserError(
            f"--train_batch_size {t.train_batch_size} does not divide among {replicas} {what}: give a multiple of {replicas}"
        )
    local = t.num_collect_steps * r.experience_batch_size // replicas
    if t.buffer_limit:
        local = min(local, t.buffer_limit)
    samples, mini_batch = local * replicas, t.train_batch_size * t.accumulation_steps
    if samples % mini_batch:
        raise UserError(
            f"an episode has {samples} samples (--num_collect_steps {t.num_collect_steps} x --experience_batch_size "
            f"{r.experience_batch_size}, as far as --buffer_limit allows), which do not divide into optimizer steps of "
            f"{mini_batch} (--train_batch_size {t.train_batch_size} x --accumulation_steps {t.accumulation_steps}): choose "
            f"sizes so that the first is a multiple of the second"
        )
    steps = samples // mini_batch
    of_critic = config.algo.value_pretraining_episodes
    episodes = t.num_episodes + of_critic
    total = episodes * t.num_update_steps * steps
    alone = max(of_critic * t.num_update_steps * steps, config.algo.critic_warmup_steps)
    if alone >= total:
        raise UserError(
            f"--critic_warmup_steps {config.algo.critic_warmup_steps} leaves the actor none of the run's {total} optimizer "
            "steps: give fewer, or raise --num_episodes"
        )
    return BatchPlan(r.experience_batch_size // r.num_generations, samples, steps, total, total - alone, episodes)


def check_config(config: Config, flags: Collection[Place] = ()) -> None:
    """Refuse values out of range, settings that exclude each other, what nothing reads, and what is not available.

    Args:
        config: the settings.
        flags: those that flags gave; see `rlvr.checks.unread_ppo`.

    Raises:
        UserError: says what was given, what is allowed and what to do.
    """
    _check_ranges(config)
    check_algo(config)
    check_rewards(config)
    check_unread(config, flags)
    check_ray(config)
    check_results(config)
    check_engine(config.rollout.engine)
    _check_sampled_logprobs(config)
    if config.algo.tis_cap is not None and config.rollout.engine in WITHOUT_LOGPROBS:
        raise UserError(
            f"--tis_cap has no effect with --engine {config.rollout.engine}, which does not give the probabilities that it "
            "sampled with: take --engine hf, or leave --tis_cap out"
        )
    lora_settings(config.model)
    _check_evaluation(config)
    if config.train.disable_loss_mask:
        raise UserError("--disable_loss_mask would train on padding, which is never right; leave it out")
    a = config.algo
    if a.ptx_coef and not config.data.ptx_dataset:
        raise UserError(f"--ptx_coef {a.ptx_coef} needs --ptx_dataset; give one, or leave --ptx_coef out")
    if config.data.ptx_dataset and not a.ptx_coef:
        raise UserError("--ptx_dataset has no effect at --ptx_coef 0; give a coefficient, or leave the data out")
    if config.rollout.max_new_tokens >= config.rollout.max_length:
        raise UserError(
            f"--max_new_tokens {config.rollout.max_new_tokens} leaves no room for a prompt within --max_length "
            f"{config.rollout.max_length}: raise the latter"
        )
    tokens = config.train.micro_batch_tokens
    if tokens is not None and tokens < config.rollout.max_length:
        raise UserError(
            f"--micro_batch_tokens {tokens} is less than one sequence may have (--max_length {config.rollout.max_length}): "
            "raise the former or lower the latter"
        )
    if config.ckpt.resume and config.ckpt.save_path is None:
        raise UserError("--resume needs --save_path, the folder of the run to go on with")


_AT_LEAST_1 = {
    "rollout": ("experience_batch_size", "num_generations", "max_new_tokens", "generation_batch_size"),
    "train": (
        "num_episodes",
        "num_collect_steps",
        "num_update_steps",
        "train_batch_size",
        "accumulation_steps",
        "chunk_tokens",
    ),
    "data": ("ptx_batch_size",),
    "eval": ("eval_samples", "eval_generations"),
    "ckpt": ("keep_checkpoints",),
    "algo": ("kl_horizon", "max_refills"),
}
_AT_LEAST_0: dict[str, tuple[str, ...]] = {
    "rollout": ("top_k",),
    "algo": (
        "kl_coef", "vf_coef", "ptx_coef", "eps_clip", "entropy_coef", "positive_lm_coef", "critic_warmup_steps",
        "value_pretraining_episodes",
    ),
    "train": ("lr", "critic_lr", "weight_decay", "grad_clip", "buffer_limit"),
    "ckpt": ("save_interval",),
    "eval": ("eval_interval", "eval_temperature"),
    "log": ("num_sample_generations",),
}  # fmt: skip


def _check_sampled_logprobs(config: Config) -> None:
    if config.algo.old_logprobs != "sampled":
        return
    if config.rollout.engine in WITHOUT_LOGPROBS:
        raise UserError(
            f"--old_logprobs sampled: --engine {config.rollout.engine} does not give the logprobs that it samples with; take "
            "--engine hf, or --old_logprobs recompute"
        )
    if config.rollout.top_k or config.rollout.top_p < 1:
        raise UserError("--old_logprobs sampled needs the whole distribution: leave --top_k and --top_p out")
    if config.algo.tis_cap is not None:
        raise UserError(
            "--tis_cap weighs recomputed logprobs against sampled ones: take --old_logprobs recompute, or no cap"
        )


def _check_evaluation(config: Config) -> None:
    e, sources = config.eval, config.data.eval_datasets
    if len(set(sources)) < len(sources):
        raise UserError(f"--eval_datasets {' '.join(sources)}: a data set is named twice; name it once")
    if e.eval_generations > 1 and e.eval_temperature == 0:
        raise UserError(
            f"--eval_generations {e.eval_generations} at --eval_temperature 0 gives one response several times: give a "
            "temperature, such as 0.7 or 1"
        )


def _check_ranges(config: Config) -> None:
    for least, table in ((1, _AT_LEAST_1), (0, _AT_LEAST_0)):
        for section, names in table.items():
            for name in names:
                value = getattr(getattr(config, section), name)
                if not value >= least:
                    raise UserError(f"--{name} {value}: must be at least {least}")
    for flag, value, low, high in (
        ("gamma", config.algo.gamma, 0, 1),
        ("lam", config.algo.lam, 0, 1),
        ("top_p", config.rollout.top_p, 0, 1),
    ):
        if not low <= value <= high:
            raise UserError(f"--{flag} {value}: must lie between {low} and {high}")
    if not config.rollout.temperature > 0:
        raise UserError(f"--temperature {config.rollout.temperature}: must be above 0; PPO needs sampled responses")
