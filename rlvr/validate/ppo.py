"""The settings of a PPO run, checked before anything is loaded; and its batch arithmetic.

Rules about one setting are beside its field, and `rlvr.validate.settings` applies them. Here are the rules about several settings.
"""

from collections.abc import Collection
from dataclasses import dataclass
from importlib.util import find_spec

from rlvr.config import Config
from rlvr.config.catalog import Place
from rlvr.config.conditions import (
    WITHOUT_LOGPROBS,
    correction_of,
    estimator_of,
    estimators_with,
    given_estimator,
    gives_logprobs,
    has_critic,
    kl_kind_of,
)
from rlvr.errors import UserError, listed
from rlvr.rollout.registry import check_engine
from rlvr.validate.common import check_micro_batch, check_results
from rlvr.validate.lora import lora_settings
from rlvr.validate.ray import check_ray
from rlvr.validate.rewards import check_rewards
from rlvr.validate.settings import check_ranges, check_unread


def check_config(config: Config, flags: Collection[Place] = ()) -> None:
    """Refuse values out of range, settings that exclude each other, settings that nothing reads, and missing packages.

    Args:
        config: the settings.
        flags: the settings that flags gave; see `rlvr.validate.settings`.

    Raises:
        UserError: says what was given, what is allowed and what to do.
    """
    check_ranges(config)
    _check_estimator(config)
    _check_shared_trunk(config)
    _check_float32_head(config)
    _check_losses(config)
    _check_dynamic_sampling(config)
    check_rewards(config)
    check_unread(config, flags)
    check_ray(config)
    check_results(config)
    _check_engine(config)
    _check_sampled_logprobs(config)
    _check_mismatch(config)
    lora_settings(config.model)
    _check_lengths(config)
    _check_evaluation(config)


def _check_engine(config: Config) -> None:
    servers = config.rollout.vllm_servers
    if not servers:
        check_engine(config.rollout.engine)
        return
    for url in servers:
        if not url.startswith(("http://", "https://")):
            raise UserError(f"--vllm_servers {url}: give a URL, such as http://127.0.0.1:8000")
    if len(set(servers)) < len(servers):
        raise UserError(f"--vllm_servers names a server twice: {listed(servers)}")
    if config.ray.ray:
        raise UserError(
            "--vllm_servers does not go with --ray, whose rollout workers have a vLLM each (--num_rollout_workers): take one of the two"
        )
    if find_spec("httpx") is None:
        raise UserError("--vllm_servers needs httpx: pip install 'rlvr[vllm-servers]'")


def _check_estimator(config: Config) -> None:
    estimator, given = estimator_of(config), given_estimator(config)
    if estimator.groups and config.rollout.num_generations < 2:
        raise UserError(
            f"{given} compares the responses to one prompt, and --num_generations is {config.rollout.num_generations}: give at "
            f"least 2 (8 is usual), or choose one that needs one: {estimators_with(groups=False)}"
        )
    if estimator.greedy and config.rollout.engine == "replay":
        raise UserError(f"{given} samples a greedy response, which --engine replay can't; choose another estimator")
    if estimator.greedy and config.reward.reward_aggregation != "sum":
        raise UserError(
            f"--reward_aggregation {config.reward.reward_aggregation} makes scores of different responses incomparable with "
            f"that of the greedy one, which {given} compares them with: use sum"
        )
    if estimator.score_norms and config.algo.old_logprobs == "sampled":
        raise UserError(
            f"{given} goes by the probabilities of all words, which --old_logprobs sampled does without: take --old_logprobs recompute"
        )
    if not estimator.critic and config.algo.truncated == "bootstrap":
        raise UserError(
            f"--truncated bootstrap continues a cut response by the critic's value, and {given} has no critic: use "
            f"terminal or mask, or {estimators_with(critic=True)}"
        )


def _check_shared_trunk(config: Config) -> None:
    if not config.model.share_trunk:
        return
    if not has_critic(config):
        raise UserError(
            f"--share_trunk puts a value head on the actor, and {given_estimator(config)} reads no values: leave it out, or "
            f"choose one that does: {estimators_with(critic=True)}"
        )
    if config.algo.old_logprobs == "sampled":
        raise UserError(
            "--old_logprobs sampled saves a forward pass of the actor, which --share_trunk makes anyway for the values: "
            "leave one of them out"
        )


