"""`RewardModelTrainer`: trains a reward model on pairs of a better and a worse response.

The loss of `rlvr reward-model` over the loop of `rlvr.trainer.supervised`.

Source: Ouyang et al., "InstructGPT", 2022, eq. 1; the margin: Touvron et al., "Llama 2", 2023, eq. 2; the centering:
Eisenstein et al., "Helping or Herding?", 2023.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from transformers import PreTrainedTokenizerBase

from rlvr.config import RewardTrainingConfig
from rlvr.core.preferences import (
    BINS,
    bradley_terry_loss,
    brier_score,
    centering_loss,
    confidence_bins,
    expected_calibration_error,
)
from rlvr.data.preferences import Pair
from rlvr.models.batch import collate
from rlvr.models.reward_model import RewardModel, RewardStatistics
from rlvr.tracking.meter import Meter
from rlvr.trainer.supervised import SupervisedTrainer, boost

if TYPE_CHECKING:
    from colossalai.booster import Booster

MEASURED_PAIRS = 1000
"""Training pairs on which the mean and spread of scores are measured if none are held out."""
# For a process that has no pairs left while others have: its passes are collective.
_IDLE = Pair((0,), (0,))
_BIN_SUMS = ("_bin_pairs", "_bin_confidence", "_bin_right")


class RewardModelTrainer(SupervisedTrainer[Pair]):
    """Mean over the pairs of an optimizer step of -log sigmoid(r_chosen - r_rejected - margin), plus
    `center_rewards_coefficient` times (r_chosen + r_rejected)².

    The mean and standard deviation of its scores on held-out responses (without any, on `MEASURED_PAIRS` of the training
    pairs) are saved with the model.

    Args:
        booster: ColossalAI Booster.
        model: a `RewardModel`, boosted or not.
        optimizer: over its parameters.
        lr_scheduler: stepped once for each optimizer step; None = constant.
        tokenizer: saved with the model.
        pairs: the data to learn from; see `rlvr.data.preferences.encode_pairs`.
        config: the run's settings; its `grad_clip` and `mixed_precision` must be what the Booster's plugin was made with.
        held_out: pairs to evaluate on.
        loop: arguments of `SupervisedTrainer` (callbacks, save_dir, tracker, run_state).

    Raises:
        UserError: no pairs, or sizes that don't divide among the processes.
    """

    def __init__(
        self,
        booster: "Booster",
        model: RewardModel,
        optimizer: Optimizer,
        lr_scheduler: LRScheduler | None,
        tokenizer: PreTrainedTokenizerBase,
        pairs: Sequence[Pair],
        config: RewardTrainingConfig,
        *,
        held_out: Sequence[Pair] = (),
        **loop: Any,
    ) -> None:
        self.center_rewards_coefficient = config.train.center_rewards_coefficient
        role = boost(booster, model, optimizer, lr_scheduler, config)
        super().__init__("reward_model", role, tokenizer, pairs, held_out, config, **loop)

    def _row_tokens(self, row: Sequence[Pair]) -> int:
        # Both responses run in one batch, which pads the shorter one unless the model runs without padding.
        if self.role.unwrapped.packs:
            return sum(len(pair.chosen) + len(pair.rejected) - len(pair.prompt) for pair in row)
        return sum(2 * max(len(pair.chosen), len(pair.rejected)) for pair in row)

    def _row_ids(self, row: Sequence[Pair]) -> Sequence[int]:
        return [token for pair in row for token in pair.chosen]

    def _weight(self, item: Pair) -> float:
        return 1.0

    def _score(self, pairs: Sequence[Pair]) -> tuple[Tensor, Tensor]:
        """Scores of the chosen and the rejected responses, [B] each, from one forward pass."""
        rows = [torch.tensor(ids) for side in ("chosen", "rejected") for ids in (getattr(p, side) for p in pairs)]
        batch = collate(rows, [row[:0] for row in rows], pad_id=self.pad_id)
        chosen, rejected = self.role.forward(batch.to(self.role.device)).chunk(2)
        return chosen, rejected

    def _loss(self, rows: Sequence[Sequence[Pair]], size: float, meter: Meter) -> Tensor:
        pairs = [pair for row in rows for pair in row]
        chosen, rejected = self._score(pairs or [_IDLE])
        if not pairs:
            return 0.0 * (chosen + rejected).sum()
        margin = torch.tensor([pair.margin for pair in pairs], device=chosen.device)
        per_pair = bradley_terry_loss(chosen, rejected, margin)
        meter.add("train/accuracy", (chosen > rejected).sum(), len(pairs))
        meter.add("train/score_difference", (chosen - rejected).detach().sum(), len(pairs))
        meter.add("train/pair_loss", per_pair.detach().sum(), len(pairs))
        if self.center_rewards_coefficient:
            centering = centering_loss(chosen, rejected)
            meter.add("train/centering_loss", centering.detach().sum(), len(pairs))
            per_pair = per_pair + self.center_rewards_coefficient * centering
        return per_pair.sum() / size

    def _measure(self, rows: Sequence[Sequence[Pair]], meter: Meter) -> None:
        pairs = [pair for row in rows for pair in row]
        chosen, rejected = self._score(pairs or [_IDLE])
        if not pairs:
            return
        margin = torch.tensor([pair.margin for pair in pairs], device=chosen.device)
        scores = torch.cat([chosen, rejected]).double()
        meter.add("eval/loss", bradley_terry_loss(chosen, rejected, margin).sum(), len(pairs))
        meter.add("eval/accuracy", (chosen > rejected).sum(), len(pairs))
        meter.add("eval/brier", brier_score(chosen, rejected).sum(), len(pairs))
        meter.add("eval/score_difference", (chosen - rejected).sum(), len(pairs))
        meter.add("eval/score_mean", scores.sum(), len(scores))
        meter.add("_scores_squared", scores.square().sum(), len(scores))
        for name, sums in zip(_BIN_SUMS, confidence_bins(chosen, rejected), strict=True):
            for place, value in enumerate(sums.tolist()):
                meter.add_count(f"{name}{place}", value)

    def _held_out_metrics(self, means: dict[str, float]) -> dict[str, float]:
        bins = [torch.tensor([means[f"{name}{i}"] for i in range(BINS)], dtype=torch.float64) for name in _BIN_SUMS]
        metrics = {name: value for name, value in means.items() if not name.startswith("_")}
        metrics["eval/calibration_error"] = expected_calibration_error(*bins)
        metrics["eval/score_std"] = max(0.0, means["_scores_squared"] - means["eval/score_mean"] ** 2) ** 0.5
        return metrics

    def _finish(self) -> None:
        """Measure the scores that the finished model gives."""
        measured = self.held_out or self.items[:MEASURED_PAIRS]
        metrics = self._held_out_metrics(self._measured(measured))
        self.role.unwrapped.statistics = RewardStatistics(metrics["eval/score_mean"], metrics["eval/score_std"])
