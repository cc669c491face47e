"""A whole evaluation: model and problems loaded, answered part by part, each part kept as soon as it is graded.

Under torchrun the processes answer different parts, and rank 0 keeps and prints.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from transformers.utils.logging import disable_progress_bar

from rewards import load_plugins
from rlvr.boost import process as processes
from rlvr.checks.golds import with_good_golds
from rlvr.conversation import Conversation
from rlvr.data.prompts import Prompt, prepare_prompts
from rlvr.data.readers import read_problems
from rlvr.errors import UserError
from rlvr.evaluation.evaluator import Answered, Evaluator
from rlvr.evaluation.records import Line, Records
from rlvr.evaluation.summary import summarise
from rlvr.metrics import gather_json
from rlvr.policy import Policy
from rlvr.reward_settings import parse_reward_options
from rlvr.rewarding import RLVRRewardModel
from rlvr.rollout.engine import Sampling

# What changes a response or its verdict; another value is another evaluation.
IDENTITY = (
    "model", "dataset", "split", "max_samples", "question_column", "answer_column", "conversation_template_config",
    "reward_functions", "reward_options", "num_generations", "temperature", "top_k", "top_p", "max_new_tokens", "max_length",
    "engine", "generation_batch_size", "seed", "mixed_precision",
)  # fmt: skip


@dataclass(frozen=True)
class Asked:
    """A problem of a data set."""

    dataset: str
    prompt: Prompt


def evaluate(a: argparse.Namespace) -> dict[str, Any] | None:
    """Answer what `rlvr eval` was asked for. Collective. Returns the result; None in all ranks but 0.

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
    prompts = [one.prompt for one in asked]
    evaluator = Evaluator(prompts, engine, sampling, tokenizer, conversation, a.seed, a.num_generations)
    size = max(1, a.generation_batch_size // a.num_generations)
    identity = {name: getattr(a, name) for name in IDENTITY} | {"problems": _hash(asked)}
    folder = Path(a.save_path) if a.save_path else None
    records = Records(
        folder if process.is_main else None,
        identity,
        resume=a.resume,
        unit=size * a.num_generations,
        total=len(asked) * a.num_generations,
    )
    done = gather_json(len(records.lines) // a.num_generations)[0]
    model = policy.load()
    with _bar(len(asked), done, quiet=a.json or not process.is_main) as bar:
        engine.on_progress = lambda finished, total, tokens: bar.update(bar.task_ids[0], tokens=f"{tokens:,} tokens")
        for places in _rounds(done, len(asked), size, process.world_size):
            start, end = places[process.rank]
            answers = evaluator.answers(model, prompts[start:end], start)
            scores = rewards.score([one.sample for one in answers]) if a.reward_functions and answers else []
            lines = list(_lines(asked[start:end], answers, scores, a.num_generations))
            for own in gather_json(lines):
                records.add(own)
            bar.update(bar.task_ids[0], completed=min(len(asked), places[-1][1]))
    if not process.is_main:
        return None
    parts = {name: summarise([x for x in records.lines if x["dataset"] == name]) for name in _names(asked)}
    whole = summarise(records.lines) if len(parts) > 1 else next(iter(parts.values()))
    result = {"model": a.model, **whole, "notes": notes, "save_path": a.save_path, "datasets": parts}
    records.finish(result | {"settings": identity})
    return result


def _problems(
    a: argparse.Namespace, conversation: Conversation, functions: Sequence[Any], notes: list[str]
) -> list[Asked]:
    """The problems of all data sets as prompts; those that can't be graded or are too long are left out with a note."""
    asked, limit = list[Asked](), a.max_length - a.max_new_tokens
    for name in a.dataset:
        problems = read_problems(
            [name],
            split=a.split,
            question_column=a.question_column,
            answer_column=a.answer_column,
            limit=a.max_samples,
            seed=a.seed,
        )
        good = [p for p in with_good_golds(problems, notes, functions) if p.answer is not None]
        if not good:
            raise UserError(
                f"--dataset {name}: no problem has a right answer to compare with; name the column that holds it: "
                "--answer_column NAME"
            )
        prepared = prepare_prompts(good, conversation, limit)
        if prepared.dropped:
            notes.append(f"{name}: {prepared.dropped} of {len(good)} prompts left out: longer than {limit} tokens")
        asked += [Asked(name, prompt) for prompt in prepared.prompts]
    return asked


def _rounds(done: int, count: int, size: int, world_size: int) -> Iterator[list[tuple[int, int]]]:
    """Places of the problems that each rank answers next, `size` to each, until all are answered."""
    while done < count:
        ends = [min(count, done + size * (rank + 1)) for rank in range(world_size)]
        yield [(min(count, done + size * rank), end) for rank, end in enumerate(ends)]
        done = ends[-1]


def _lines(asked: Sequence[Asked], answers: Sequence[Answered], scores: Sequence[Any], samples: int) -> Iterator[Line]:
    for index, answered in enumerate(answers):
        problem = answered.prompt.problem
        line = {
            "dataset": asked[index // samples].dataset,
            "problem": problem.id,
            "sample": index % samples,
            "question": problem.question,
            "gold": problem.answer,
            "response": answered.sample.response,
            "status": answered.outcome.status,
            "correct": answered.outcome.correct,
            "correct_anyway": answered.correct_anyway,
            "answer": answered.outcome.answer,
            "format": answered.in_format,
            "finished": answered.sample.finished,
            "tokens": answered.tokens,
        }
        if scores:
            line["scores"] = {name: one.value for name, one in scores[index].scores.items()}
        yield line


def _names(asked: Sequence[Asked]) -> list[str]:
    return list(dict.fromkeys(one.dataset for one in asked))


def _hash(asked: Sequence[Asked]) -> str:
    """Changes when a problem or its prompt does: a resumed evaluation must ask the same."""
    digest = blake2b(digest_size=8)
    for one in asked:
        digest.update(f"{one.prompt.problem.id}\0{one.prompt.problem.answer}\0{one.prompt.ids}\n".encode())
    return digest.hexdigest()


def _bar(total: int, done: int, quiet: bool) -> Progress:
    console = Console(stderr=True, quiet=quiet)
    bar = Progress(
        TextColumn("answering"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[tokens]}"),
        TextColumn("elapsed"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    )
    bar.add_task("answering", total=total, completed=done, tokens="")
    return bar
