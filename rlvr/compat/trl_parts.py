"""The arguments of TRL's trainer, made into parts of this library: models, prompts, batch sizes, optimizer and schedule."""

import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback, get_scheduler

from rlvr.boost.optimizer import adamw
from rlvr.boost.plugins import freeze
from rlvr.compat.trl_config import PPOConfig
from rlvr.config import ParallelConfig
from rlvr.data.problems import Problem
from rlvr.data.prompts import Prompt
from rlvr.errors import UserError
from rlvr.models.critic import Critic
from rlvr.models.lora import apply_lora
from rlvr.models.lora_config import parse_lora_settings, refuse_dropout
from rlvr.models.reward_model import RewardModel
from rlvr.scorers.neural import NeuralRewardModel
from rlvr.scorers.rules import RLVRRewardModel
from rlvr.trainer.callbacks import Callback


def check_arguments(
    model: Any,
    ref_model: Any,
    reward_model: Any,
    value_model: Any,
    data_collator: Any,
    optimizers: tuple[Any, Any],
) -> None:
    """Raise `UserError` for arguments that can't be honoured."""
    if ref_model is model and model is not None:
        raise UserError("model and ref_model are one object, which training would move: give a copy, or ref_model=None")
    if reward_model is value_model and value_model is not None:
        raise UserError("reward_model and value_model are one object, which training would move: load it twice")
    if data_collator is not None:
        raise UserError("data_collator: padding is made from lengths; leave it out (rows need input_ids or prompt)")
    if any(part is not None for part in optimizers):
        raise UserError(
            "optimizers: policy and value model have an AdamW each; leave it out and set PPOConfig(learning_rate=..., "
            "lr_scheduler_type=...), or take rlvr.PPOTrainer, which takes both optimizers"
        )


def add_lora_adapters(model: PreTrainedModel, peft_config: Any, seed: int) -> None:
    """Put the LoRA adapters of a `peft.LoraConfig` into the policy, whose own weights then stay as they are.

    Raises:
        UserError: another kind of adapter, settings that can't be trained with, or targets that match nothing.
    """
    if not hasattr(peft_config, "to_dict"):
        raise UserError(f"peft_config is a {type(peft_config).__name__}: give a peft.LoraConfig")
    settings = parse_lora_settings(peft_config.to_dict(), "peft_config")
    refuse_dropout(settings, "peft_config")
    apply_lora(model, settings, seed)


def check_callbacks(callbacks: Sequence[Any]) -> None:
    """Raise `UserError` for callbacks of another kind."""
    for callback in callbacks:
        if isinstance(callback, TrainerCallback):
            raise UserError(
                f"callbacks: {type(callback).__name__} is a transformers TrainerCallback, whose state and control this trainer "
                "does not have: subclass rlvr.Callback"
            )
        if not isinstance(callback, Callback):
            raise UserError(f"callbacks: {callback!r} is no rlvr.Callback")


def as_critic(value_model: Any, policy: PreTrainedModel, seed: int) -> Critic:
    """The critic: a `Critic` as it is; of a sequence classifier with one label its decoder and head; of None the policy's
    decoder, copied, with a new value head.

    Raises:
        UserError: more than one label, or no linear head.
    """
    if isinstance(value_model, Critic):
        return value_model
    if value_model is None:
        return Critic(copy.deepcopy(policy.base_model), seed=seed)
    if not isinstance(value_model, PreTrainedModel):
        raise UserError(f"value_model is a {type(value_model).__name__}: give a sequence classifier, or rlvr.Critic")
    return Critic.from_reward_model(_with_one_label(value_model, "value_model"))


def _with_one_label(model: PreTrainedModel, argument: str) -> RewardModel:
    try:
        return RewardModel(model)
    except UserError as error:
        raise UserError(f"{argument}: {error}") from None


