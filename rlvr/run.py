"""What runs have in common, on Ray or not: what is said first, what is shown, the ptx data, and the loop from start to end."""

from typing import Any

from rlvr.boost.replica import Replica
from rlvr.build_rewards import describe_rewards
from rlvr.checks.settings import BatchPlan
from rlvr.config import TINY_SETTINGS, Config, to_dict
from rlvr.console import ConsoleView
from rlvr.conversation import Conversation
from rlvr.data.prompts import PromptLoader
from rlvr.models.loading import TINY
from rlvr.presets import Settings, find_preset
from rlvr.session import Session
from rlvr.trainer.ppo_loop import PPOLoop


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


def make_view(session: Session, config: Config) -> ConsoleView:
    """What shows the run on the console and writes its samples."""
    times = config.log.num_sample_generations
    every = max(1, config.train.num_episodes // times) if times else 0
    return ConsoleView(session.console, config.log.progress, every, session.folder / "samples.jsonl")


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
