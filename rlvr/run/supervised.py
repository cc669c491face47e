"""`train_sft` and `train_reward_model`: whole supervised runs, each from one tree of settings.

Both check the settings, open a session, load model and data, and give them to a trainer over `rlvr.trainer.supervised`. They share
all but the model, the data and the loss.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from rich.markup import escape
from transformers import PreTrainedTokenizerBase

from rlvr.boost.health import report_lost_processes
from rlvr.boost.optimizer import make_optimizer
from rlvr.boost.plugins import make_booster, resolve_precision
from rlvr.config import RewardTrainingConfig, SFTConfig
from rlvr.data.supervised import SupervisedData, read_preference_data, read_sft_data
from rlvr.models.actor import Actor
from rlvr.models.backbone import prepare
from rlvr.models.loading import load_causal_lm, load_tokenizer, resolve_source
from rlvr.models.lora import quantize_base, start_adapter
from rlvr.models.lora_config import LoraSettings, is_adapter
from rlvr.models.reward_model import RewardModel
from rlvr.prompting.conversation import Conversation, attach_chat_template, choose_template
from rlvr.prompting.lint import require_template
from rlvr.run.console import SupervisedView
from rlvr.run.folder import run_state
from rlvr.run.session import Session, check_same_start, join
from rlvr.trainer.reward_model import RewardModelTrainer
from rlvr.trainer.sft import SFTTrainer
from rlvr.trainer.supervised import SupervisedTrainer, total_steps
from rlvr.validate.lora import lora_settings
from rlvr.validate.sources import check_sources
from rlvr.validate.supervised import check_reward_training, check_sft

AnyConfig = SFTConfig | RewardTrainingConfig


@report_lost_processes()
def train_sft(config: SFTConfig) -> Path:
    """Fine-tune a language model as the settings say. Returns the run's folder, whose `actor/modeling` is the result.

    Under torchrun, call it in every process. Without, it makes a process group of one.

    Raises:
        UserError: settings, data, template, plugin or checkpoint that can't be used, or that differ between processes.
        ProcessesLost: another process is stuck, has ended, or can't be reached; a UserError too.
        Interrupted: after SIGINT or SIGTERM, with a checkpoint saved.
    """
    check_sft(config)
    check_sources(config)
    with Session.open(config, join(config)) as session:
        run = _begin(config, session)
        model = _make_sft_model(config, run.lora)
        attach_chat_template(model.model, run.tokenizer, run.conversation)
        limit = _limit_length(run, config, model.model.config)
        data = read_sft_data(
            config.data, run.tokenizer, run.conversation, limit, config.train.seed, config.eval.eval_samples
        )
        return _fit(run, config, _make_trainer(SFTTrainer, run, config, model, data))


@report_lost_processes()
def train_reward_model(config: RewardTrainingConfig) -> Path:
    """Train a reward model as the settings say. Returns the run's folder, whose `reward_model/modeling` is the result.

    Under torchrun, call it in every process. Without, it makes a process group of one.

    Raises:
        UserError: settings, data, template, plugin or checkpoint that can't be used, or that differ between processes.
        ProcessesLost: another process is stuck, has ended, or can't be reached; a UserError too.
        Interrupted: after SIGINT or SIGTERM, with a checkpoint saved.
    """
    check_reward_training(config)
    check_sources(config)
    with Session.open(config, join(config)) as session:
        run = _begin(config, session)
        model = _make_reward_model(config, run.tokenizer, run.lora)
        limit = _limit_length(run, config, model.model.config)
        data = read_preference_data(
            config.data, run.tokenizer, run.conversation, limit, config.train.seed, config.eval.eval_samples
        )
        return _fit(run, config, _make_trainer(RewardModelTrainer, run, config, model, data))


def _make_sft_model(config: SFTConfig, lora: LoraSettings | None) -> Actor:
    """The language model that is fine-tuned, on the CPU."""
    m = config.model
    source = m.pretrain if is_adapter(m.checkpoint_path) else m.checkpoint_path or m.pretrain
    model = load_causal_lm(source, flash_attention=m.use_flash_attn, trust_remote_code=m.trust_remote_code)
    if m.load_in_4bit:
        quantize_base(model)
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
    if m.load_in_4bit:
        quantize_base(model.model)
    if lora is not None:
        model.add_adapter(lora, config.train.seed)
    prepare(model.model, m.grad_checkpoint)
    return model


@dataclass(frozen=True)
class _Run:
    """The parts of a run that come before its model and data. `lora` is None if all weights learn."""

    session: Session
    tokenizer: PreTrainedTokenizerBase
    conversation: Conversation
    lora: LoraSettings | None


def _begin(config: AnyConfig, session: Session) -> _Run:
    """Load tokenizer and template."""
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
    """`--max_length`, or the number of the model's positions if that is less."""
    places = getattr(model_config.get_text_config(), "max_position_embeddings", None)
    if places is None or config.data.max_length <= places:
        return config.data.max_length
    run.session.note(f"rows may have {places} tokens, the model's limit, and not --max_length {config.data.max_length}")
    return int(places)


def _make_trainer(
    trainer: Callable[..., SupervisedTrainer[Any]],
    run: _Run,
    config: AnyConfig,
    model: torch.nn.Module,
    data: SupervisedData[Any],
) -> SupervisedTrainer[Any]:
    """The trainer with its optimizer, schedule and boosted model."""
    t, session = config.train, run.session
    process = session.process
    for note in data.notes:
        session.note(note)
    steps = total_steps(config, len(data.train))
    precision = resolve_precision(config.parallel.mixed_precision, process.device)
    optimizer, schedule = make_optimizer(model.to(process.device), t, t.lr, steps, precision)
    session.say(
        f"[bold]rlvr[/]: {len(data.train)} rows to learn from, {len(data.test)} held out; model {escape(config.model.pretrain)}; "
        f"{process.world_size} process(es) on {process.device.type}, {torch.get_num_threads()} thread(s) each, "
        f"{config.parallel.plugin}, {precision}\n{steps} optimizer steps of {t.train_batch_size * t.accumulation_steps} rows, "
        f"learning rate {t.lr:g}; run folder {escape(str(session.folder))}"
    )
    digest = _hash(data.train)
    check_same_start({"rows": digest, "held out": _hash(data.test)}, {"model": model})
    return trainer(
        make_booster(config.parallel, process.device, t.grad_clip),
        model,
        optimizer,
        schedule,
        run.tokenizer,
        data.train,
        config,
        held_out=data.test,
        callbacks=[SupervisedView(session.console, config.log.progress)] if process.is_main else [],
        save_dir=session.folder,
        run_state={
            "settings": run_state(config),
            "data": {"rows": len(data.train), "hash": digest},
            "lora": asdict(run.lora) if run.lora is not None else None,
        },
    )


def _hash(items: Sequence[Any]) -> str:
    """A digest of the data. A resumed run must have the same."""
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
        for callback in trainer.callbacks:
            callback.close()
        trainer.tracker.close()
    session.say(escape(f"saved: {trainer.result}, {session.folder}/metrics.jsonl"))
    session.finish(config)
    return session.folder
