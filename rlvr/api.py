"""`rlvr.train(config)`: a whole run from one tree of settings."""

from functools import partial
from pathlib import Path
from typing import Any

import torch

from rlvr import build
from rlvr.boost.phases import naming_the_lost
from rlvr.boost.plugins import resolve_precision
from rlvr.boost.replica import Replica, replica_of
from rlvr.build_rewards import describe_rewards, make_reward_model
from rlvr.checks.settings import BatchPlan, check_config, plan_batches
from rlvr.config import TINY_SETTINGS, Config, base_config, by_section, to_dict
from rlvr.console import ConsoleView
from rlvr.conversation import Conversation, choose_template
from rlvr.data.prompts import PromptLoader
from rlvr.data.sampling import PromptSampler
from rlvr.errors import UserError
from rlvr.evaluation.evaluator import Evaluator
from rlvr.hand_on import equip
from rlvr.models.actor import Actor
from rlvr.models.loading import TINY, load_tokenizer, resolve_source
from rlvr.presets import Settings, find_preset
from rlvr.rollout.make import make_engine
from rlvr.session import Session, check_same_start, join
from rlvr.tracking import Tracker
from rlvr.trainer.memory import EmptyDeviceCache
from rlvr.trainer.ppo import PPOTrainer
from rlvr.trainer.ppo_loop import PPOLoop
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


def make_view(session: Session, config: Config) -> ConsoleView:
    """What shows the run on the console and writes its samples."""
    times = config.log.num_sample_generations
    every = max(1, config.train.num_episodes // times) if times else 0
    return ConsoleView(session.console, config.log.progress, every, session.folder / "samples.jsonl")


def fit(
    config: Config,
    session: Session,
    plan: BatchPlan,
    trainer: PPOLoop,
    loader: PromptLoader,
    ptx: Any,
    view: ConsoleView,
) -> None:
    """Go on from the checkpoint, if there is one; train; say what was saved."""
    session.ready(trainer, config.ckpt.resume)
    try:
        session.track(trainer, config)
        trainer.fit(
            plan.num_episodes,
            config.train.num_collect_steps,
            config.train.num_update_steps,
            prompt_dataloader=loader,
            pretrain_dataloader=ptx,
        )
    finally:
        view.close()
        trainer.tracker.close()
        trainer.maker.reward_model.close()
    parts = ["modeling"] if config.model.lora_merge else []
    parts += ["adapter"] if trainer.has_adapter else []
    roles = ["actor", "critic"] if trainer.has_critic else ["actor"]
    saved = [f"{session.folder}/{role}/{part}" for role in roles for part in parts]
    session.say("saved: " + ", ".join([*saved, f"{session.folder}/metrics.jsonl"]))
    session.finish(config)


def print_header(session: Session, config: Config, plan: BatchPlan, where: str) -> None:
    """Say what is about to happen; `where` is on which machines and processes, and how."""
    sources = [config.data.prompt_csv_url] if config.data.prompt_csv_url else config.data.prompt_dataset
    session.say(
        f"[bold]rlvr[/]: {config.algo.estimator} on {', '.join(sources)} with {describe_rewards(config)}; "
        f"model {config.model.pretrain}; {where}"
    )
    t = config.train
    session.say(
        f"{plan.num_episodes} episodes x {plan.samples_per_episode} responses, {t.num_update_steps} pass(es) of "
        f"{plan.steps_per_epoch} optimizer steps: {plan.total_steps} steps in all; run folder {session.folder}"
    )
    tree = to_dict(config)
    if config.algo.preset:
        preset = find_preset(config.algo.preset)
        session.say(f"preset [bold]{config.algo.preset}[/] ({preset.paper}): " + _in_effect(tree, preset.settings))
    if config.model.pretrain == TINY:
        in_effect = _in_effect(tree, TINY_SETTINGS)
        session.say(f"[dim]the built-in model brings its own settings (flags override them): {in_effect}[/]")
    if config.rollout.top_k or config.rollout.top_p < 1:
        session.console.print(
            "[yellow]warning:[/] --top_k and --top_p cut the distribution that responses are sampled from, while logprobs "
            "are those of the whole one: ratios are biased. Leave them off unless you know why."
        )


def _in_effect(tree: dict[str, Any], layer: Settings) -> str:
    """The settings of a layer as they are in this run, with what the layer says where something above it won."""
    parts = []
    for section, values in layer.items():
        for name, said in values.items():
            now = tree[section][name]
            parts.append(f"{name} {_plain(now)}" + ("" if now == said else f" (not {_plain(said)})"))
    return ", ".join(parts)


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


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


def make_ptx_loader(config: Config, replica: Replica, tokenizer: Any, conversation: Conversation) -> Any:
    """This replica's batches of the ptx data; None without one."""
    if not config.data.ptx_dataset:
        return None
    from rlvr.data.supervised import SupervisedLoader

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
