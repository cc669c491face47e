"""`Evaluator`: held-out problems answered and graded by rule, whatever the reward functions pay; for `rlvr eval` and training.

The problems are answered part by part, and what is drawn for a part depends on its place among the problems alone, so that
the figures are the same for any number of processes, and for an evaluation that goes on where another was stopped.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch.distributed as dist
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rewards import Outcome, Sample, grade, resolve
from rewards.pool import RewardPool
from rlvr.boost.process import gather_json
from rlvr.evaluation.prompts import EvalPrompt
from rlvr.evaluation.records import Line
from rlvr.evaluation.summary import as_metrics
from rlvr.prompting.conversation import Conversation
from rlvr.rollout.engine import Engine, EpisodeEnd, Rollout, Sampling
from rlvr.scorers.rules import sample_of


@dataclass(frozen=True)
class GradedResponse:
    """A response to a held-out problem, with the verdict on it; `number` counts the responses to the same one."""

    asked: EvalPrompt
    number: int
    sample: Sample
    outcome: Outcome
    in_format: bool
    tokens: int
    correct_anyway: bool
    """Right, or right but for the tags, which a model that was not trained on them leaves out."""
    end: EpisodeEnd | None = None
    """How the episode ended, where an environment has played."""

    def figures(self) -> Line:
        """The line that `rlvr/evaluation/summary.py` reads."""
        return {
            "dataset": self.asked.dataset,
            "problem": self.asked.prompt.problem.id,
            "sample": self.number,
            "status": self.outcome.status,
            "correct": self.outcome.correct,
            "correct_anyway": self.correct_anyway,
            "answer": self.outcome.answer,
            "format": self.in_format,
            "finished": self.sample.finished,
            "tokens": self.tokens,
            **({} if self.end is None else {"turns": self.end.turns, "environment": self.end.score}),
        }


Describe = Callable[[Sequence[GradedResponse]], Iterable[Line]]
Verify = Callable[[Sequence[Sample]], Sequence[Outcome | None]]


def figures(answers: Sequence[GradedResponse]) -> list[Line]:
    """Their lines for the summary, without texts: training keeps no more."""
    return [answered.figures() for answered in answers]


class Evaluator:
    """Answers a fixed set of problems and grades the answers.

    Args:
        asked: the held-out problems; the same in all processes, which divide them here.
        engine: samples responses.
        sampling: of responses; temperature 0 is greedy. A part holds as many problems as `batch_size` has room for.
        tokenizer: of the model.
        conversation: template, whose answer tags hold the answer.
        seed: of the sampling; the same at every evaluation, so that curves differ by the model only.
        samples: responses to each problem.
    """

    def __init__(
        self,
        asked: Sequence[EvalPrompt],
        engine: Engine,
        sampling: Sampling,
        tokenizer: PreTrainedTokenizerBase,
        conversation: Conversation,
        seed: int = 0,
        samples: int = 1,
    ) -> None:
        self.asked = list(asked)
        self.engine, self.sampling = engine, sampling
        self.tokenizer, self.conversation = tokenizer, conversation
        self.seed, self.samples = seed, samples
        self.part = max(1, sampling.batch_size // samples)

    def __call__(
        self, model: PreTrainedModel, stop_asked: Callable[[], bool] = lambda: False
    ) -> dict[str, float] | None:
        """The figures under the names of metrics, `eval/accuracy` and so on. Collective.

        Args:
            stop_asked: asked after each part; gives the same answer in all processes. Where it is yes, there are no figures.
        """
        found: list[Line] = []
        for done, lines in self.rounds(model):
            found += lines
            if done < len(self.asked) and stop_asked():
                return None
        return as_metrics(found)

    def rounds(
        self, model: PreTrainedModel, done: int = 0, describe: Describe = figures
    ) -> Iterator[tuple[int, list[Line]]]:
        """Answer the problems from place `done` on; each process takes a part in each round. Collective.

        Args:
            describe: makes lines of this process's answers, as plain JSON; by default those that the summary reads.

        Yields:
            How many problems are answered after the round, and the lines of the round in order; the same in all processes.
        """
        with self._verifier() as verify:
            yield from self._rounds(model, done, describe, verify)

    def _rounds(
        self, model: PreTrainedModel, done: int, describe: Describe, verify: Verify
    ) -> Iterator[tuple[int, list[Line]]]:
        rank, world_size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        count, answered, tokens = len(self.asked), 0, 0
        own = sum(1 for i in range(done, count) if (i - done) // self.part % world_size == rank) * self.samples
        while done < count:
            start, end = (min(count, done + self.part * place) for place in (rank, rank + 1))
            with self._reporting(answered, own, tokens):
                answers = self._answers(model, start, end, verify)
            answered, tokens = answered + len(answers), tokens + sum(one.tokens for one in answers)
            done = min(count, done + self.part * world_size)
            yield done, [line for lines in gather_json(list(describe(answers))) for line in lines]

    def _answers(self, model: PreTrainedModel, start: int, end: int, verify: Verify) -> list[GradedResponse]:
        places = [(asked, number) for asked in self.asked[start:end] for number in range(self.samples)]
        prompts = [asked.prompt for asked, _ in places]
        rollouts = self.engine.generate(model, prompts, self.sampling, ("eval", self.seed, start)) if prompts else []
        tags = self.conversation.tags
        answered = zip(prompts, rollouts, strict=True)
        samples = [sample_of(self.tokenizer, prompt.problem, rollout, tags) for prompt, rollout in answered]
        return [
            self._grade(*place, rollout, sample, verified)
            for place, rollout, sample, verified in zip(places, rollouts, samples, verify(samples), strict=True)
        ]

    @contextmanager
    def _verifier(self) -> Iterator[Verify]:
        """Gives the verdicts of the tasks' own verifiers, None for problems without one. They are code of others, and run with a
        deadline in a process of their own."""
        if not any(asked.prompt.problem.has_verifier for asked in self.asked):
            yield lambda samples: [None] * len(samples)
            return
        with RewardPool([resolve("reasoning_gym_reward_fn")], workers=1, max_failed_share=1.0) as pool:
            yield lambda samples: [score.outcome for score in pool.score(samples)[0]]

    @contextmanager
    def _reporting(self, answered: int, total: int, tokens: int) -> Iterator[None]:
        """Within the block, the engine's progress counts all that this process answers, not a part of it."""
        told = self.engine.on_progress
        if told is not None:
            self.engine.on_progress = lambda finished, _, new: told(answered + finished, total, tokens + new)
        try:
            yield
        finally:
            self.engine.on_progress = told

    def _grade(
        self, asked: EvalPrompt, number: int, rollout: Rollout, sample: Sample, verified: Outcome | None
    ) -> GradedResponse:
        problem, tags = asked.prompt.problem, self.conversation.tags
        judge = partial(grade, sample.response, problem.answer or "", question=problem.question)
        outcome, in_format = verified or judge(tags=tags), tags.is_well_formed(sample.response)
        if rollout.end is not None and rollout.end.failure:
            outcome = Outcome("error", message=f"the environment failed: {rollout.end.failure}")
        correct_anyway = outcome.correct or (verified is None and not in_format and judge().correct)
        tokens = len(rollout.action_ids)
        return GradedResponse(asked, number, sample, outcome, in_format, tokens, correct_anyway, rollout.end)
