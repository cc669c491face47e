"""Scores from a trained reward model: `NeuralRewardModel`; together with reward functions: `WeightedRewards`.

    reward_model = NeuralRewardModel(RewardModel.from_pretrained("runs/rm/reward_model"), tokenizer)
    reward_model.score(samples)[0].total

A reward model may read other tokens than the policy (`Retokenize`), and its scores may be normalised (`RunningNormaliser`,
`FixedNormaliser`). `rlvr/scorers/build.py` chooses both from the settings.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from transformers import PreTrainedTokenizerBase

from rewards import Sample, Tags
from rewards.combine import Aggregation, Combiner
from rewards.outcome import Score
from rlvr.boost.frozen import Frozen
from rlvr.boost.process import gather_json, group_device, max_over_ranks
from rlvr.config.reward_options import NEURAL
from rlvr.errors import UserError
from rlvr.models.batch import collate
from rlvr.models.reward_model import RewardModel, RewardStatistics
from rlvr.prompting.conversation import Conversation
from rlvr.scorers.rules import RewardScorer, RLVRRewardModel, Scoring

Encode = Callable[[Sample], tuple[Sequence[int], Sequence[int]]]
"""A sample's prompt and response as the reward model's tokens."""

_CPU = torch.device("cpu")
_IDLE = ((0,), (0,))
"""What a process runs that has no samples left."""


def sampled_tokens(sample: Sample) -> tuple[Sequence[int], Sequence[int]]:
    """The tokens as they were sampled, for a reward model with the policy's tokenizer."""
    return sample.prompt_ids, sample.response_ids


class Retokenize:
    """Encodes prompt and response anew, for a reward model with a tokenizer of its own.

    The question goes through the reward model's template and the response through its tokenizer, as in the data that it
    was trained on. A sample without a question is encoded from the text of its prompt. A response that ended by itself
    gets the end of the assistant's turn.
    """

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation

    def __call__(self, sample: Sample) -> tuple[Sequence[int], Sequence[int]]:
        c = self.conversation
        prompt = c.encode(sample.prompt) if sample.question is None else c.encode_prompt(sample.question)
        return prompt, c.encode_response(sample.response) if sample.finished else c.encode(sample.response)


# Normalisers: scores brought to mean 0 and standard deviation 1. A Bradley-Terry loss fixes only differences of scores, so their
# origin and scale are arbitrary (Ouyang et al. 2022, section 3.5), while the KL that is subtracted and the critic's rate are not.


class Normaliser(Protocol):
    """Learns from scores, and normalises them."""

    def observe(self, scores: Sequence[float]) -> None:
        """Take these into account, with those of all other ranks. Collective."""
        ...

    def __call__(self, score: float) -> float: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class FixedNormaliser:
    """Normalises by statistics that were measured once, which `reward_statistics.json` beside the reward model holds."""

    def __init__(self, statistics: RewardStatistics) -> None:
        self.statistics = statistics

    def observe(self, scores: Sequence[float]) -> None:
        """Nothing is learned."""

    def __call__(self, score: float) -> float:
        return _standard(score, self.statistics.mean, self.statistics.std)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """There is no state."""


class RunningNormaliser:
    """Normalises by mean and standard deviation of all scores of the run so far, those that are normalised included.

    Moments are merged in rank order (Chan, Golub and LeVeque 1979), in double precision, so that every rank has the same
    numbers bit for bit.
    """

    def __init__(self) -> None:
        self.count, self.mean, self.sum_of_squares = 0, 0.0, 0.0

    def observe(self, scores: Sequence[float]) -> None:
        mean = math.fsum(scores) / len(scores) if scores else 0.0
        own = [len(scores), mean, math.fsum((score - mean) ** 2 for score in scores)]
        for count, mean, sum_of_squares in gather_json(own):
            if count:
                self._merge(count, mean, sum_of_squares)

    def _merge(self, count: int, mean: float, sum_of_squares: float) -> None:
        total, difference = self.count + count, mean - self.mean
        self.sum_of_squares += sum_of_squares + difference**2 * self.count * count / total
        self.mean += difference * count / total
        self.count = total

    @property
    def std(self) -> float:
        """Standard deviation of the sample; 0 before the second score."""
        return math.sqrt(self.sum_of_squares / (self.count - 1)) if self.count > 1 else 0.0

    def __call__(self, score: float) -> float:
        return _standard(score, self.mean, self.std)

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count, "mean": self.mean, "sum_of_squares": self.sum_of_squares}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.count, self.mean, self.sum_of_squares = state["count"], state["mean"], state["sum_of_squares"]


def _standard(score: float, mean: float, std: float) -> float:
    """Scores that are all the same are all 0."""
    return (score - mean) / std if std > 0 else score - mean


# The scorers.


