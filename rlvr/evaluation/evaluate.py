"""`evaluate`, behind `rlvr eval`: model and problems loaded, answered part by part, each part kept as soon as it is graded.

Under torchrun the processes answer different parts, and rank 0 keeps and prints.
"""

import argparse
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.progress import Progress, TextColumn
from transformers.utils.logging import disable_progress_bar

from rewards import load_plugins
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
from rlvr.scorers.rules import RLVRRewardModel
from rlvr.tracking.terminal import counting_bar

# Flags that change a response or its verdict: with another value it is another evaluation, which --resume refuses.
IDENTITY = (
    "model", "dataset", "split", "max_samples", "question_column", "answer_column", "conversation_template_config",
    "reward_functions", "reward_options", "num_generations", "temperature", "top_k", "top_p", "max_new_tokens", "max_length",
    "engine", "generation_batch_size", "seed", "mixed_precision",
)  # fmt: skip


def evaluate(a: argparse.Namespace) -> dict[str, Any] | None:
    """Run the evaluation that the flags of `rlvr eval` ask for. Collective. Returns the result; None in all ranks but 0.

    Raises:
        UserError: a model, data set, template or function that can't be used, or a folder that holds something else.
    """
    disable_progress_bar()
    process = processes.start(a.seed, a.num_threads)
    device = process.device
    load_plugins(a.reward_plugins)
    policy = Policy.open(
        a.model,
        device,
        template=a.conversation_template_config,
        engine=a.engine,
        mixed_precision=a.mixed_precision,
        trust_remote_code=a.trust_remote_code,
    )
    tokenizer, conversation, engine = policy.tokenizer, policy.conversation, policy.engine
    options = parse_reward_options(a.reward_options)
    rewards = RLVRRewardModel(a.reward_functions, tokenizer, conversation.tags, options=options)
    notes: list[str] = []
    asked = _problems(a, conversation, rewards.rewards.functions, notes)
    sampling = Sampling(
        max_new_tokens=a.max_new_tokens,
        temperature=a.temperature,
        top_k=a.top_k,
        top_p=a.top_p,
        stop_ids=conversation.stop_ids,
        stop_strings=conversation.stop_strings,
        batch_size=a.generation_batch_size,
    )
    evaluator = Evaluator(asked, engine, sampling, tokenizer, conversation, a.seed, a.num_generations)
    identity = {name: redacted(getattr(a, name)) for name in IDENTITY} | {
        "problems": fingerprint(one.prompt for one in asked)
    }
    folder = Path(a.save_path) if a.save_path else None
    records = Records(
        folder if process.is_main else None,
        identity,
        resume=a.resume,
        unit=evaluator.part * a.num_generations,
        total=len(asked) * a.num_generations,
    )
    done = gather_json(len(records.lines) // a.num_generations)[0]
    model = policy.load()
    with _bar(len(asked), done, quiet=a.json or not process.is_main) as bar:
        engine.on_progress = lambda finished, total, tokens: bar.update(bar.task_ids[0], tokens=f"{tokens:,} tokens")
        for answered, lines in evaluator.rounds(model, done, partial(_lines, rewards)):
            records.add(lines)
            bar.update(bar.task_ids[0], completed=answered)
    if not process.is_main:
        return None
    parts = summarise_each(records.lines)
    whole = summarise(records.lines) if len(parts) > 1 else next(iter(parts.values()))
    result = {"model": a.model, **whole, "notes": notes, "save_path": a.save_path, "datasets": parts}
    records.finish(result | {"settings": identity})
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


def _bar(total: int, done: int, quiet: bool) -> Progress:
    bar = counting_bar(TextColumn("{task.fields[tokens]}"), quiet=quiet)
    bar.add_task("answering", total=total, completed=done, tokens="")
    return bar