def as_reward_model(given: Any, tokenizer: PreTrainedTokenizerBase, device: torch.device, args: PPOConfig) -> Any:
    """The scorer, from a sequence classifier, reward functions, their names, or a scorer as it is.

    Raises:
        UserError: nothing, an unknown name, or a classifier with several labels or another vocabulary.
    """
    if given is None:
        raise UserError("reward_model is missing: give a sequence classifier, a reward function, or the name of one")
    if hasattr(given, "begin"):
        return given
    if isinstance(given, RewardModel | PreTrainedModel):
        model = given if isinstance(given, RewardModel) else _with_one_label(given, "reward_model")
        known = model.model.get_input_embeddings().num_embeddings
        if known < len(tokenizer):
            raise UserError(
                f"reward_model knows {known} tokens and the policy's tokenizer has {len(tokenizer)}: give a reward model that reads "
                "the policy's tokens, or a function that encodes the text anew"
            )
        return NeuralRewardModel(
            freeze(model, ParallelConfig(mixed_precision=args.precision), device),
            tokenizer,
            batch_size=args.local_rollout_forward_batch_size,
        )
    functions = [given] if isinstance(given, str) or callable(given) else list(given)
    if not functions:
        raise UserError("reward_model is an empty list: give at least one reward function")
    return RLVRRewardModel(functions, tokenizer)


# Rows of a data set, as TRL's trainers take them.


PROMPT_COLUMNS = ("prompt", "query", "text", "question")
ANSWER_COLUMNS = ("answer", "gold", "ground_truth", "solution")


def make_prompts(
    rows: Iterable[Mapping[str, Any]], tokenizer: PreTrainedTokenizerBase, what: str = "train_dataset"
) -> list[Prompt]:
    """Prompts from rows with `input_ids`, or with a `prompt` (or `query`, `text`, `question`): a text, which is taken as it
    stands, or chat messages, which go through the tokenizer's chat template.

    Token ids may be padded with `attention_mask` 0. A column `answer` (or `gold`, `ground_truth`, `solution`) is what reward
    functions get as the right answer, and all others they may ask for by name.

    Raises:
        UserError: no rows, a row without a prompt, or one of another kind; the message names the row.
    """
    prompts = [_make_prompt(row, index, tokenizer, what) for index, row in enumerate(rows)]
    if not prompts:
        raise UserError(f"{what} is empty: there is nothing to train on")
    return prompts


def _make_prompt(row: Mapping[str, Any], index: int, tokenizer: PreTrainedTokenizerBase, what: str) -> Prompt:
    place = f"{what}, row {index}"
    ids, text = _encode(row, place, tokenizer)
    if not ids:
        raise UserError(f"{place}: the prompt holds no token")
    answer = next((str(row[name]) for name in ANSWER_COLUMNS if row.get(name) is not None), None)
    columns = {name: value for name, value in row.items() if name not in ("input_ids", "attention_mask")}
    return Prompt(Problem(str(index), text, answer, columns, place), tuple(ids))


def _encode(row: Mapping[str, Any], place: str, tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], str]:
    if "input_ids" in row:
        ids = _ids(row, place)
        return ids, str(tokenizer.decode(ids, skip_special_tokens=True))
    name = next((name for name in PROMPT_COLUMNS if name in row), None)
    if name is None:
        raise UserError(
            f"{place}: needs input_ids, or a prompt in one of the columns {', '.join(PROMPT_COLUMNS)}; it has {', '.join(row)}"
        )
    prompt = row[name]
    if isinstance(prompt, str):
        return list(tokenizer.encode(prompt)), prompt
    if isinstance(prompt, Sequence) and prompt and all(isinstance(m, Mapping) and "content" in m for m in prompt):
        text = tokenizer.apply_chat_template(list(prompt), tokenize=False, add_generation_prompt=True)
        return list(tokenizer.encode(text, add_special_tokens=False)), str(prompt[-1]["content"])
    raise UserError(f"{place}: column {name!r} must hold text or chat messages, not {type(prompt).__name__}")


def _ids(row: Mapping[str, Any], place: str) -> list[int]:
    ids = row["input_ids"]
    ids = ids.tolist() if hasattr(ids, "tolist") else list(ids)
    if not all(isinstance(token, int) for token in ids):
        raise UserError(f"{place}: input_ids must be a list of token ids")
    mask = row.get("attention_mask")
    if mask is None:
        return ids
    mask = mask.tolist() if hasattr(mask, "tolist") else list(mask)
    if len(mask) != len(ids):
        raise UserError(f"{place}: attention_mask has {len(mask)} places for {len(ids)} input_ids")
    return [token for token, real in zip(ids, mask, strict=True) if real]