class NeuralRewardModel(RewardScorer):
    """Scores responses with a reward model, each rank its own, in batches of similar length.

    Args:
        model: the reward model. Unless it is `Frozen` already, it computes in float32 on the CPU.
        tokenizer: the policy's.
        tags: the conversation template's response tags.
        weight: of its score in the total.
        encode: a sample's prompt and response as the model's tokens; by default those that were sampled.
        normaliser: brings scores to mean 0 and standard deviation 1; the model's own score is then the component `raw`.
        batch_size: most sequences in one forward pass.
        offload: keep it in main memory while nothing is scored.
        aggregation: see `rewards.combine`.
    """

    def __init__(
        self,
        model: RewardModel | Frozen,
        tokenizer: PreTrainedTokenizerBase | None = None,
        tags: Tags | None = None,
        *,
        weight: float = 1.0,
        encode: Encode = sampled_tokens,
        normaliser: Normaliser | None = None,
        batch_size: int = 64,
        offload: bool = False,
        aggregation: Aggregation = "sum",
    ) -> None:
        self.frozen = model if isinstance(model, Frozen) else Frozen(model)
        role: Any = self.frozen.model
        self.device, self.offload = self.frozen.device, offload
        if offload:
            self.frozen.to(_CPU)
        self.tokenizer, self.tags = tokenizer, tags
        self.combiner = Combiner([NEURAL], [weight], aggregation)
        self.encode, self.normaliser, self.batch_size = encode, normaliser, batch_size
        # Absolute positions end somewhere. Longer samples are cut on the left (`_truncate`): the response is what is judged.
        places = getattr(role.model.config.get_text_config(), "max_position_embeddings", None)
        self.max_tokens: int | None = places

    @property
    def names(self) -> list[str]:
        return self.combiner.names

    def begin(self) -> "NeuralScoring":
        return NeuralScoring(self)

    def to(self, device: torch.device | str) -> "NeuralRewardModel":
        """Compute on this device from now on."""
        self.device = torch.device(device)
        if not self.offload:
            self.frozen.to(self.device)
        return self

    def state_dict(self) -> dict[str, Any]:
        return self.normaliser.state_dict() if self.normaliser is not None else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if self.normaliser is not None:
            self.normaliser.load_state_dict(state)

    @torch.no_grad()
    def raw_scores(self, samples: Sequence[Sample]) -> list[float]:
        """The model's own score of each sample.

        Raises:
            UserError: a score is not finite.
        """
        rows = [self._truncate(*self.encode(sample)) for sample in samples]
        order = sorted(range(len(rows)), key=lambda i: len(rows[i][0]) + len(rows[i][1]))
        scores = [0.0] * len(rows)
        if self.offload:
            self.frozen.to(self.device)
        for index in self._passes(order):
            given = [rows[i] for i in index] or [_IDLE]
            batch = collate([_ids(prompt) for prompt, _ in given], [_ids(response) for _, response in given])
            for i, score in zip(index, self.frozen.forward(batch.to(self.device)).tolist(), strict=False):
                scores[i] = score
        if self.offload:
            self.frozen.to(_CPU)
        for sample, score in zip(samples, scores, strict=True):
            if not math.isfinite(score):
                raise UserError(
                    f"the reward model gave {score} for the response {sample.response[:80]!r}: its weights are broken, or too "
                    "large for the precision; try --mixed_precision fp32"
                )
        return scores

    def _passes(self, order: list[int]) -> list[list[int]]:
        """The samples of each forward pass; where the model is sharded as many passes in all processes, the last perhaps without."""
        passes = [order[start : start + self.batch_size] for start in range(0, len(order), self.batch_size)]
        most = max_over_ranks(len(passes), group_device()) if self.frozen.sharded else len(passes)
        return passes + [[]] * (most - len(passes))

    def _truncate(self, prompt: Sequence[int], response: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
        surplus = len(prompt) + len(response) - self.max_tokens if self.max_tokens else 0
        if surplus <= 0:
            return prompt, response
        # At least one token of the prompt stays: the response begins after something.
        cut = min(surplus, len(prompt) - 1)
        return prompt[cut:], response[surplus - cut :]


def _ids(tokens: Sequence[int]) -> torch.Tensor:
    return torch.tensor(tokens, dtype=torch.long)


class NeuralScoring(Scoring):
    """Scores by a neural model, all at once when they are asked for: earlier, it would take the device from the engine."""

    def __init__(self, model: NeuralRewardModel) -> None:
        super().__init__(model.combiner)
        self.model = model

    def columns(self) -> list[list[Score]]:
        raw = self.model.raw_scores(self.samples)
        normaliser = self.model.normaliser
        if normaliser is None:
            return [[Score(score) for score in raw]]
        normaliser.observe(raw)
        return [[Score(normaliser(score), components={"raw": score}) for score in raw]]


class WeightedRewards(RewardScorer):
    """Functions and a neural model, added up with weights.

    Args:
        rules: the functions with their weights.
        neural: the model with its weight.
        aggregation: how all of them are added up; see `rewards.combine`.
    """

    def __init__(self, rules: RLVRRewardModel, neural: NeuralRewardModel, aggregation: Aggregation = "sum") -> None:
        self.rules, self.neural = rules, neural
        self.tokenizer, self.tags = rules.tokenizer, rules.tags
        self.combiner = Combiner(
            [*rules.names, *neural.names], [*rules.rewards.weights, *neural.combiner.weights], aggregation
        )

    @property
    def names(self) -> list[str]:
        return self.combiner.names

    def begin(self) -> "WeightedScoring":
        return WeightedScoring(self)

    def to(self, device: torch.device | str) -> "WeightedRewards":
        self.neural.to(device)
        return self

    def close(self) -> None:
        self.rules.close()

    def state_dict(self) -> dict[str, Any]:
        return self.neural.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.neural.load_state_dict(state)


class WeightedScoring(Scoring):
    """Functions score in their worker processes while the neural model scores here."""

    def __init__(self, model: WeightedRewards) -> None:
        super().__init__(model.combiner)
        self.rules, self.neural = model.rules.begin(), model.neural.begin()

    def add(self, samples: Sequence[Sample]) -> None:
        super().add(samples)
        self.rules.add(samples)
        self.neural.add(samples)

    def complete(self) -> None:
        self.rules.complete()

    def columns(self) -> list[list[Score]]:
        self.complete()
        # First: ranks meet in the normaliser, and a function that raises on one rank must not leave the others waiting there.
        of_model = self.neural.columns()
        return [*self.rules.columns(), *of_model]
