"""Put a PPO run together from its settings and train it to its end, wherever its roles are.

`train` is the one way from settings to a trainer, before the first step: it loads tokenizer and template, reads the problems,
and asks a `Host` for a trainer over the roles. `LocalHost` makes them in this process, `rlvr.ray.train.RayHost` in actors on a
Ray cluster. The single parts are made in `rlvr.run.parts`; the steps of training are `OnlineTrainer.fit`'s.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from rich.markup import escape
from transformers import PreTrainedTokenizerBase

from rlvr.boost.plugins import resolve_precision
from rlvr.boost.process import ProcessInfo, Replica, replica_of
from rlvr.config import Config
from rlvr.data.prompts import PromptLoader
from rlvr.journal.keeper import JournalKeeper
from rlvr.models.actor import Actor
from rlvr.models.loading import load_tokenizer, resolve_source
from rlvr.models.quantized import layers_in_4bit
from rlvr.prompting.conversation import Conversation, attach_chat_template, choose_template
from rlvr.run import parts as build
from rlvr.run.console import ConsoleView
from rlvr.run.session import Session, check_same_start, print_header
from rlvr.scorers.build import make_reward_model
from rlvr.trainer.callbacks import Callback, EmptyDeviceCache, Watch
from rlvr.trainer.online import OnlineTrainer
from rlvr.trainer.ppo import LocalPPOTrainer
from rlvr.validate.ppo import BatchPlan


@dataclass(frozen=True)
class Parts:
    """The parts of a run that don't depend on where its roles are.

    Attributes:
        tokenizer: the policy's.
        conversation: its template.
        prompts: to train on and to evaluate on.
        ptx: loader of the ptx data; None without.
        view: shows the run on the console; None in processes that show nothing.
        keeper: keeps the journal; None without one.
    """

    tokenizer: PreTrainedTokenizerBase
    conversation: Conversation
    prompts: build.Prompts
    ptx: Any
    view: ConsoleView | None

    keeper: JournalKeeper | None

    @property
    def callbacks(self) -> list[Callback]:
        others: list[Callback | None] = [self.view, self.keeper]
        return [Watch(), *(callback for callback in others if callback is not None)]


class Host(Protocol):
    """Makes the roles of a run, in this process or elsewhere, and the trainer over them.

    Attributes:
        where: machines, processes and precision, in words.
        replica: divides the ptx data.
        share: this process's place among those that draw prompts, and their number.
    """

    @property
    def where(self) -> str: ...
    @property
    def replica(self) -> Replica: ...
    @property
    def share(self) -> tuple[int, int]: ...

    def begin(self, tokenizer: PreTrainedTokenizerBase, conversation: Conversation) -> None:
        """Start what can start before the data is read: reward functions, whose mistakes then show early, and slow processes."""
        ...

    def make_trainer(self, parts: Parts) -> OnlineTrainer:
        """Make the roles, and a trainer over them."""
        ...


@dataclass(frozen=True)
class Run:
    """A run that is ready to train.

    Attributes:
        trainer: over the roles.
        loader: this process's share of the prompts.
        ptx: loader of the ptx data; None without.
        view: shows the run on the console.
    """

    trainer: OnlineTrainer
    loader: PromptLoader
    ptx: Any
    view: ConsoleView


def assemble(config: Config, session: Session, plan: BatchPlan, host: Host) -> Run:
    """Load tokenizer, template and data, and put them together with the host's roles.

    Raises:
        UserError: model, data or template that can't be used.
    """
    times = config.log.num_sample_generations
    # Episodes between printed samples; 0 = never.
    every = max(1, config.train.num_episodes // times) if times else 0
    view = ConsoleView(session.console, config.log.progress, every, session.folder / "samples.jsonl")
    m = config.model
    resolve_source(m.pretrain)  # builds the built-in model with its own progress bar
    tokenizer = load_tokenizer(m.tokenizer_dir or m.pretrain, m.trust_remote_code)
    conversation = Conversation(choose_template(build.template_name(config), tokenizer), tokenizer)
    session.say(f"[dim]template: {escape(Path(conversation.template.source).name)}[/]")
    host.begin(tokenizer, conversation)
    prompts = build.make_prompts(config, conversation)
    for note in prompts.notes:
        session.note(note)
    ptx = build.make_ptx_loader(config, host.replica, tokenizer, conversation)
    shown = view if session.process.is_main else None
    keeper = JournalKeeper(session.folder, config.log.journal) if config.log.journal else None
    trainer = host.make_trainer(Parts(tokenizer, conversation, prompts, ptx, shown, keeper))
    sampler = build.make_sampler(config, prompts.train, plan.prompts_per_step)
    return Run(trainer, PromptLoader(prompts.train, sampler, *host.share), ptx, view)


def train(config: Config, session: Session, plan: BatchPlan, host: Host) -> None:
    """Put the run together, go on from its checkpoint if there is one, train, and say which files were saved.

    Raises:
        UserError: model, data, template or checkpoint that can't be used.
        Interrupted: after SIGINT or SIGTERM, with a checkpoint saved.
    """
    print_header(session, config, plan, host.where)
    run = assemble(config, session, plan, host)
    trainer = run.trainer
    try:
        session.ready(trainer, config.ckpt.resume)
        session.track(trainer, config)
        trainer.fit(
            plan.num_episodes,
            config.train.num_collect_steps,
            config.train.num_update_steps,
            prompt_dataloader=run.loader,
            pretrain_dataloader=run.ptx,
        )
    finally:
        run.view.close()
        trainer.tracker.close()
        trainer.maker.close()
    kinds = ["modeling"] if config.model.lora_merge else []
    kinds += ["adapter"] if trainer.learner.has_adapter else []
    roles = ["actor", "critic"] if trainer.learner.has_critic else ["actor"]
    saved = [f"{session.folder}/{role}/{kind}" for role in roles for kind in kinds]
    session.say(escape("saved: " + ", ".join([*saved, f"{session.folder}/metrics.jsonl"])))
    session.finish(config)


class LocalHost:
    """All roles in this process, sharded or copied over the process group as the plugin says.

    Args:
        config: the run's settings.
        session: of the run.
        plan: its batch arithmetic.
        process: this process's rank and device.
    """

    def __init__(self, config: Config, session: Session, plan: BatchPlan, process: ProcessInfo) -> None:
        self.config, self.session, self.plan, self.process = config, session, plan, process
        self.precision = resolve_precision(config.parallel.mixed_precision, process.device)
        self.replica = replica_of(config.parallel.replica_size)

    @property
    def where(self) -> str:
        p = self.process
        each = f"{p.world_size} process(es) on {p.device.type}, {torch.get_num_threads()} thread(s) each"
        return f"{each}, {self.config.parallel.plugin}, {self.precision}"

    @property
    def share(self) -> tuple[int, int]:
        return self.replica.share, self.process.world_size

    def begin(self, tokenizer: PreTrainedTokenizerBase, conversation: Conversation) -> None:
        self.scorer = make_reward_model(self.config, conversation, tokenizer, self.process.device, self.session.note)

    def make_trainer(self, parts: Parts) -> LocalPPOTrainer:
        config, tokenizer, conversation = self.config, parts.tokenizer, parts.conversation
        folder, note = self.session.folder, self.session.note
        engine = build.make_rollout_engine(config, tokenizer, conversation, self.precision, folder, note)
        engine.on_progress = parts.view.on_generated if parts.view is not None else None
        models = build.make_models(config, self.plan, self.process.device)
        r = config.rollout
        attach_chat_template(
            models.actor.model, tokenizer, conversation, max_new_tokens=r.max_new_tokens, temperature=r.temperature
        )
        if models.actor.has_adapter:
            self.session.say(_describe_adapter(models.actor))
        # Before boosting, as sharded weights can't be compared any more.
        check_same_start(build.describe_data(config, parts.prompts, parts.ptx), build.starting_models(models))
        actor, critic = build.boost_roles(config, models, self.process.device)
        empties: Sequence[Callback] = [EmptyDeviceCache()] if config.train.empty_device_cache else []
        trainer = LocalPPOTrainer(
            config,
            actor,
            critic,
            self.scorer,
            models.initial_model,
            tokenizer,
            build.training_sampling(config, conversation),
            conversation=conversation,
            engine=engine,
            callbacks=[*parts.callbacks, *empties],
            save_dir=self.session.folder,
            run_state=build.describe_run(config, parts.prompts, models.lora),
        )
        evaluator = build.make_evaluator(config, parts.prompts.test, engine, tokenizer, conversation)
        if evaluator is not None:
            trainer.evaluate_with(evaluator)
        return trainer


def _describe_adapter(actor: Actor) -> str:
    """The share of the actor's weights that learn, in words."""
    counts = [(p.numel(), p.requires_grad) for p in actor.parameters()]
    learned, total = sum(n for n, learns in counts if learns), sum(n for n, _ in counts)
    packed = sum(layer.count for layer in layers_in_4bit(actor))
    held = f"; {packed:,} are held in 4 bits" if packed else ""
    total += packed
    return f"LoRA: {learned:,} of the actor's {total:,} weights learn ({learned / total:.2%}){held}"