def _check_float32_head(config: Config) -> None:
    if not config.model.float32_head:
        return
    if config.parallel.plugin in ("3d", "gemini", "gemini_auto"):
        raise UserError(
            f"--float32_head: --plugin {config.parallel.plugin} replaces the model's head or its weights by its own; take ddp, a ZeRO plugin or "
            "fsdp, or leave it out"
        )
    if config.rollout.engine == "vllm":
        raise UserError(
            "--float32_head: vLLM has a head of its own, which stays in the model's precision; take --engine hf, generate or paged, or "
            "leave it out"
        )


def _check_losses(config: Config) -> None:
    a = config.algo
    kl_kind_of(config)  # refuses an estimate whose gradient is wrong in its place
    if a.kl_target is not None and not a.kl_coef:
        raise UserError(
            f"--kl_target {a.kl_target} adapts the coefficient by factors, and --kl_coef 0 stays 0: begin with one above 0, "
            "such as 0.01, or leave --kl_target out"
        )
    if a.ratio == "sequence":
        _check_sequence_ratio(config)
    if a.clip_cov_low >= a.clip_cov_high:
        raise UserError(
            f"--clip_cov_low {a.clip_cov_low:g} and --clip_cov_high {a.clip_cov_high:g} leave no covariance between them: give a lower "
            "and a higher one"
        )
    if a.entropy_control == "top_entropy" and a.old_logprobs == "sampled":
        raise UserError(
            "--entropy_control top_entropy goes by the tokens' entropies, which --old_logprobs sampled does without: take --old_logprobs "
            "recompute"
        )
    if config.train.disable_loss_mask:
        raise UserError("--disable_loss_mask would train on padding, which is never right; leave it out")
    if a.ptx_coef and not config.data.ptx_dataset:
        raise UserError(f"--ptx_coef {a.ptx_coef} needs --ptx_dataset; give one, or leave --ptx_coef out")
    if config.data.ptx_dataset and not a.ptx_coef:
        raise UserError("--ptx_dataset has no effect at --ptx_coef 0; give a coefficient, or leave the data out")


def _check_sequence_ratio(config: Config) -> None:
    a = config.algo
    if a.entropy_control != "off":
        raise UserError(
            f"--entropy_control {a.entropy_control} chooses single tokens, which --ratio sequence moves as one; leave one of them out"
        )
    if estimator_of(config).per_token:
        raise UserError(
            f"--ratio sequence moves a response as one, and {given_estimator(config)} gives its tokens different advantages: "
            f"use --ratio token, or one of {estimators_with(per_token=False)}"
        )
    if a.loss_reduction != "sequence_mean":
        raise UserError(
            f"--ratio sequence needs --loss_reduction sequence_mean, not {a.loss_reduction}, which weighs single tokens"
        )
    if a.policy_loss != "ppo":
        raise UserError(
            f"--policy_loss {a.policy_loss} is made for the ratios of tokens, and --ratio sequence has one for a response: leave one of "
            "them out"
        )
    correction = correction_of(config)
    if correction.how != "none" and correction.level != "sequence":
        raise UserError(
            f"--mismatch_level {correction.level} weighs single tokens, which --ratio sequence moves as one; give --mismatch_level "
            "sequence, or leave it out"
        )


def _check_dynamic_sampling(config: Config) -> None:
    if not config.algo.dynamic_sampling:
        return
    if config.rollout.num_generations < 2:
        raise UserError(
            f"--dynamic_sampling compares the responses to one prompt, and --num_generations is "
            f"{config.rollout.num_generations}: give at least 2, or leave it out"
        )
    if config.rollout.engine == "replay":
        raise UserError("--dynamic_sampling asks for further responses; --engine replay has only those of the data")


def _check_sampled_logprobs(config: Config) -> None:
    engine, sampled = config.rollout.engine, config.algo.old_logprobs == "sampled"
    if sampled and engine in WITHOUT_LOGPROBS:
        raise UserError(
            f"--old_logprobs sampled: --engine {engine} does not give the logprobs that it samples with; take --engine hf, or "
            "--old_logprobs recompute"
        )
    if sampled and (config.rollout.top_k or config.rollout.top_p < 1):
        raise UserError("--old_logprobs sampled needs the whole distribution: leave --top_k and --top_p out")


