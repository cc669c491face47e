"""Losses and measures of reward models, which learn from pairs of a better and a worse response.

The model of the data is Bradley & Terry's (1952): the better of two responses with scores r_c and r_r is the first with
probability sigmoid(r_c - r_r).
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from rlvr.core.masked import at_least_float32

BINS = 10
"""Of confidences, for `expected_calibration_error`."""


def bradley_terry_loss(chosen: Tensor, rejected: Tensor, margin: Tensor | float = 0.0) -> Tensor:
    """-log sigmoid(r_c - r_r - margin), per pair.

    Args:
        chosen, rejected: [B] scores of the better and the worse response.
        margin: [B] how much better the one is at least (Touvron et al., "Llama 2", 2023, eq. 2).
    """
    return -F.logsigmoid(at_least_float32(chosen) - at_least_float32(rejected) - margin)


def centering_loss(chosen: Tensor, rejected: Tensor) -> Tensor:
    """(r_c + r_r)², per pair: keeps the scores of a pair around 0, which the Bradley-Terry loss alone leaves free.

    Source: Eisenstein et al., "Helping or Herding?", 2023 (arXiv:2312.09244), section 2.
    """
    return (at_least_float32(chosen) + at_least_float32(rejected)).square()


def brier_score(chosen: Tensor, rejected: Tensor) -> Tensor:
    """(1 - p)², per pair, of the probability p that the model gives to the right order (Brier 1950). A model that knows
    nothing scores 0.25."""
    return (1 - torch.sigmoid(chosen.double() - rejected.double())).square()


def confidence_bins(chosen: Tensor, rejected: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sort pairs by how sure the model is, into `BINS` bins of equal width between 0.5 and 1.

    Returns:
        `(pairs, confidence, right)`, each [BINS] float64: how many pairs, and the sums of their confidences
        max(p, 1 - p) and of their being ranked right. The sums of several batches and ranks add up.
    """
    p = torch.sigmoid(chosen.detach().double() - rejected.detach().double())
    sure = torch.maximum(p, 1 - p)
    # A confidence of exactly 1 belongs to the last bin.
    place = ((sure - 0.5) * 2 * BINS).long().clamp(0, BINS - 1)
    sums = torch.zeros(3, BINS, dtype=torch.float64, device=p.device)
    for row, values in enumerate((torch.ones_like(sure), sure, (chosen > rejected).double())):
        sums[row].scatter_add_(0, place, values)
    return sums[0], sums[1], sums[2]


def expected_calibration_error(pairs: Tensor, confidence: Tensor, right: Tensor) -> float:
    """Mean distance between how sure the model is and how often it is right, over bins weighed by their pairs: between 0
    and 1; 0 for no pairs. The arguments are the sums of `confidence_bins`.

    Source: Naeini et al., "Obtaining Well Calibrated Probabilities Using Bayesian Binning", 2015.
    """
    return float((right - confidence).abs().sum() / pairs.sum().clamp(min=1))
