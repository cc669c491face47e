"""Held-out accuracy: greedy (or sampled) responses, graded by rule whatever the reward functions pay."""

from collections.abc import Sequence
from typing import Any

import torch.distributed as dist
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rewards import grade
from rlvr.conversation import Conversation
from rlvr.data.prompts import Prompt
from rlvr.metrics import Meter
from rlvr.rewarding import make_sample
from rlvr.rollout.engine import Engine, Sampling


class Evaluator:
    """Answers a fixed set of problems and counts what is right.

    Args:
        prompts: the held-out problems; split over ranks here.
        engine: samples responses.
        sampling: how; temperature 0 is greedy.
        tokenizer: of the model.
        conversation: template, whose answer tags hold the answer.
        seed: of the sampling; the same at every evaluation, so that curves differ by the model only.
    """

    def __init__(
        self,
        prompts: Sequence[Prompt],
        engine: Engine,
        sampling: Sampling,
        tokenizer: PreTrainedTokenizerBase,
        conversation: Conversation,
        seed: int = 0,
    ) -> None:
        self.prompts = list(prompts)
        self.engine, self.sampling = engine, sampling
        self.tokenizer, self.conversation, self.seed = tokenizer, conversation, seed

    def __call__(self, model: PreTrainedModel) -> dict[str, float]:
        """`eval/accuracy`, `eval/format`, `eval/length_tokens`, `eval/truncated` over all problems. Collective."""
        rank, world_size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        mine = self.prompts[rank::world_size]
        meter = Meter()
        rollouts = self.engine.generate(model, mine, self.sampling, ("eval", self.seed, rank)) if mine else []
        for prompt, rollout in zip(mine, rollouts, strict=True):
            response: Any = rollout.response_ids.tolist()
            sample = make_sample(
                self.tokenizer, prompt.ids, response, gold=prompt.problem.answer, tags=self.conversation.tags
            )
            outcome = grade(
                sample.response,
                prompt.problem.answer or "",
                tags=self.conversation.tags,
                question=prompt.problem.question,
            )
            meter.add("eval/accuracy", float(outcome.correct))
            meter.add("eval/format", float(self.conversation.tags.is_well_formed(sample.response)))
            meter.add("eval/length_tokens", len(response))
            meter.add("eval/truncated", float(not rollout.finished))
        return meter.means()
