"""`Evaluation`, behind `rlvr eval` and, for each data set, `rlvr tasks`: problems read and answered part by part, each part kept as
soon as it is graded.

Under torchrun the processes answer different parts, and rank 0 keeps and prints.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch.distributed as dist
from rich.progress import Progress, TextColumn
from transformers import PreTrainedModel
from transformers.utils.logging import disable_progress_bar

from rewards import load_plugins, resolve_environment
from rlvr.boost import process as processes
from rlvr.boost.process import gather_json
from rlvr.config.reward_options import parse_reward_options
from rlvr.config.secrets import redacted
from rlvr.data.prompts import fingerprint
from rlvr.evaluation.evaluator import Evaluator, GradedResponse
from rlvr.evaluation.policy import Policy
from rlvr.evaluation.prompts import EvalDataSettings, EvalPrompt, read_eval_prompts
from rlvr.evaluation.records import Line, Records
from rlvr.evaluation.summary import summarise, summarise_each
from rlvr.prompting.conversation import Conversation
from rlvr.rollout.engine import Sampling
from rlvr.rollout.episodes import MAX_TURNS
from rlvr.scorers.rules import RLVRRewardModel
from rlvr.tracking.terminal import counting_bar

# Flags that change a response or its verdict: with another value it is another evaluation, which --resume refuses.
IDENTITY = (
    "model", "dataset", "split", "max_samples", "question_column", "answer_column", "conversation_template_config",
    "reward_functions", "reward_options", "num_generations", "temperature", "top_k", "top_p", "max_new_tokens", "max_length",
    "engine", "environment", "max_turns", "generation_batch_size", "seed", "mixed_precision",
)  # fmt: skip


def open_policy(a: argparse.Namespace) -> Policy:
    """Join the process group and load all of the model that the flags name but its weights. Collective.

    Raises:
        UserError: a model, template, engine or plugin that can't be used.
    """
    disable_progress_bar()
    process = processes.start(a.seed, a.num_threads)
    load_plugins(a.reward_plugins)
    played = None
    if a.environment is not None:
        played = resolve_environment(a.environment, options=parse_reward_options(a.reward_options))
    return Policy.open(
        a.model,
        process.device,
        template=a.conversation_template_config,
        engine=a.engine,
        environment=played,
        max_turns=a.max_turns or MAX_TURNS,
        mixed_precision=a.mixed_precision,
        trust_remote_code=a.trust_remote_code,
    )


class Evaluation:
    """One evaluation: its problems read, its folder taken up, its responses sampled and graded by `run`.

    Args:
        a: the flags of `rlvr eval`.
        policy: the model's, without its weights.

    Attributes:
        asked: the problems as prompts.
        lines: graded responses so far, with those of the folder that it goes on with.
        tokens_per_s: response tokens sampled and graded in a second, by all processes; None before anything was sampled.

    Raises:
        UserError: a data set or function that can't be used, or a folder that holds something else.
    """

    def __init__(self, a: argparse.Namespace, policy: Policy) -> None:
        self.a, self.policy = a, policy
        tokenizer, conversation = policy.tokenizer, policy.conversation
        options = parse_reward_options(a.reward_options)
        self._rewards = RLVRRewardModel(a.reward_functions, tokenizer, conversation.tags, options=options)
        self.notes: list[str] = []
        self.asked = _problems(a, conversation, self._rewards.rewards.functions, self.notes)
        sampling = Sampling(
            max_new_tokens=a.max_new_tokens,
            temperature=a.temperature,
            top_k=a.top_k,
            top_p=a.top_p,
            stop_ids=conversation.stop_ids,
            stop_strings=conversation.stop_strings,
            batch_size=a.generation_batch_size,
        )
        self._evaluator = Evaluator(
            self.asked, policy.engine, sampling, tokenizer, conversation, a.seed, a.num_generations
        )
        self._identity = {name: redacted(getattr(a, name)) for name in IDENTITY} | {
            "problems": fingerprint(one.prompt for one in self.asked)
        }
        self._is_main = not dist.is_initialized() or dist.get_rank() == 0
        self._records = Records(
            Path(a.save_path) if a.save_path and self._is_main else None,
            self._identity,
            resume=a.resume,
            unit=self._evaluator.part * a.num_generations,
            total=len(self.asked) * a.num_generations,
        )
        self._done = gather_json(len(self._records.lines) // a.num_generations)[0]
        self.tokens_per_s: float | None = self._records.earlier_result().get("tokens_per_s")

    @property
    def lines(self) -> Sequence[Line]:
        return self._records.lines

    def run(self, model: PreTrainedModel, title: str = "answering") -> dict[str, Any] | None:
        """Sample and grade what is missing. Collective. Returns the result; None in all ranks but 0."""
        tokens, started, engine = 0, time.perf_counter(), self.policy.engine
        with _bar(title, len(self.asked), self._done, quiet=self.a.json or not self._is_main) as bar:
            task = bar.task_ids[0]
            engine.on_progress = lambda finished, total, tokens: bar.update(task, tokens=f"{tokens:,} tokens")
            for answered, lines in self._evaluator.rounds(model, self._done, partial(_lines, self._rewards)):
                self._records.add(lines)
                tokens += sum(line["tokens"] for line in lines)
                bar.update(task, completed=answered)
            engine.on_progress = None
        if tokens:
            self.tokens_per_s = tokens / (time.perf_counter() - started)
        if not self._is_main:
            return None
        parts = summarise_each(self.lines)
        whole = summarise(self.lines) if len(parts) > 1 else next(iter(parts.values()))
        result = {
            "model": self.a.model, "temperature": self.a.temperature, **whole, "notes": self.notes, "save_path": self.a.save_path, "datasets": parts,
        }  # fmt: skip
        self._records.finish(result | {"settings": self._identity, "tokens_per_s": self.tokens_per_s})
        return result


def _problems(
    a: argparse.Namespace, conversation: Conversation, functions: Sequence[Any], notes: list[str]
) -> list[EvalPrompt]:
    """The problems of all data sets as prompts; those that can't be graded or are too long are left out with a note."""
    asked: list[EvalPrompt] = []
    settings = EvalDataSettings(
        "--dataset",
        max_prompt_tokens=a.max_length - a.max_new_tokens,
        split=a.split,
        question_column=a.question_column,
        answer_column=a.answer_column,
        limit=a.max_samples,
        seed=a.seed,
    )
    for name in a.dataset:
        asked += read_eval_prompts(name, name, settings, conversation, notes, functions)
    return asked


def _lines(rewards: RLVRRewardModel, answers: Sequence[GradedResponse]) -> Iterator[Line]:
    """The lines to keep of the answers: figures, texts, and the scores of the reward functions."""
    samples = [one.sample for one in answers]
    scores = rewards.score(samples) if rewards.rewards.functions and samples else []
    for index, answered in enumerate(answers):
        problem = answered.asked.prompt.problem
        texts = {"question": problem.question, "gold": problem.answer, "response": answered.sample.response}
        line = {**answered.figures(), **texts}
        if scores:
            line["scores"] = {name: one.value for name, one in scores[index].scores.items()}
        yield line


def _bar(title: str, total: int, done: int, quiet: bool) -> Progress:
    bar = counting_bar(TextColumn("{task.fields[tokens]}"), quiet=quiet)
    bar.add_task(title, total=total, completed=done, tokens="")
    return bar