# TRL's batch arithmetic, and its optimizer and schedule.

# Settings that a resumed run may change, for they change no weight.
_NOT_COMPARED = (
    "output_dir", "save_strategy", "save_steps", "save_total_limit", "logging_dir", "report_to", "disable_tqdm",
    "num_sample_generations", "per_device_eval_batch_size",
)  # fmt: skip


@dataclass(frozen=True)
class BatchSizes:
    """Numbers of responses and steps over all processes, under TRL's names.

    Attributes:
        batch_size: responses of an update.
        mini_batch_size: responses of an optimizer step.
        micro_batch_size: responses of a forward and backward pass.
        num_total_batches: updates of the run.
        total_steps: optimizer steps of the run.
        run_state: the settings that a resumed run must share.
    """

    batch_size: int
    mini_batch_size: int
    micro_batch_size: int
    num_total_batches: int
    total_steps: int
    run_state: dict[str, Any]

    @property
    def accumulation_steps(self) -> int:
        """Passes of an optimizer step."""
        return self.mini_batch_size // self.micro_batch_size


def batch_sizes(args: PPOConfig, prompts: Sequence[Prompt], world_size: int) -> BatchSizes:
    """Divide the responses of the run into updates, optimizer steps and passes, as TRL does.

    Raises:
        UserError: sizes that don't divide; the message shows the arithmetic.
    """
    local = args.per_device_train_batch_size * args.gradient_accumulation_steps
    if local % args.num_mini_batches:
        raise UserError(
            f"PPOConfig: an update has {local} responses in each process (per_device_train_batch_size "
            f"{args.per_device_train_batch_size} x gradient_accumulation_steps {args.gradient_accumulation_steps}), which do not "
            f"divide into num_mini_batches={args.num_mini_batches}: choose sizes so that they do"
        )
    local_mini = local // args.num_mini_batches
    local_micro = min(args.per_device_train_batch_size, local_mini)
    if local_mini % local_micro:
        raise UserError(
            f"PPOConfig: a mini-batch of {local_mini} responses in each process does not divide into passes of "
            f"per_device_train_batch_size={local_micro}: choose gradient_accumulation_steps as a multiple of num_mini_batches"
        )
    episodes = args.total_episodes or max(1, int(args.num_train_epochs * len(prompts)))
    updates = math.ceil(episodes / (local * world_size))
    return BatchSizes(
        batch_size=local * world_size,
        mini_batch_size=local_mini * world_size,
        micro_batch_size=local_micro * world_size,
        num_total_batches=updates,
        total_steps=updates * args.num_ppo_epochs * args.num_mini_batches,
        run_state={name: value for name, value in asdict(args).items() if name not in _NOT_COMPARED}
        | {"data": _hash(prompts)},
    )


def _hash(prompts: Sequence[Prompt]) -> str:
    """Changes when a prompt changes: a resumed run must see the same data."""
    digest = blake2b(digest_size=8)
    for prompt in prompts:
        digest.update(f"{prompt.problem.answer}\0{prompt.ids}\n".encode())
    return digest.hexdigest()


def make_optimizer(args: PPOConfig, role: torch.nn.Module, steps: int) -> tuple[torch.optim.Optimizer, Any]:
    """AdamW, and transformers' schedule over the optimizer steps of the run (TRL steps it once for each update)."""
    optimizer = adamw(
        role,
        args.precision,
        lr=args.learning_rate,
        betas=(args.adam_beta1, args.adam_beta2),
        eps=args.adam_epsilon,
        weight_decay=args.weight_decay,
    )
    warmup = int(args.warmup_steps) if args.warmup_steps >= 1 else math.ceil(args.warmup_steps * steps)
    return optimizer, get_scheduler(args.lr_scheduler_type, optimizer, warmup, steps)
