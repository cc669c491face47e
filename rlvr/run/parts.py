"""From settings to the parts of a run: prompts, models, optimizers, boosted roles, sampling, evaluator.

One function for each part. `rlvr.run.assembly` joins them in one process; on Ray each role's processes (`rlvr.ray.roles`) make
their own, by the same functions.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rewards import resolve
from rewards.environment import TakeTurn
from rlvr.boost.boosted import Boosted
from rlvr.boost.consistency import digest, function_digest
from rlvr.boost.optimizer import make_optimizer
from rlvr.boost.plugins import make_booster, resolve_precision
from rlvr.boost.process import Replica
from rlvr.config import Config, trains_on_generated
from rlvr.config.reward_options import environment_of, function_names, reads_tags
from rlvr.core.advantages import get_estimator
from rlvr.data.curriculum import Curriculum, arms_of
from rlvr.data.problems import with_good_golds
from rlvr.data.prompts import Prompt, fingerprint, prepare_prompts
from rlvr.data.readers import draw_sample, read_training_problems
from rlvr.data.sampling import PromptSampler
from rlvr.data.supervised import SupervisedLoader, hold_out
from rlvr.errors import UserError
from rlvr.evaluation.evaluator import Evaluator
from rlvr.evaluation.prompts import EvalDataSettings, EvalPrompt, read_eval_prompts, short_dataset_names
from rlvr.models.actor import Actor, ActorWithValues, use_float32_head
from rlvr.models.backbone import prepare
from rlvr.models.critic import Critic
from rlvr.models.loading import load_backbone, load_causal_lm
from rlvr.models.lora import adapter_settings, apply_lora, copy_sharing, quantize_base, start_adapter
from rlvr.models.lora_config import LoraSettings, is_adapter
from rlvr.models.value_head import has_head
from rlvr.prompting.conversation import Conversation
from rlvr.prompting.lint import require_template
from rlvr.prompting.template import AS_IS
from rlvr.rollout.engine import Engine, Sampling
from rlvr.rollout.episodes import play
from rlvr.rollout.registry import make_engine
from rlvr.run.folder import run_state
from rlvr.scorers.build import pool_limits
from rlvr.validate.lora import lora_settings
from rlvr.validate.ppo import BatchPlan

HELD_OUT = "held_out"
"""Name of the data set that `--eval_share` makes."""


@dataclass(frozen=True)
class Prompts:
    """Prompts to train on and to evaluate on, and notes for the user, such as how many were dropped."""

    train: list[Prompt]
    test: list[EvalPrompt]
    notes: list[str]

    @property
    def fingerprint(self) -> str:
        """Changes when a training prompt changes: a resumed run must see the same data."""
        return fingerprint(self.train)

    @property
    def held_out_fingerprint(self) -> str:
        """Changes when a held-out prompt changes."""
        return fingerprint(asked.prompt for asked in self.test)


def template_name(config: Config) -> str:
    """The template that was named; prompts of `--prompt_csv_url` stay as they are unless a reward reads the format."""
    name = config.template.conversation_template_config
    plain = name == "auto" and config.data.prompt_csv_url is not None and not reads_tags(config)
    return AS_IS if plain else name


def make_prompts(config: Config, conversation: Conversation) -> Prompts:
    """Check the template; read, check and encode the problems.

    Raises:
        UserError: a template that would ruin training, or problems that can't be read, without usable answers, or all
            too long.
    """
    t, cuts = config.template, config.data.overlong_prompts == "truncate"
    notes = require_template(
        conversation,
        Path(conversation.template.source).name,
        stop=t.template_check == "stop",
        truncates=cuts,
        reads_tags=reads_tags(config),
    )
    problems = read_training_problems(config.data)
    functions = [resolve(name) for name in function_names(config)]
    problems = with_good_golds(problems, notes, functions)
    limit = config.rollout.max_length - config.rollout.max_new_tokens
    train = prepare_prompts(problems, conversation, limit, config.data.overlong_prompts)
    for count, what in ((train.dropped, "dropped"), (train.truncated, "cut")):
        if count:
            notes.append(f"{count} of {len(problems)} prompts {what}: longer than {limit} tokens")
    prompts, held_out = _hold_out(config, train.prompts)
    return Prompts(prompts, held_out + _read_held_out(config, conversation, limit, notes), notes)


def _hold_out(config: Config, prompts: Sequence[Prompt]) -> tuple[list[Prompt], list[EvalPrompt]]:
    """What is left to train on, and `--eval_share` of the prompts to evaluate on."""
    share, seed = config.data.eval_share, config.train.seed
    if not share:
        return list(prompts), []
    rest, apart = hold_out(prompts, share, seed, lambda prompt: prompt.problem.question)
    graded = [prompt for prompt in apart if prompt.problem.checkable]
    if not graded:
        raise UserError(
            f"--eval_share {share}: none of the {len(apart)} problems that were held out has a right answer to compare with; name the "
            "column that holds it (--answer_column NAME), or leave --eval_share out"
        )
    return rest, [EvalPrompt(HELD_OUT, prompt) for prompt in draw_sample(graded, config.eval.eval_samples, seed)]


def _read_held_out(config: Config, conversation: Conversation, limit: int, notes: list[str]) -> list[EvalPrompt]:
    """The prompts of all held-out data sets."""
    data, asked = config.data, list[EvalPrompt]()
    splits = data.prompt_dataset if trains_on_generated(data) and not data.eval_share else []
    sources = data.eval_datasets or splits
    how = EvalDataSettings(
        "--eval_datasets",
        max_prompt_tokens=limit,
        question_column=data.question_column,
        answer_column=data.answer_column,
        limit=config.eval.eval_samples,
        overlong=data.overlong_prompts,
    )
    for source, name in zip(sources, short_dataset_names(sources), strict=True):
        asked += read_eval_prompts(source, name, how, conversation, notes)
    return asked


@dataclass(frozen=True)
class Models:
    """The roles before they are boosted, with their optimizers and schedules.

    Attributes:
        critic: None if there is none of its own; then its optimizer and schedule are None too.
        initial_model: None unless a reference model of its own is needed.
        lora: settings of the adapters that learn; None if whole models do.
    """

    actor: Actor
    critic: Critic | None
    initial_model: Actor | None
    actor_optim: torch.optim.Optimizer
    critic_optim: torch.optim.Optimizer | None
    actor_lr_scheduler: Any
    critic_lr_scheduler: Any
    lora: LoraSettings | None


def make_models(config: Config, plan: BatchPlan, device: torch.device) -> Models:
    """Load actor, critic and reference; make optimizers, and schedules over the optimizer steps of each role.

    With LoRA, actor and critic share the base model's weights, and the reference is the actor with its adapter off.
    """
    lora = lora_settings(config.model)
    base = load_base(config)
    # Before the actor gets its adapter: the critic shares the base weights, and has an adapter of its own.
    trunk = copy_sharing(base.base_model) if lora is not None and has_critic(config) else None
    actor = make_actor(config, base, lora).to(device)
    initial = make_initial_model(config) if has_initial_model(config, lora) else None
    if initial is not None:
        check_same_vocabulary(initial.model, base)
    t, precision = config.train, resolve_precision(config.parallel.mixed_precision, device)
    # Each schedule spans the optimizer steps of its own role: the critic's warm-up steps are none of the actor's (pitfall A22).
    actor_optim, actor_schedule = make_optimizer(actor, t, t.lr, plan.actor_steps, precision)
    if not has_critic(config):
        return Models(actor, None, initial, actor_optim, None, actor_schedule, None, lora)
    critic = make_critic(config, trunk, lora).to(device)
    critic_optim, critic_schedule = make_optimizer(critic, t, t.critic_lr, plan.critic_steps, precision)
    return Models(actor, critic, initial, actor_optim, critic_optim, actor_schedule, critic_schedule, lora)


def _start(config: Config) -> str:
    """Name or folder of the weights that the actor starts from, adapters aside. By default the initial model has the same."""
    m = config.model
    return m.pretrain if is_adapter(m.checkpoint_path) else m.checkpoint_path or m.pretrain


def load_base(config: Config) -> PreTrainedModel:
    """The actor's language model as it was saved (or that in 4 bits), without this run's adapters."""
    m = config.model
    model = load_causal_lm(_start(config), flash_attention=m.use_flash_attn, trust_remote_code=m.trust_remote_code)
    if m.load_in_4bit:
        quantize_base(model)
    return use_float32_head(model) if m.float32_head else model


def make_initial_model(config: Config) -> Actor:
    """The initial model, from which the divergence is measured: `--ref_model`, or the actor's starting weights."""
    m = config.model
    reference = load_causal_lm(
        m.ref_model or _start(config), flash_attention=m.use_flash_attn, trust_remote_code=m.trust_remote_code
    )
    if m.float32_head:
        use_float32_head(reference)
    # As the actor is prepared, for the same arithmetic: where activations are recomputed, rows keep their padding.
    return Actor(prepare(reference, m.grad_checkpoint), config.train.chunk_tokens)


