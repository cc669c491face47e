"""What responses are paid, and which of them are trained on."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rewards.combine import Combined
from rlvr.core.advantages import has_signal
from rlvr.errors import UserError
from rlvr.experience.settings import ExperienceSettings
from rlvr.rollout.engine import Rollout


@dataclass(frozen=True)
class Verdicts:
    """Per response: what it is paid, in [B] tensors on the CPU.

    Attributes:
        totals: score, less the penalty for a missing end; 0 where there is none.
        scored: whether a reward function applied.
        trained: whether it is trained on.
        positive: whether it is right.
        greedy: score of the greedy response to its prompt; None where nobody asks.
    """

    totals: Tensor
    scored: Tensor
    trained: Tensor
    positive: Tensor
    greedy: Tensor | None = None

    @classmethod
    def join(cls, parts: "Sequence[Verdicts]") -> "Verdicts":
        """One after the other."""
        columns = {name: [getattr(part, name) for part in parts] for name in vars(parts[0])}
        return cls(**{name: None if v[0] is None else torch.cat(v) for name, v in columns.items()})  # type: ignore[arg-type]

    def compared_with(self, greedy: "Verdicts", num_generations: int) -> "Verdicts":
        """With the score of the greedy response to the same prompt; without one, a response is not trained on."""
        known = greedy.scored.repeat_interleave(num_generations)
        return replace(self, trained=self.trained & known, greedy=greedy.totals.repeat_interleave(num_generations))

    def groups_with_signal(self, size: int) -> Tensor:
        """[B / size] whether the scores in each group, `size` responses in a row, differ."""
        groups = torch.arange(len(self.totals)) // size
        return has_signal(self.totals, self.scored, groups)[::size]

    def take(self, rows: Sequence[int], trained: Tensor) -> "Verdicts":
        """Of these responses only, trained on where `trained` ([len(rows)]) allows it too."""
        index = torch.tensor(list(rows), dtype=torch.long)
        picked = {name: None if v is None else v[index] for name, v in vars(self).items()}
        return replace(Verdicts(**picked), trained=self.trained[index] & trained)  # type: ignore[arg-type]


def judge(rollouts: Sequence[Rollout], results: Sequence[Combined], settings: ExperienceSettings) -> Verdicts:
    """Verdicts on the responses, from what the reward functions said.

    Raises:
        UserError: right responses are asked for, and no reward function tells them from wrong ones.
    """
    s = settings
    finished = torch.tensor([r.finished for r in rollouts], dtype=torch.bool)
    totals = torch.tensor([r.total or 0.0 for r in results], dtype=torch.float32)
    scored = torch.tensor([r.total is not None for r in results], dtype=torch.bool)
    if s.positive_threshold is not None:
        right = [r.total is not None and r.total > s.positive_threshold for r in results]
    elif s.keep_positive and scored.any() and all(r.outcome is None for r in results):
        raise UserError(
            "--positive_lm_coef needs to know which responses are right, and no reward function gives verdicts: say by "
            "--positive_threshold above which score they are, or add a function that does (gsm8k_reward_fn, weight 0)"
        )
    else:
        right = [r.outcome is not None and r.outcome.correct for r in results]
    return Verdicts(
        totals=totals - s.missing_eos_penalty * (~finished),
        scored=scored,
        trained=scored & finished if s.truncated == "mask" else scored,
        positive=torch.tensor(right, dtype=torch.bool),
    )
