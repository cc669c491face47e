"""From the scores of reward functions to the pay of each response, and the choice of those that are trained on.

Comes after scoring and before advantages (`BaseExperienceMaker.judge`). Everything is one number or flag for each response, [B]
on the CPU, where reward functions run. Pay and training are two things on purpose: a response that was cut off, say, may be left
out of the loss and still count in the mean of its group.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rewards.combine import Combined
from rlvr.config import Config
from rlvr.core.advantages import has_signal
from rlvr.errors import UserError
from rlvr.rollout.engine import Rollout


@dataclass(frozen=True)
class Verdicts:
    """The pay of B responses, and what follows from it: [B] tensors on the CPU.

    Attributes:
        totals: the score, less the penalty for a missing end; a response without a score counts as 0.
        scored: true where a reward function applied.
        trained: true where the response is trained on.
        positive: true where it is right.
        greedy: score of the greedy response to the same prompt; None for estimators that don't compare with it.
    """

    totals: Tensor
    scored: Tensor
    trained: Tensor
    positive: Tensor
    greedy: Tensor | None = None

    @classmethod
    def join(cls, parts: "Sequence[Verdicts]") -> "Verdicts":
        """The verdicts of several samplings, one after the other."""
        columns = {name: [getattr(part, name) for part in parts] for name in vars(parts[0])}
        return cls(**{name: None if v[0] is None else torch.cat(v) for name, v in columns.items()})  # type: ignore[arg-type]

    def compared_with(self, greedy: "Verdicts", num_generations: int) -> "Verdicts":
        """The same with the score of the greedy response to each prompt. Where that has none, nothing is trained on.

        `greedy` holds [B / num_generations] verdicts, one for each prompt.
        """
        known = greedy.scored.repeat_interleave(num_generations)
        return replace(self, trained=self.trained & known, greedy=greedy.totals.repeat_interleave(num_generations))

    def groups_with_signal(self, size: int) -> Tensor:
        """[B / size] true for each group (`size` responses in a row) whose scores differ."""
        groups = torch.arange(len(self.totals)) // size
        # [B], alike within a group: one of each will do.
        return has_signal(self.totals, self.scored, groups)[::size]

    def take(self, rows: Sequence[int], trained: Tensor) -> "Verdicts":
        """The verdicts of these rows, trained on only where `trained` ([len(rows)]) allows it too."""
        index = torch.tensor(list(rows), dtype=torch.long)
        picked = {name: None if v is None else v[index] for name, v in vars(self).items()}
        return replace(Verdicts(**picked), trained=self.trained[index] & trained)  # type: ignore[arg-type]


def _asks_what_is_right(config: Config) -> str:
    """The setting that needs it; "" where none does."""
    if config.data.curriculum != "uniform":
        return f"--curriculum {config.data.curriculum}"
    return "--positive_lm_coef" if config.algo.positive_lm_coef else ""


def judge(rollouts: Sequence[Rollout], results: Sequence[Combined], config: Config) -> Verdicts:
    """Verdicts on B responses, from the results of the reward functions.

    Raises:
        UserError: a loss on right responses, or a curriculum, is asked for, and no reward function tells right from wrong.
    """
    a = config.algo
    finished = torch.tensor([r.finished for r in rollouts], dtype=torch.bool)
    # No total: no reward function applied (a bad gold, say). That is not a score of 0: `scored` keeps it out of the loss.
    totals = torch.tensor([r.total or 0.0 for r in results], dtype=torch.float32)
    # So does an environment that failed: what it would have said is not known.
    failed = [r.end is not None and bool(r.end.failure) for r in rollouts]
    scored = torch.tensor([r.total is not None for r in results]) & ~torch.tensor(failed)
    # A threshold of the user's goes before the verdicts of rules; neural models give none.
    if a.positive_threshold is not None:
        right = [r.total is not None and r.total > a.positive_threshold for r in results]
    elif (asks := _asks_what_is_right(config)) and scored.any() and all(r.outcome is None for r in results):
        raise UserError(
            f"{asks} needs to know which responses are right, and no reward function gives verdicts: say by "
            "--positive_threshold above which score they are, or add a function that does (gsm8k_reward_fn, weight 0)"
        )
    else:
        right = [r.outcome is not None and r.outcome.correct for r in results]
    return Verdicts(
        totals=totals - config.reward.missing_eos_penalty * (~finished),
        scored=scored,
        # `mask` leaves responses that the length limit cut out of the loss; their scores count in their groups.
        trained=scored & finished if a.truncated == "mask" else scored,
        positive=torch.tensor(right, dtype=torch.bool),
    )