def check_same_vocabulary(reference: PreTrainedModel, actor: PreTrainedModel) -> None:
    """Raise `UserError` unless the reference model has all tokens of the actor's vocabulary."""
    compare_vocabularies(*(model.get_input_embeddings().num_embeddings for model in (reference, actor)))


def compare_vocabularies(reference: int, actor: int) -> None:
    """Raise `UserError` if the reference model's vocabulary is smaller than the actor's."""
    if reference < actor:
        raise UserError(
            f"--ref_model knows {reference} tokens and the actor writes {actor}: the divergence is measured token by token, so "
            "give a model with the actor's tokenizer"
        )


def has_critic(config: Config) -> bool:
    """True if the run has a critic of its own: the estimator reads values, and the actor does not give them."""
    return get_estimator(config.algo.estimator).critic and not config.model.share_trunk


def has_initial_model(config: Config, lora: LoraSettings | None) -> bool:
    """True if the run has a reference model of its own: it measures a divergence, and not from the actor with its adapter off."""
    return bool(config.algo.kl_coef) and (lora is None or bool(config.model.ref_model))


def make_actor(config: Config, base: PreTrainedModel, lora: LoraSettings | None) -> Actor:
    """The actor, with its adapter. With `--share_trunk` it has a value head, that of the run it starts from if there is one."""
    m = config.model
    start_adapter(base, lora, m.checkpoint_path, config.train.seed)
    model = prepare(base, m.grad_checkpoint)
    if not config.model.share_trunk:
        return Actor(model, config.train.chunk_tokens)
    actor = ActorWithValues(model, seed=config.train.seed, chunk_tokens=config.train.chunk_tokens)
    start = config.model.checkpoint_path
    if start and has_head(start):
        actor.value_head.load(start)
    return actor


