"""`train_sft` and `train_reward_model`: whole supervised runs from one tree of settings each."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from transformers import PreTrainedTokenizerBase
from transformers.utils.logging import disable_progress_bar

from rlvr.boost import process as processes
from rlvr.boost.plugins import check_plugin, make_booster, resolve_precision
from rlvr.boost.process import ProcessInfo
from rlvr.boost.schedule import cosine_with_warmup
from rlvr.config import RewardTrainingConfig, SFTConfig
from rlvr.conversation import Conversation, ConversationTemplate, auto_template
from rlvr.data.sources import HeldOut, read_held_out, read_held_out_pairs
from rlvr.models.actor import Actor
from rlvr.models.adapter import is_adapter
from rlvr.models.adapter_files import start_adapter
from rlvr.models.backbone import prepare
from rlvr.models.loading import load_causal_lm, load_tokenizer, resolve_source
from rlvr.models.reward_model import RewardModel
from rlvr.run_folder import open_folder, run_state, write_config
from rlvr.supervised_view import SupervisedView
from rlvr.template_check import require_template
from rlvr.tracking import JsonlSink
from rlvr.trainer.reward_model import RewardModelTrainer
from rlvr.trainer.sft import SFTTrainer
from rlvr.trainer.supervised import SupervisedSettings, SupervisedTrainer
from rlvr.validate_lora import lora_settings
from rlvr.validate_supervised import check_reward_training, check_sft

AnyConfig = SFTConfig | RewardTrainingConfig


def train_sft(config: SFTConfig) -> Path:
    """Fine-tune a language model as the settings say. Returns the run's folder, whose `actor/modeling` is the result.

    Under torchrun, call it in every process. Without, it makes a process group of one.

    Raises:
        UserError: settings, data, template, plugin or checkpoint that can't be used.
        Interrupted: after SIGINT or SIGTERM, with a checkpoint saved.
    """
    check_sft(config)
    run = _open_run(config)
    model = make_sft_model(config)
    limit = _limit_length(run, config, model.model.config)
    data = read_held_out(config.data, run.tokenizer, run.conversation, limit, config.train.seed)
    parts = _make_parts(run, config, model, data)
    trainer = SFTTrainer(
        parts.booster, model, parts.optimizer, parts.schedule, run.tokenizer, data.train, parts.settings,
        held_out=data.test, packing=config.train.packing, **parts.options,
    )  # fmt: skip
    return _fit(run, config, trainer)


def train_reward_model(config: RewardTrainingConfig) -> Path:
    """Train a reward model as the settings say. Returns the run's folder, whose `reward_model/modeling` is the result.

    Under torchrun, call it in every process. Without, it makes a process group of one.

    Raises:
        UserError: settings, data, template, plugin or checkpoint that can't be used.
        Interrupted: after SIGINT or SIGTERM, with a checkpoint saved.
    """
    check_reward_training(config)
    run = _open_run(config)
    model = make_reward_model(config, run.tokenizer)
    limit = _limit_length(run, config, model.model.config)
    data = read_held_out_pairs(config.data, run.tokenizer, run.conversation, limit, config.train.seed)
    parts = _make_parts(run, config, model, data)
    trainer = RewardModelTrainer(
        parts.booster, model, parts.optimizer, parts.schedule, run.tokenizer, data.train, parts.settings,
        held_out=data.test, center_rewards_coefficient=config.train.center_rewards_coefficient, **parts.options,
    )  # fmt: skip
    return _fit(run, config, trainer)


def make_sft_model(config: SFTConfig) -> Actor:
    """The language model that is fine-tuned, on the CPU."""
    m = config.model
    source = m.pretrain if is_adapter(m.checkpoint_path) else m.checkpoint_path or m.pretrain
    model = load_causal_lm(source, flash_attention=m.use_flash_attn, trust_remote_code=m.trust_remote_code)
    start_adapter(model, lora_settings(m), m.checkpoint_path, config.train.seed)
    return Actor(prepare(model, m.grad_checkpoint))


def make_reward_model(config: RewardTrainingConfig, tokenizer: PreTrainedTokenizerBase) -> RewardModel:
    """The reward model that is trained, on the CPU: a new head on `--pretrain`, or a trained one to go on with."""
    m = config.model
    if m.checkpoint_path:
        model = RewardModel.from_pretrained(
            m.checkpoint_path, flash_attention=m.use_flash_attn, trust_remote_code=m.trust_remote_code
        )
    else:
        model = RewardModel.from_base(
            m.pretrain, seed=config.train.seed, pad_id=tokenizer.pad_token_id, trust_remote_code=m.trust_remote_code
        )
    lora = lora_settings(m, continues=False)
    if lora is not None:
        model.add_adapter(lora, config.train.seed)
    prepare(model.model, m.grad_checkpoint)
    return model


@dataclass(frozen=True)
class _Run:
    """What a run has before its model and data."""

    process: ProcessInfo
    console: Console
    folder: Path
    checkpoint: Path | None
    tokenizer: PreTrainedTokenizerBase
    conversation: Conversation

    def note(self, text: str) -> None:
        self.console.print(f"[yellow]note:[/] {text}", highlight=False, soft_wrap=True)


def _open_run(config: AnyConfig) -> _Run:
    """Join the process group, open the folder, load tokenizer and template."""
    disable_progress_bar()  # transformers' own bars, one for each file saved
    process = processes.start(config.train.seed, config.train.num_threads)
    check_plugin(config.parallel, process.device)
    folder, checkpoint = open_folder(config.ckpt, process.is_main)
    console = Console(stderr=False, quiet=not process.is_main)
    if process.is_main:
        write_config(config, folder)
    m = config.model
    if not m.checkpoint_path or not m.tokenizer_dir:
        resolve_source(m.pretrain)  # builds the built-in model with its own progress bar
    tokenizer = load_tokenizer(m.tokenizer_dir or m.pretrain, m.trust_remote_code)
    name = config.template.conversation_template_config
    template = ConversationTemplate.load(auto_template(tokenizer) if name == "auto" else name)
    run = _Run(process, console, folder, checkpoint, tokenizer, Conversation(template, tokenizer))
    for note in require_template(run.conversation, name, stop=config.template.template_check == "stop"):
        run.note(note)
    return run


def _limit_length(run: _Run, config: AnyConfig, model_config: Any) -> int:
    """`--max_length`, as far as the model has positions."""
    places = getattr(model_config.get_text_config(), "max_position_embeddings", None)
    if places is None or config.data.max_length <= places:
        return config.data.max_length
    run.note(f"rows may have {places} tokens, the model's limit, and not --max_length {config.data.max_length}")
    return int(places)


@dataclass(frozen=True)
class _Parts:
    """Arguments that both trainers take."""

    booster: Any
    optimizer: torch.optim.Optimizer
    schedule: Any
    settings: SupervisedSettings
    options: dict[str, Any]


def _make_parts(run: _Run, config: AnyConfig, model: torch.nn.Module, data: HeldOut[Any]) -> _Parts:
    t, process = config.train, run.process
    for note in data.notes:
        run.note(note)
    settings = SupervisedSettings(
        total_steps=t.max_steps
        or math.ceil(t.num_epochs * len(data.train) / (t.train_batch_size * t.accumulation_steps)),
        train_batch_size=t.train_batch_size,
        accumulation_steps=t.accumulation_steps,
        micro_batch_tokens=t.micro_batch_tokens,
        seed=t.seed,
        log_interval=config.log.log_interval,
        eval_interval=config.eval.eval_interval,
        save_interval=config.ckpt.save_interval,
        keep_checkpoints=config.ckpt.keep_checkpoints,
        pad_id=run.tokenizer.pad_token_id or 0,
    )
    precision = resolve_precision(config.parallel.mixed_precision, process.device)
    lora = lora_settings(config.model, continues=isinstance(config, SFTConfig))
    model.to(process.device)
    # One kernel for the whole update, but for fp16, whose gradient scaler wants to look at each gradient.
    learned = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(learned, lr=t.lr, weight_decay=t.weight_decay, fused=precision != "fp16")
    run.console.print(
        f"[bold]rlvr[/]: {len(data.train)} rows to learn from, {len(data.test)} held out; model {config.model.pretrain}; "
        f"{process.world_size} process(es) on {process.device.type}, {torch.get_num_threads()} thread(s) each, "
        f"{config.parallel.plugin}, {precision}\n{settings.total_steps} optimizer steps of {settings.step_items} rows, "
        f"learning rate {t.lr:g}; run folder {run.folder}",
        highlight=False,
        soft_wrap=True,
    )
    options = {
        "grad_clip": t.grad_clip,
        "precision": precision,
        "callbacks": [SupervisedView(run.console, config.log.progress)] if process.is_main else [],
        "save_dir": run.folder,
        "lora_merge": config.model.lora_merge,
        "run_state": {
            "settings": run_state(config),
            "data": {"rows": len(data.train), "hash": _hash(data.train)},
            "lora": asdict(lora) if lora is not None else None,
        },
    }
    booster = make_booster(config.parallel, process.device, t.grad_clip)
    return _Parts(
        booster, optimizer, cosine_with_warmup(optimizer, settings.total_steps, t.warmup_steps), settings, options
    )


def _hash(items: Sequence[Any]) -> str:
    """Changes when an item changes: a resumed run must see the same data."""
    digest = blake2b(digest_size=8)
    for item in items:
        digest.update(json.dumps(vars(item)).encode())
    return digest.hexdigest()


def _fit(run: _Run, config: AnyConfig, trainer: SupervisedTrainer[Any]) -> Path:
    if run.checkpoint is not None:
        trainer.load_checkpoint(run.checkpoint)
        run.console.print(f"going on from {run.checkpoint} (step {trainer.progress.step})")
    elif config.ckpt.resume:
        run.console.print(f"no checkpoint under {run.folder} yet: starting from the beginning")
    if run.process.is_main:
        keep = trainer.progress.step + 1 if run.checkpoint is not None else 0
        trainer.tracker.sinks.insert(0, JsonlSink(run.folder / "metrics.jsonl", keep_below=keep))
    try:
        trainer.fit(config.log.log_dir, config.log.use_wandb)
    finally:
        for view in trainer.callbacks:
            view.close()
        trainer.tracker.close()
    run.console.print(f"saved: {trainer.result}, {run.folder}/metrics.jsonl", highlight=False, soft_wrap=True)
    return run.folder
