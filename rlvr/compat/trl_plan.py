"""TRL's batch arithmetic, and its optimizer and schedule."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any

import torch
from transformers import get_scheduler

from rlvr.boost.schedule import adamw
from rlvr.compat.trl_config import PPOConfig
from rlvr.data.prompts import Prompt
from rlvr.errors import UserError

# Settings that may differ between a run and its continuation: they don't change a single weight.
_FREE = (
    "output_dir", "save_strategy", "save_steps", "save_total_limit", "logging_dir", "report_to", "disable_tqdm",
    "num_sample_generations", "per_device_eval_batch_size",
)  # fmt: skip


@dataclass(frozen=True)
class Updates:
    """Sizes over all processes, named as TRL names them.

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
        return self.mini_batch_size // self.micro_batch_size


def plan_updates(args: PPOConfig, prompts: Sequence[Prompt], world_size: int) -> Updates:
    """How responses, processes and optimizer steps divide.

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
    return Updates(
        batch_size=local * world_size,
        mini_batch_size=local_mini * world_size,
        micro_batch_size=local_micro * world_size,
        num_total_batches=updates,
        total_steps=updates * args.num_ppo_epochs * args.num_mini_batches,
        run_state={name: value for name, value in asdict(args).items() if name not in _FREE} | {"data": _hash(prompts)},
    )


def _hash(prompts: Sequence[Prompt]) -> str:
    """Changes when a prompt changes: a resumed run must see the same data."""
    digest = blake2b(digest_size=8)
    for prompt in prompts:
        digest.update(f"{prompt.problem.answer}\0{prompt.ids}\n".encode())
    return digest.hexdigest()


def make_optimizer(args: PPOConfig, role: torch.nn.Module, steps: int) -> tuple[torch.optim.Optimizer, Any]:
    """AdamW and transformers' schedule over the optimizer steps of the run (TRL steps it once for each update)."""
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