def make_critic(config: Config, trunk: PreTrainedModel | None, lora: LoraSettings | None) -> Critic:
    """The critic: a saved one, or a base model with a new value head.

    Args:
        config: the run's settings.
        trunk: with LoRA, the actor's base model without its head; the critic's base unless the settings name another.
        lora: settings of its adapter; None if the whole critic learns.
    """
    m, t = config.model, config.train
    saved = m.critic_checkpoint_path
    # An adapter with a value head is a critic's; one without is a reward model's, which `Critic.from_pretrained` reads.
    own_adapter = saved if saved and is_adapter(saved) and has_head(saved) else None
    if saved and not own_adapter:
        critic = Critic.from_pretrained(saved)
    elif m.rm_pretrain or trunk is None:
        # The actor's start, as with LoRA: from other weights it needs many more responses to explain anything.
        critic = Critic(load_backbone(m.rm_pretrain or _start(config), m.trust_remote_code), seed=t.seed)
    else:
        critic = Critic(trunk, seed=t.seed)
    if m.load_in_4bit and critic.backbone is not trunk:
        quantize_base(critic.backbone)
    if own_adapter:
        apply_lora(critic.backbone, adapter_settings(own_adapter))
        critic.load_adapter(own_adapter)
    elif lora is not None:
        apply_lora(critic.backbone, lora, seed=t.seed)
    prepare(critic.backbone, m.grad_checkpoint)
    return critic


def boost_roles(config: Config, models: Models, device: torch.device) -> tuple[Boosted, Boosted | None]:
    """Actor and critic, each under a Booster of its own. Collective."""
    actor = boost(config, models.actor, models.actor_optim, models.actor_lr_scheduler, device)
    if models.critic is None:
        return actor, None
    assert models.critic_optim is not None
    return actor, boost(config, models.critic, models.critic_optim, models.critic_lr_scheduler, device)


def boost(
    config: Config, model: torch.nn.Module, optimizer: torch.optim.Optimizer, lr_scheduler: Any, device: torch.device
) -> Boosted:
    """A role under a Booster of its own, as the settings say. Collective."""
    clip = config.train.grad_clip
    precision = resolve_precision(config.parallel.mixed_precision, device)
    booster = make_booster(config.parallel, device, clip)
    return Boosted(booster, model, optimizer, lr_scheduler, grad_clip=clip, precision=precision)


