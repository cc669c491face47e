"""`rlvr.train(config)`: a whole run from one tree of settings."""

from functools import partial
from pathlib import Path
from typing import Any

import torch

from rlvr import build
from rlvr.boost.phases import naming_the_lost
from rlvr.boost.plugins import resolve_precision
from rlvr.boost.replica import replica_of
from rlvr.build_rewards import make_reward_model
from rlvr.checks.settings import BatchPlan, check_config, plan_batches
from rlvr.config import Config, base_config, by_section
from rlvr.console import ConsoleView
from rlvr.conversation import Conversation, choose_template
from rlvr.data.prompts import PromptLoader
from rlvr.data.sampling import PromptSampler
from rlvr.errors import UserError
from rlvr.evaluation.evaluator import Evaluator
from rlvr.hand_on import equip
from rlvr.models.actor import Actor
from rlvr.models.loading import load_tokenizer, resolve_source
from rlvr.rollout.make import make_engine
from rlvr.run import fit, make_ptx_loader, make_view, print_header
from rlvr.session import Session, check_same_start, join
from rlvr.tracking import Tracker
from rlvr.trainer.memory import EmptyDeviceCache
from rlvr.trainer.ppo import PPOTrainer
from rlvr.trainer.watch import Watch


@naming_the_lost()
def train(config: Config | None = None, **settings: Any) -> Path:
    """Train as the settings say. Returns the run's folder.

    Under torchrun, call it in every process. Without, it makes a process group of one.

    Args:
        config: all settings; or
        settings: those that differ from the defaults, by the names of their flags: `train(pretrain="tiny",
            reward_functions=["gsm8k_reward_fn"])`. The built-in model and a preset bring their own, as on the command line.

    Raises:
        UserError: settings, data, template, plugin or checkpoint that can't be used, or that differ between processes.
        ProcessesLost: another process is stuck, has ended, or can't be reached; a UserError too.
        Interrupted: after SIGINT or SIGTERM, with a checkpoint saved.
    """
    if config is not None and settings:
        raise UserError(f"train(config, {', '.join(settings)}=...): give a Config or single settings, not both")
    config = config or base_config(by_section(settings))
    check_config(config)
    if config.ray.ray:
        from rlvr.ray.train import train_on_ray

        return train_on_ray(config)
    process = join(config)
    plan = plan_batches(config, process.world_size)
    session = Session.open(config, process)
    precision = resolve_precision(config.parallel.mixed_precision, process.device)
    where = f"{process.world_size} process(es) on {process.device.type}, {torch.get_num_threads()} thread(s) each"
    print_header(session, config, plan, f"{where}, {config.parallel.plugin}, {precision}")
    view = make_view(session, config)
    trainer, loader, ptx = _assemble(config, session, plan, view if process.is_main else None)
    fit(config, session, plan, trainer, loader, ptx, view)
    return session.folder


def _assemble(
    config: Config, session: Session, plan: BatchPlan, view: ConsoleView | None
) -> tuple[PPOTrainer, PromptLoader, Any]:
    """Build every part of the run and put them together."""
    process = session.process
    resolve_source(config.model.pretrain)  # builds the built-in model with its own progress bar
    tokenizer = load_tokenizer(config.model.tokenizer_dir or config.model.pretrain, config.model.trust_remote_code)
    conversation = Conversation(choose_template(config.template.conversation_template_config, tokenizer), tokenizer)
    reward_model = make_reward_model(config, conversation, tokenizer, process.device, session.note)
    prompts = build.make_prompts(config, conversation)
    for note in prompts.notes:
        session.note(note)
    sampler = PromptSampler(len(prompts.train), plan.prompts_per_step, config.train.seed)
    replica = replica_of(config.parallel.replica_size)
    loader = PromptLoader(prompts.train, sampler, replica.share, process.world_size)
    engine = make_engine(config.rollout.engine, tokenizer)
    engine.autocast = resolve_precision(config.parallel.mixed_precision, process.device) == "bf16"
    engine.on_progress = view.on_generated if view is not None else None
    models = build.make_models(config, plan, process.device)
    sampling = config.rollout
    equip(
        models.actor.model,
        tokenizer,
        conversation,
        max_new_tokens=sampling.max_new_tokens,
        temperature=sampling.temperature,
    )
    if models.actor.has_adapter:
        session.say(_describe_adapter(models.actor))
    ptx = make_ptx_loader(config, replica, tokenizer, conversation)
    check_same_start(build.describe_data(config, prompts, ptx), build.starting_models(models))
    actor_booster, critic_booster = build.make_boosters(config, process)
    evaluator = build.make_evaluator(config, prompts.test, engine, tokenizer, conversation)
    a, t, r = config.algo, config.train, config.rollout
    trainer = PPOTrainer(
        actor_booster,
        critic_booster,
        models.actor,
        models.critic,
        reward_model,
        models.initial_model,
        models.actor_optim,
        models.critic_optim,
        models.actor_lr_scheduler,
        models.critic_lr_scheduler,
        tokenizer,
        kl_coef=a.kl_coef,
        ptx_coef=a.ptx_coef,
        train_batch_size=t.train_batch_size,
        buffer_limit=t.buffer_limit,
        buffer_cpu_offload=t.buffer_cpu_offload,
        eps_clip=a.eps_clip,
        vf_coef=a.vf_coef,
        value_clip=a.value_clip,
        sample_buffer=t.sample_buffer,
        offload_inference_models=t.offload_inference_models,
        accumulation_steps=t.accumulation_steps,
        save_interval=config.ckpt.save_interval,
        save_dir=session.folder,
        callbacks=[Watch(), *([view] if view else []), *([EmptyDeviceCache()] if t.empty_device_cache else [])],
        conversation=conversation,
        engine=engine,
        seed=t.seed,
        num_generations=r.num_generations,
        settings=build.ppo_settings(config),
        experience_settings=build.experience_settings(config),
        whiten_advantages=a.whiten_advantages,
        run_state=build.describe_run(config, prompts, models.lora),
        keep_checkpoints=config.ckpt.keep_checkpoints,
        lora_merge=config.model.lora_merge,
        grad_clip=t.grad_clip,
        precision=resolve_precision(config.parallel.mixed_precision, process.device),
        online={"tracker": Tracker(), "eval_interval": config.eval.eval_interval},
        **build.sampling_arguments(config),
    )
    if evaluator is not None:
        trainer.evaluator = partial(_evaluate, evaluator, trainer)
    return trainer, loader, ptx


def _evaluate(evaluator: Evaluator, trainer: PPOTrainer) -> dict[str, float] | None:
    with trainer.actor.whole() as actor:
        return evaluator(actor.model, trainer.stop_asked)


def _describe_adapter(actor: Actor) -> str:
    counts = [(p.numel(), p.requires_grad) for p in actor.parameters()]
    learned, total = sum(n for n, learns in counts if learns), sum(n for n, _ in counts)
    return f"LoRA: {learned:,} of the actor's {total:,} weights learn ({learned / total:.2%})"
