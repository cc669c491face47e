"""`train_sft` and `train_reward_model`: whole supervised runs from one tree of settings each."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from rlvr.boost.phases import naming_the_lost
from rlvr.boost.plugins import make_booster, resolve_precision
from rlvr.boost.schedule import adamw, cosine_with_warmup
from rlvr.checks.lora import lora_settings
from rlvr.checks.supervised import check_reward_training, check_sft
from rlvr.config import RewardTrainingConfig, SFTConfig
from rlvr.conversation import Conversation, choose_template
from rlvr.data.sources import HeldOut, read_held_out, read_held_out_pairs
from rlvr.hand_on import equip
from rlvr.models.actor import Actor
from rlvr.models.adapter import is_adapter
from rlvr.models.adapter_files import start_adapter
from rlvr.models.backbone import prepare
from rlvr.models.loading import load_causal_lm, load_tokenizer, resolve_source
from rlvr.models.lora_settings import LoraSettings
from rlvr.models.reward_model import RewardModel
from rlvr.run_folder import run_state
from rlvr.session import Session, check_same_start, join
from rlvr.supervised_view import SupervisedView
from rlvr.template_check import require_template
from rlvr.trainer.reward_model import RewardModelTrainer
from rlvr.trainer.sft import SFTTrainer
from rlvr.trainer.supervised import SupervisedSettings, SupervisedTrainer

AnyConfig = SFTConfig | RewardTrainingConfig


@naming_the_lost()
def train_sft(config: SFTConfig) -> Path:
    """Fine-tune a language model as the settings say. Returns the run's folder, whose `actor/modeling` is the result.

    Under torchrun, call it in every process. Without, it makes a process group of one.

    Raises:
        UserError: settings, data, template, plugin or checkpoint that can't be used, or that differ between processes.
        ProcessesLost: another process is stuck, has ended, or can't be reached; a UserError too.
        Interrupted: after SIGINT or SIGTERM, with a checkpoint saved.
    """
    check_sft(config)
    run = _open_run(config)
    model = _make_sft_model(config, run.lora)
    equip(model.model, run.tokenizer, run.conversation)
    limit = _limit_length(run, config, model.model.config)
    data = read_held_out(
        config.data, run.tokenizer, run.conversation, limit, config.train.seed, config.eval.eval_samples
    )
    parts = _make_parts(run, config, model, data)
    trainer = SFTTrainer(
        parts.booster, model, parts.optimizer, parts.schedule, run.tokenizer, data.train, parts.settings,
        held_out=data.test, packing=config.train.packing, **parts.options,
    )  # fmt: skip
    return _fit(run, config, trainer)


@naming_the_lost()
def train_reward_model(config: RewardTrainingConfig) -> Path:
    """Train a reward model as the settings say. Returns the run's folder, whose `reward_model/modeling` is the result.

    Under torchrun, call it in every process. Without, it makes a process group of one.

    Raises:
        UserError: settings, data, template, plugin or checkpoint that can't be used, or that differ between processes.
        ProcessesLost: another process is stuck, has ended, or can't be reached; a UserError too.
        Interrupted: after SIGINT or SIGTERM, with a checkpoint saved.
    """
    check_reward_training(config)
    run = _open_run(config)
    model = _make_reward_model(config, run.tokenizer, run.lora)
    limit = _limit_length(run, config, model.model.config)
    data = read_held_out_pairs(
        config.data, run.tokenizer, run.conversation, limit, config.train.seed, config.eval.eval_samples
    )
    parts = _make_parts(run, config, model, data)
    trainer = RewardModelTrainer(
        parts.booster, model, parts.optimizer, parts.schedule, run.tokenizer, data.train, parts.settings,
        held_out=data.test, center_rewards_coefficient=config.train.center_rewards_coefficient, **parts.options,
    )  # fmt: skip
    return _fit(run, config, trainer)


def _make_sft_model(config: SFTConfig, lora: LoraSettings | None) -> Actor:
    """The language model that is fine-tuned, on the CPU."""
    m = config.model
    source = m.pretrain if is_adapter(m.checkpoint_path) else m.checkpoint_path or m.pretrain
    model = load_causal_lm(source, flash_attention=m.use_flash_attn, trust_remote_code=m.trust_remote_code)
    start_adapter(model, lora, m.checkpoint_path, config.train.seed)
    return Actor(prepare(model, m.grad_checkpoint))


def _make_reward_model(
    config: RewardTrainingConfig, tokenizer: PreTrainedTokenizerBase, lora: LoraSettings | None
) -> RewardModel:
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
    if lora is not None:
        model.add_adapter(lora, config.train.seed)
    prepare(model.model, m.grad_checkpoint)
    return model


@dataclass(frozen=True)
class _Run:
    """What a run has before its model and data. `lora`: settings of the adapter that learns, if there is one."""

    session: Session
    tokenizer: PreTrainedTokenizerBase
    conversation: Conversation
    lora: LoraSettings | None


def _open_run(config: AnyConfig) -> _Run:
    """Join the process group, open the folder, load tokenizer and template."""
    session = Session.open(config, join(config))
    m = config.model
    if not m.checkpoint_path or not m.tokenizer_dir:
        resolve_source(m.pretrain)  # builds the built-in model with its own progress bar
    tokenizer = load_tokenizer(m.tokenizer_dir or m.pretrain, m.trust_remote_code)
    name = config.template.conversation_template_config
    conversation = Conversation(choose_template(name, tokenizer), tokenizer)
    for note in require_template(conversation, name, stop=config.template.template_check == "stop"):
        session.note(note)
    lora = lora_settings(m, continues=isinstance(config, SFTConfig))
    return _Run(session, tokenizer, conversation, lora)


def _limit_length(run: _Run, config: AnyConfig, model_config: Any) -> int:
    """`--max_length`, as far as the model has positions."""
    places = getattr(model_config.get_text_config(), "max_position_embeddings", None)
    if places is None or config.data.max_length <= places:
        return config.data.max_length
    run.session.note(f"rows may have {places} tokens, the model's limit, and not --max_length {config.data.max_length}")
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
    t, session = config.train, run.session
    process = session.process
    for note in data.notes:
        session.note(note)
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
    optimizer = adamw(model.to(process.device), precision, lr=t.lr, weight_decay=t.weight_decay)
    session.say(
        f"[bold]rlvr[/]: {len(data.train)} rows to learn from, {len(data.test)} held out; model {config.model.pretrain}; "
        f"{process.world_size} process(es) on {process.device.type}, {torch.get_num_threads()} thread(s) each, "
        f"{config.parallel.plugin}, {precision}\n{settings.total_steps} optimizer steps of {settings.step_items} rows, "
        f"learning rate {t.lr:g}; run folder {session.folder}"
    )
    options = {
        "grad_clip": t.grad_clip,
        "precision": precision,
        "callbacks": [SupervisedView(session.console, config.log.progress)] if process.is_main else [],
        "save_dir": session.folder,
        "lora_merge": config.model.lora_merge,
        "run_state": {
            "settings": run_state(config),
            "data": {"rows": len(data.train), "hash": _hash(data.train)},
            "lora": asdict(run.lora) if run.lora is not None else None,
        },
    }
    check_same_start({"rows": _hash(data.train), "held out": _hash(data.test)}, {"model": model})
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
    session = run.session
    session.ready(trainer, config.ckpt.resume)
    try:
        session.track(trainer, config)
        trainer.fit()
    finally:
        for view in trainer.callbacks:
            view.close()
        trainer.tracker.close()
    session.say(f"saved: {trainer.result}, {session.folder}/metrics.jsonl")
    session.finish(config)
    return session.folder