def make_rollout_engine(
    config: Config,
    tokenizer: PreTrainedTokenizerBase,
    conversation: Conversation,
    precision: str,
    folder: Path = Path(),
    note: Callable[[str], None] = lambda text: None,
) -> Engine:
    """The engine that the settings ask for, with the environment that they ask for.

    Args:
        folder: of the run, through which vLLM servers are given weights.
        note: is told of servers that fail.

    Raises:
        UserError: an engine, or an environment, that can't be used.
    """
    r, environment, servers = config.reward, environment_of(config), config.rollout.vllm_servers
    if servers:
        from rlvr.rollout.vllm_servers import VLLMServersEngine

        passed = folder / "weights_for_vllm"
        made: Engine = VLLMServersEngine(tokenizer, servers, passed, config.parallel.dist_timeout, note)
    else:
        made = make_engine(config.rollout.engine, tokenizer)
    engine = play(
        made,
        conversation,
        environment,
        config.env.max_turns,
        workers=r.reward_workers or None,
        **pool_limits(r),
    )
    engine.autocast = precision == "bf16"
    return engine


def training_sampling(config: Config, conversation: Conversation) -> Sampling:
    """The sampling settings of training, with the template's stop tokens."""
    r = config.rollout
    return Sampling(
        max_new_tokens=r.max_new_tokens,
        temperature=r.temperature,
        top_k=r.top_k,
        top_p=r.top_p,
        batch_size=r.generation_batch_size,
        stop_ids=tuple(conversation.stop_ids),
        stop_strings=tuple(conversation.stop_strings),
    )


def make_sampler(config: Config, prompts: Sequence[Prompt], batch_size: int) -> PromptSampler:
    """The order of the prompts.

    Raises:
        UserError: a curriculum that the problems don't allow.
    """
    data, seed = config.data, config.train.seed
    if data.curriculum == "uniform":
        return PromptSampler(len(prompts), batch_size, seed)
    return Curriculum(
        arms_of([prompt.problem for prompt in prompts], data.curriculum_by),
        batch_size,
        seed,
        data.curriculum,
        target=data.curriculum_target,
        memory=data.curriculum_memory,
        even=data.curriculum_even,
    )


def make_ptx_loader(config: Config, replica: Replica, tokenizer: Any, conversation: Conversation) -> Any:
    """This replica's batches of the ptx data; None without one."""
    if not config.data.ptx_dataset:
        return None
    return SupervisedLoader(
        config.data.ptx_dataset,
        tokenizer,
        conversation=conversation,
        batch_size=config.data.ptx_batch_size,
        max_length=config.rollout.max_length,
        seed=config.train.seed,
        rank=replica.index,
        world_size=replica.count,
    )


def make_evaluator(
    config: Config, held_out: Sequence[EvalPrompt], engine: Engine, tokenizer: Any, conversation: Conversation
) -> Evaluator | None:
    """The evaluator of held-out problems, None if there are none. It samples without truncation, at `--eval_temperature`."""
    if not held_out:
        return None
    e = config.eval
    sampling = replace(training_sampling(config, conversation), temperature=e.eval_temperature, top_k=0, top_p=1.0)
    return Evaluator(held_out, engine, sampling, tokenizer, conversation, samples=e.eval_generations)


def describe_run(config: Config, prompts: Prompts, lora: LoraSettings | None) -> dict[str, Any]:
    """The identity of a run, which all its sessions must share: settings, data and adapters; and the code of its rewards, which may
    change."""
    return {
        "code": reward_digests(config),
        "settings": run_state(config),
        "data": {"prompts": len(prompts.train), "hash": prompts.fingerprint},
        "lora": asdict(lora) if lora is not None else None,
    }


def reward_digests(config: Config) -> dict[str, str]:
    """A digest of the file that each reward function stands in, by the function's name."""
    return {name: function_digest(resolve(name).function) for name in function_names(config)}


def describe_data(config: Config, prompts: Prompts, ptx: Any) -> dict[str, Any]:
    """Digests of the data and of the reward functions, to be compared between processes."""
    environment = environment_of(config)
    played = None if environment is None else environment.function
    assert played is None or isinstance(played, TakeTurn)
    return {
        "prompts": {"count": len(prompts.train), "hash": prompts.fingerprint},
        "held out": {"count": len(prompts.test), "hash": prompts.held_out_fingerprint},
        "ptx rows": digest(repr(ptx.items).encode()) if ptx is not None else None,
        "reward functions": reward_digests(config),
        "environment": None if played is None else function_digest(played.environment),
    }


def starting_models(models: Models) -> dict[str, torch.nn.Module | None]:
    """The models whose weights must be the same in all processes at the start, by role."""
    return {"actor": models.actor, "critic": models.critic, "reference": models.initial_model}
