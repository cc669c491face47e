"""`SFTTrainer`: supervised fine-tuning of a causal language model, with the loss on responses only.

The loss of `rlvr sft` over the loop of `rlvr.trainer.supervised`.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rlvr.config import SFTConfig
from rlvr.core.losses import StepSize, aggregate, lm_loss
from rlvr.data.examples import Example
from rlvr.models.actor import Actor
from rlvr.models.packing import IDLE, check_packing, collate_examples, pack_by_length
from rlvr.tracking.meter import Meter
from rlvr.trainer.roles import as_actor
from rlvr.trainer.supervised import SupervisedTrainer, boost

if TYPE_CHECKING:
    from colossalai.booster import Booster


class SFTTrainer(SupervisedTrainer[Example]):
    """Mean negative log-likelihood of the learned tokens over an optimizer step: every token weighs the same.

    Args:
        booster: ColossalAI Booster.
        model: a transformers causal LM or an `Actor`, or an `Actor` that `booster` has boosted.
        optimizer: over its parameters.
        lr_scheduler: stepped once for each optimizer step; None = constant.
        tokenizer: saved with the model.
        examples: the data to learn from; see `rlvr.data.sft.encode_rows`.
        config: the run's settings. Its `grad_clip` and `mixed_precision` must be what the Booster's plugin was made with.
            `packing` puts several examples into one row, no longer than the longest, none of which sees another: the result
            is the same, with less padding to compute. Rows that run without padding anyway stay as they are.
        held_out: examples to evaluate on.
        loop: arguments of `SupervisedTrainer` (callbacks, save_dir, tracker, run_state).

    Raises:
        UserError: `packing` with a model in which packed examples see each other, or sizes that don't divide.
    """

    def __init__(
        self,
        booster: "Booster",
        model: PreTrainedModel | Actor,
        optimizer: Optimizer,
        lr_scheduler: LRScheduler | None,
        tokenizer: PreTrainedTokenizerBase,
        examples: Sequence[Example],
        config: SFTConfig,
        *,
        held_out: Sequence[Example] = (),
        **loop: Any,
    ) -> None:
        self.packing = config.train.packing
        role = boost(booster, as_actor(model), optimizer, lr_scheduler, config)
        if self.packing and not role.unwrapped.packs:
            with role.full_weights() as actor, role.autocast():
                check_packing(actor)
        super().__init__("actor", role, tokenizer, examples, held_out, config, **loop)

    def _rows(self, items: Sequence[Example]) -> list[list[Example]]:
        if not self.packing or not items or self.role.unwrapped.packs:
            return super()._rows(items)
        lengths = [len(item.ids) for item in items]
        # No row is longer than the longest example: longer ones would only make attention dearer.
        return [[items[i] for i in places] for places in pack_by_length(lengths, max(lengths))]

    def _row_tokens(self, row: Sequence[Example]) -> int:
        return sum(len(example.ids) for example in row)

    def _row_ids(self, row: Sequence[Example]) -> Sequence[int]:
        return [token for example in row for token in example.ids]

    def _weight(self, item: Example) -> float:
        return len(item.learned)

    def _loss(self, rows: Sequence[Sequence[Example]], size: float, meter: Meter) -> Tensor:
        batch = collate_examples(rows or [[IDLE]], self.pad_id).to(self.role.device)
        per_token = lm_loss(self.role.forward(batch, with_entropy=False).logprobs)
        meter.add_count("train/tokens", float(batch.response_mask.sum()))
        return aggregate(per_token, batch.response_mask, StepSize(size, 0), "token_mean")

    def _measure(self, rows: Sequence[Sequence[Example]], meter: Meter) -> None:
        batch = collate_examples(rows or [[IDLE]], self.pad_id).to(self.role.device)
        logprobs = self.role.forward(batch, with_entropy=False).logprobs
        meter.add_tokens("eval/loss", lm_loss(logprobs), batch.response_mask)

    def _held_out_metrics(self, means: dict[str, float]) -> dict[str, float]:
        loss = means["eval/loss"]
        return {"eval/loss": loss, "eval/perplexity": math.exp(min(loss, 700.0))}
