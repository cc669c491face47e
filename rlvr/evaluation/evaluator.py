"""`Evaluator`: answers to held-out problems, graded by rule whatever the reward functions pay."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch.distributed as dist
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rewards import Outcome, Sample, grade
from rlvr.conversation import Conversation
from rlvr.data.prompts import Prompt
from rlvr.metrics import Meter
from rlvr.rewarding import make_sample
from rlvr.rollout.engine import Engine, Rollout, Sampling


@dataclass(frozen=True)
class Answered:
    """A response to a held-out problem, with the verdict on it."""

    prompt: Prompt
    sample: Sample
    outcome: Outcome
    in_format: bool
    tokens: int
    correct_anyway: bool  # right, or right but for the tags, which a model that was not trained on them leaves out


class Evaluator:
    """Answers a fixed set of problems and counts what is right.

    Args:
        prompts: the held-out problems; split over ranks here.
        engine: samples responses.
        sampling: how; temperature 0 is greedy.
        tokenizer: of the model.
        conversation: template, whose answer tags hold the answer.
        seed: of the sampling; the same at every evaluation, so that curves differ by the model only.
        samples: responses to each problem.
    """

    def __init__(
        self,
        prompts: Sequence[Prompt],
        engine: Engine,
        sampling: Sampling,
        tokenizer: PreTrainedTokenizerBase,
        conversation: Conversation,
        seed: int = 0,
        samples: int = 1,
    ) -> None:
        self.prompts = list(prompts)
        self.engine, self.sampling = engine, sampling
        self.tokenizer, self.conversation = tokenizer, conversation
        self.seed, self.samples = seed, samples

    def __call__(self, model: PreTrainedModel) -> dict[str, float]:
        """`eval/accuracy`, `eval/format`, `eval/length_tokens`, `eval/truncated`, and `eval/problems`, their number.
        Collective."""
        rank, world_size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        meter = Meter()
        for answered in self.answers(model, self.prompts[rank::world_size], rank):
            meter.add("eval/accuracy", float(answered.outcome.correct))
            meter.add_count("eval/problems", 1.0)
            meter.add("eval/format", float(answered.in_format))
            meter.add("eval/length_tokens", answered.tokens)
            meter.add("eval/truncated", float(not answered.sample.finished))
        return meter.means()

    def answers(self, model: PreTrainedModel, prompts: Sequence[Prompt], place: int = 0) -> list[Answered]:
        """The model's responses to some of the problems, `samples` to each, one after the other.

        `place` is what the random numbers depend on besides the seed: a rank, or which part of the problems this is.
        """
        asked = [prompt for prompt in prompts for _ in range(self.samples)]
        rollouts = self.engine.generate(model, asked, self.sampling, ("eval", self.seed, place)) if asked else []
        return [self._grade(prompt, rollout) for prompt, rollout in zip(asked, rollouts, strict=True)]

    def _grade(self, prompt: Prompt, rollout: Rollout) -> Answered:
        problem, tags = prompt.problem, self.conversation.tags
        sample = make_sample(
            self.tokenizer,
            prompt.ids,
            rollout.response_ids.tolist(),
            gold=problem.answer,
            tags=tags,
            question=problem.question,
            finished=rollout.finished,
            columns=problem.columns,
        )
        outcome = grade(sample.response, problem.answer or "", tags=tags, question=problem.question)
        in_format = tags.is_well_formed(sample.response)
        anyway = outcome if in_format else grade(sample.response, problem.answer or "", question=problem.question)
        correct_anyway = outcome.correct or anyway.correct
        return Answered(prompt, sample, outcome, in_format, len(rollout.response_ids), correct_anyway)
