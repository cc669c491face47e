"""`PPOTrainer` with TRL's arguments (experimental/ppo, 1.12), over `rlvr.trainer.ppo.PPOTrainer`.

    from rlvr.compat.trl import PPOConfig, PPOTrainer

    trainer = PPOTrainer(
        args=PPOConfig(output_dir="runs/ppo", total_episodes=512, stop_token="eos"),
        processing_class=tokenizer, model=policy, ref_model=None, reward_model=reward_model, value_model=value_model,
        train_dataset=train_dataset, eval_dataset=eval_dataset,
    )
    trainer.train()
    trainer.save_model("ppo-trained-policy")

Settings are `rlvr/compat/trl_config.py`, the arguments' conversion is `rlvr/compat/trl_parts.py`. Start it with torchrun for several
processes. Beyond TRL's, `reward_model` may be rules: the names of registered functions
or functions of your own.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rlvr.boost import process as processes
from rlvr.boost.consistency import digest
from rlvr.boost.health import report_lost_processes
from rlvr.boost.plugins import make_booster
from rlvr.boost.process import ProcessInfo
from rlvr.compat.trl_config import PPOConfig
from rlvr.compat.trl_parts import (
    BatchSizes,
    add_lora_adapters,
    as_critic,
    as_reward_model,
    batch_sizes,
    check_arguments,
    check_callbacks,
    make_optimizer,
    make_prompts,
)
from rlvr.config import CheckpointConfig, ParallelConfig
from rlvr.data.prompts import Prompt, PromptLoader
from rlvr.data.sampling import PromptSampler
from rlvr.errors import UserError
from rlvr.models.actor import Actor
from rlvr.models.backbone import prepare
from rlvr.models.critic import Critic
from rlvr.run.console import ConsoleView
from rlvr.run.folder import open_folder
from rlvr.run.session import check_same_settings, check_same_start
from rlvr.tracking.meter import Meter
from rlvr.tracking.samples import tracked_samples
from rlvr.tracking.terminal import Terminal
from rlvr.tracking.tracker import MemorySink, Tracker, append_json
from rlvr.trainer import ppo
from rlvr.trainer.callbacks import Callback, EmptyDeviceCache, Watch

__all__ = ["PPOConfig", "PPOTrainer"]

PRINTED_SAMPLES, TRACKED_SAMPLES = 5, 8


class PPOTrainer:
    """PPO with TRL's arguments.

    Args:
        args: settings.
        processing_class: the policy's tokenizer.
        model: the policy, a transformers causal LM; trained in place.
        ref_model: what the divergence is measured from. None: a copy of the policy as it is now; with `peft_config` the
            policy with its adapters off.
        reward_model: a sequence classifier with one label and the policy's tokenizer; or a reward function, the name of a
            registered one, or several of these; or anything that scores samples (`rlvr.RLVRRewardModel`, ...).
        value_model: a sequence classifier with one label, or a `Critic`; trained in place. None: the policy's decoder,
            copied, with a new value head.
        train_dataset: rows with `input_ids` or `prompt`; see `rlvr.compat.trl_parts`.
        eval_dataset: rows of the same kind, answered and shown `args.num_sample_generations` times.
        callbacks: of the class `rlvr.Callback`.
        peft_config: a `peft.LoraConfig`: only adapters (and the value model) learn.
        data_collator, optimizers: there for TRL's call; a UserError says what to do instead.

    Attributes:
        log_history: the metrics of each update, as in metrics.jsonl.
        trainer: the trainer behind this one.

    Raises:
        UserError: arguments that don't go together or can't be honoured.
    """

    def __init__(
        self,
        args: PPOConfig,
        processing_class: PreTrainedTokenizerBase,
        model: PreTrainedModel,
        ref_model: PreTrainedModel | None,
        reward_model: Any,
        train_dataset: Iterable[Mapping[str, Any]],
        value_model: PreTrainedModel | Critic | None = None,
        data_collator: Any = None,
        eval_dataset: Iterable[Mapping[str, Any]] | None = None,
        optimizers: tuple[Any, Any] = (None, None),
        callbacks: Sequence[Callback] | None = None,
        peft_config: Any = None,
    ) -> None:
        check_arguments(model, ref_model, reward_model, value_model, data_collator, optimizers)
        check_callbacks(callbacks or ())
        self.args, self.processing_class = args, processing_class
        self.process = processes.start(args.seed)
        check_same_settings(asdict(args), "Give the same PPOConfig in all processes.")
        prompts = make_prompts(train_dataset, processing_class)
        self.sizes = batch_sizes(args, prompts, self.process.world_size)
        critic = as_critic(value_model, model, args.seed)
        if peft_config is not None:
            add_lora_adapters(model, peft_config, args.seed)
        elif ref_model is None and args.kl_coef:
            ref_model = copy.deepcopy(model)
        for trained in (model, critic.backbone):
            prepare(trained, args.gradient_checkpointing)
        asked = {"count": len(prompts), "hash": digest(repr([prompt.ids for prompt in prompts]).encode())}
        check_same_start({"prompts": asked}, {"policy": model, "values": critic, "reference": ref_model})
        scorer = as_reward_model(reward_model, processing_class, self.process.device, args)
        memory = MemorySink()
        self.log_history = memory.rows
        console = Terminal(quiet=args.disable_tqdm or not self.process.is_main)
        self._view = ConsoleView(console)
        self.trainer = _make_trainer(
            args,
            self.process,
            self.sizes,
            processing_class,
            (Actor(model).to(self.process.device), critic.to(self.process.device), ref_model),
            scorer,
            [Watch(), EmptyDeviceCache(), self._view, *(callbacks or ())],
            Tracker([memory] if self.process.is_main else []),
        )
        sampler = PromptSampler(len(prompts), self.sizes.batch_size, args.seed)
        self._loader = PromptLoader(prompts, sampler, self.process.rank, self.process.world_size)
        if eval_dataset is not None and args.num_sample_generations:
            shown = make_prompts(eval_dataset, processing_class, "eval_dataset")[: args.per_device_eval_batch_size]
            self.trainer.evaluator = SampleTable(self.trainer, shown, console)
            self.trainer.eval_interval = max(1, self.sizes.num_total_batches // args.num_sample_generations)

    @report_lost_processes()
    def train(self, resume_from_checkpoint: bool = False) -> None:
        """Sample and learn for the whole run; with an `output_dir`, save the models there in the end.

        Args:
            resume_from_checkpoint: go on from the newest checkpoint in `output_dir`, with the same results bit for bit.

        Raises:
            UserError: `output_dir` holds another run, or there is nothing to resume from.
            Interrupted: after SIGINT or SIGTERM, with a checkpoint saved.
        """
        folder = self.trainer.save_dir
        if resume_from_checkpoint and folder is None:
            raise UserError(
                "train(resume_from_checkpoint=True) needs PPOConfig(output_dir=...), where the checkpoint lies"
            )
        if folder is None:
            return self._fit()
        place = CheckpointConfig(save_path=str(folder), resume=resume_from_checkpoint)
        with closing(open_folder(place, self.process.is_main, self.trainer.warn)) as opened:
            if opened.checkpoint is not None:
                self.trainer.load_checkpoint(opened.checkpoint)
            self.trainer.write_metrics(folder, resumed=opened.checkpoint is not None)
            self._fit()

    def _fit(self) -> None:
        a = self.args
        to_tensorboard = a.logging_dir or (a.output_dir if a.report_to == "tensorboard" else None)
        try:
            self.trainer.fit(
                self.sizes.num_total_batches,
                1,
                a.num_ppo_epochs,
                prompt_dataloader=self._loader,
                log_dir=to_tensorboard,
                use_wandb=a.report_to == "wandb",
            )
        finally:
            self._view.close()
            self.trainer.tracker.close()
            self.trainer.maker.close()

    def save_model(self, output_dir: str | Path | None = None) -> None:
        """Write the policy, or with LoRA its adapter, and the tokenizer, as transformers (or peft) does.

        Raises:
            UserError: neither `output_dir` here nor in the settings.
        """
        if output_dir is None and self.args.output_dir is None:
            raise UserError("save_model(): no folder; give one, or PPOConfig(output_dir=...)")
        folder = Path(output_dir or str(self.args.output_dir))
        with self.trainer.actor.full_precision_weights() as actor:
            if self.process.is_main:
                (actor.save_adapter if actor.has_adapter else actor.save_pretrained)(folder)
                self.processing_class.save_pretrained(folder)
        processes.barrier()


def _make_trainer(
    args: PPOConfig,
    process: ProcessInfo,
    sizes: BatchSizes,
    tokenizer: PreTrainedTokenizerBase,
    models: tuple[Actor, Critic, PreTrainedModel | None],
    scorer: Any,
    callbacks: Sequence[Callback],
    tracker: Tracker,
) -> ppo.PPOTrainer:
    actor, critic, reference = models
    parallel = ParallelConfig(plugin=args.plugin, mixed_precision=args.precision)
    (actor_optim, actor_schedule), (critic_optim, critic_schedule) = (
        make_optimizer(args, role, sizes.total_steps) for role in (actor, critic)
    )
    stop_ids: tuple[int, ...] = () if args.stop_token_id is None else (args.stop_token_id,)
    if args.stop_token == "eos":
        stop_ids = _end_token(tokenizer)
    return ppo.PPOTrainer(
        make_booster(parallel, process.device, args.max_grad_norm),
        make_booster(parallel, process.device, args.max_grad_norm),
        actor,
        critic,
        scorer,
        prepare(reference, False) if reference is not None and args.kl_coef else None,
        actor_optim,
        critic_optim,
        actor_schedule,
        critic_schedule,
        tokenizer,
        kl_coef=args.kl_coef,
        train_batch_size=sizes.micro_batch_size,
        accumulation_steps=sizes.accumulation_steps,
        eps_clip=args.cliprange,
        vf_coef=args.vf_coef,
        value_clip=args.cliprange_value,
        save_interval=args.save_steps if args.save_strategy == "steps" else 0,
        save_dir=args.output_dir,
        callbacks=callbacks,
        settings={
            "kl_estimator": args.kl_estimator,
            "gamma": args.gamma,
            "lam": args.lam,
            "whiten_rewards": args.whiten_rewards,
            "missing_eos_penalty": args.missing_eos_penalty or 0.0,
            "keep_checkpoints": args.save_total_limit,
            "grad_clip": args.max_grad_norm,
            "mixed_precision": args.precision,
            "seed": args.seed,
        },
        run_state={"args": sizes.run_state},
        tracker=tracker,
        max_new_tokens=args.response_length,
        temperature=args.temperature,
        stop_ids=stop_ids,
        batch_size=args.local_rollout_forward_batch_size,
    )


def _end_token(tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    if tokenizer.eos_token_id is None:
        raise UserError("PPOConfig(stop_token='eos'): the tokenizer has no end token; give stop_token_id")
    return (int(tokenizer.eos_token_id),)


class SampleTable:
    """Answers the prompts greedily, prints some of the answers, and writes all to `samples.jsonl` in the run's folder.

    Args:
        trainer: whose policy answers, and whose reward model scores.
        prompts: the same each time; split over ranks here.
        console: where to print.
    """

    def __init__(self, trainer: ppo.PPOTrainer, prompts: Sequence[Prompt], console: Console) -> None:
        self.trainer, self.console = trainer, console
        # Every rank answers something: they meet where a reward model normalises its scores.
        self.prompts = list(prompts)[trainer.rank :: trainer.world_size] or list(prompts)[:1]

    def __call__(self) -> dict[str, float]:
        """`eval/scores`, `eval/length_tokens` over the prompts of all processes. Collective."""
        trainer, maker, meter = self.trainer, self.trainer.maker, Meter()
        sampling = replace(maker.sampling, temperature=0.0)
        responses = maker.respond(self.prompts, sampling, {}, "samples", trainer.rank)
        results = responses.scoring.result()
        told = responses.samples[:TRACKED_SAMPLES], results[:TRACKED_SAMPLES]
        trainer.tracker.log_samples(trainer.progress.episode, tracked_samples(*told))
        table = Table("query", "model response", "score", title=f"after {trainer.progress.episode} updates")
        for sample, result, rollout in zip(responses.samples, results, responses.rollouts, strict=True):
            if result.total is not None:
                meter.add("eval/scores", result.total)
            meter.add("eval/length_tokens", len(rollout.response_ids))
            row = {"step": trainer.progress.episode, "query": sample.prompt, "response": sample.response}
            if trainer.save_dir is not None and trainer.is_main:
                append_json(trainer.save_dir / "samples.jsonl", {**row, "score": result.total})
            if table.row_count < PRINTED_SAMPLES:
                table.add_row(escape(sample.prompt), escape(sample.response), f"{result.total}")
        self.console.print(table)
        return meter.means()