def _check_mismatch(config: Config) -> None:
    c, engine = correction_of(config), config.rollout.engine
    if c.how == "none":
        return
    asked = f"--mismatch_correction {c.how}"
    if config.algo.old_logprobs == "sampled":
        raise UserError(
            f"{asked} weighs recomputed logprobs against sampled ones: take --old_logprobs recompute, or --mismatch_correction none"
        )
    if not gives_logprobs(config):
        cut = " with --top_k or --top_p" if engine not in WITHOUT_LOGPROBS else ""
        raise UserError(
            f"{asked} has no effect with --engine {engine}, which does not give the probabilities that it sampled with{cut}: take "
            "--engine hf, or --mismatch_correction none"
        )
    if c.how == "truncate" and c.level not in ("token", "sequence"):
        raise UserError(
            f"{asked} weighs by the ratio itself, and --mismatch_level {c.level} is a mean, which only tells what to leave out: give "
            "--mismatch_correction mask, or --mismatch_level token or sequence"
        )
    inside = c.low < c.high and (c.how == "truncate" or c.low <= 1 <= c.high)
    if not inside:
        raise UserError(
            f"--mismatch_low {c.low:g} and --mismatch_high {c.high:g} leave out what agrees, whose ratio is 1: give bounds below and "
            "above it"
        )


def _check_lengths(config: Config) -> None:
    r = config.rollout
    if r.max_new_tokens >= r.max_length:
        raise UserError(
            f"--max_new_tokens {r.max_new_tokens} leaves no room for a prompt within --max_length {r.max_length}: raise the "
            "latter"
        )
    check_micro_batch(config.train.micro_batch_tokens, r.max_length, f"--max_length {r.max_length}")


def _check_evaluation(config: Config) -> None:
    e, sources = config.eval, config.data.eval_datasets
    if len(set(sources)) < len(sources):
        raise UserError(f"--eval_datasets {' '.join(sources)}: a data set is named twice; name it once")
    if e.eval_generations > 1 and e.eval_temperature == 0:
        raise UserError(
            f"--eval_generations {e.eval_generations} at --eval_temperature 0 gives one response several times: give a "
            "temperature, such as 0.7 or 1"
        )


@dataclass(frozen=True)
class BatchPlan:
    """The batch arithmetic of a run.

    Attributes:
        prompts_per_step: prompts in one collect step, over all processes.
        samples_per_episode: responses in one episode, over all processes, as far as the buffers hold them.
        steps_per_epoch: optimizer steps in one pass over the buffer.
        total_steps: optimizer steps of the run.
        actor_steps: those in which the actor learns, so without the critic's warm-up and pretraining.
        critic_steps: steps of the critic's own optimizer, several in each of the run's where `--critic_steps` asks for them.
        num_episodes: episodes of the run, including those that pretrain the critic.
    """

    prompts_per_step: int
    samples_per_episode: int
    steps_per_epoch: int
    total_steps: int
    actor_steps: int
    critic_steps: int
    num_episodes: int


def plan_batches(config: Config, world_size: int) -> BatchPlan:
    """The batch arithmetic of these settings on so many processes.

    Raises:
        UserError: sizes that don't divide; the message shows the arithmetic.
    """
    r, t = config.rollout, config.train
    unit = r.num_generations * world_size  # the responses to one prompt stay on one process (pitfall A28)
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
    pretraining = config.algo.value_pretraining_episodes
    episodes = t.num_episodes + pretraining
    total = episodes * t.num_update_steps * steps
    alone = max(pretraining * t.num_update_steps * steps, config.algo.critic_warmup_steps)
    if alone >= total:
        raise UserError(
            f"--critic_warmup_steps {config.algo.critic_warmup_steps} leaves the actor none of the run's {total} optimizer "
            "steps: give fewer, or raise --num_episodes"
        )
    of_critic = total * min(t.critic_steps, mini_batch)  # a step has at least one sample
    prompts = r.experience_batch_size // r.num_generations
    return BatchPlan(prompts, samples, steps, total, total - alone, of_critic, episodes)
