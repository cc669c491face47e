"""Whether reinforcement learning can start on a data set: `survey`, behind `rlvr tasks`.

Responses are sampled as a training run would sample them. What says whether they can teach anything is how often a group of responses
to one problem holds both right and wrong ones: a policy gradient needs both, with a critic or without. A data set whose problems are never
solved needs fine-tuning first, one whose problems are always solved has nothing left to learn.
"""

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from transformers import PreTrainedModel

from rlvr.errors import UserError
from rlvr.evaluation.evaluate import Evaluation, open_policy
from rlvr.evaluation.policy import Policy
from rlvr.evaluation.prompts import short_dataset_names
from rlvr.evaluation.records import Line
from rlvr.evaluation.statistics import mean_interval, pass_at_k, signal_at_k
from rlvr.evaluation.summary import by_problem
from rlvr.models.actor import Actor
from rlvr.models.batch import collate

KS = (1, 8, 64)
RESULT = "tasks.json"
ROWS_OF_A_PASS = 8
"""Responses of the pass that the update's seconds are measured on."""
PASSES_OF_AN_UPDATE = 4 / 3
"""Work on a response in an episode, in passes with gradients: one of these, and one without, which is a third of it, for the
logprobs before the update."""

# From which share of groups with signal on training moves (rlvr/tracking/diagnosis.py warns under a tenth).
ENOUGH_SIGNAL, LITTLE_SIGNAL = 0.3, 0.1
SOLVED = 0.9
MOSTLY_CUT = 0.3


@dataclass(frozen=True)
class Task:
    """What a model does on one data set. Shares lie in [0, 1], and intervals are of 95 %.

    Attributes:
        dataset: as it was given.
        problems, samples: how many problems, and responses to each.
        pass_at: pass@k by k (Chen et al., arXiv:2107.03374), and its interval.
        signal: share of groups of `group_size` that are neither all right nor all wrong, and its interval.
        in_format: share of responses in the template's format.
        truncated: share that was cut at the length limit.
        right_anyway: share that is right, tags aside.
        length_tokens: mean length of a response.
        rewards: mean score of each reward function.
        sampling_s, update_s: seconds of an episode of `experience_batch_size` responses: by the rate of sampling here, and by a pass with
            gradients over some of the responses, for an algorithm without critic and reference; None = not measured.
        verdict: `start`, `slow`, `sft` or `solved`.
        why: what follows, in a sentence.
    """

    dataset: str
    problems: int
    samples: int
    pass_at: Mapping[int, tuple[float, float, float]]
    signal: tuple[float, float, float]
    in_format: float
    truncated: float
    right_anyway: float
    length_tokens: float
    rewards: Mapping[str, float | None]
    sampling_s: float | None
    update_s: float | None
    verdict: str
    why: str


def survey(a: argparse.Namespace, report: Callable[[str], None]) -> list[Task] | None:
    """Sample responses to each data set of the flags of `rlvr tasks`, and judge it. Collective.

    Args:
        report: told the verdict on each data set as soon as it is done, on rank 0.

    Returns:
        One task for each data set; None in all ranks but 0.

    Raises:
        UserError: a model, data set, template or function that can't be used, or a folder that holds something else.
    """
    policy = open_policy(a)
    with closing(policy.engine):
        evaluations = [Evaluation(part, policy) for part in _parts(a)]  # all are read first: mistakes are told at once
        model, tasks = policy.load(), list[Task]()
        for evaluation in evaluations:
            name = evaluation.a.dataset[0]
            result = evaluation.run(model, name)
            update_s = _seconds_of_a_pass(policy, model, evaluation) / ROWS_OF_A_PASS * PASSES_OF_AN_UPDATE
            if result is None:
                continue
            rate = evaluation.tokens_per_s
            tasks.append(
                _task(
                    name,
                    evaluation.lines,
                    a.group_size,
                    result,
                    sampling_s=a.experience_batch_size * result["length_tokens"] / rate if rate else None,
                    update_s=update_s * a.experience_batch_size,
                )
            )
            report(f"{name}: {tasks[-1].why}")
    if not tasks:
        return None
    if a.save_path:
        kept = {"model": a.model, "group_size": a.group_size, "experience_batch_size": a.experience_batch_size}
        _write(Path(a.save_path) / RESULT, kept | {"tasks": [asdict(task) for task in tasks]})
    return tasks


def _parts(a: argparse.Namespace) -> list[argparse.Namespace]:
    """The flags of one evaluation for each data set, in a folder of its own."""
    names = short_dataset_names(a.dataset)
    folders = [str(Path(a.save_path) / name) if a.save_path else None for name in names]
    return [
        argparse.Namespace(**{**vars(a), "dataset": [source], "save_path": folder, "resume": a.resume})
        for source, folder in zip(a.dataset, folders, strict=True)
    ]


def _write(path: Path, result: Mapping[str, Any]) -> None:
    try:
        path.write_text(json.dumps(result, indent=1))
    except OSError as error:
        raise UserError(f"--save_path {path.parent}: {error.strerror}") from None


def _task(
    dataset: str,
    lines: Sequence[Line],
    group_size: int,
    result: Mapping[str, Any],
    *,
    sampling_s: float | None,
    update_s: float | None,
) -> Task:
    counts = [(len(group), sum(bool(line["correct"]) for line in group)) for group in by_problem(lines).values()]
    samples = result["samples"]
    pass_at = {
        k: _mean([pass_at_k(n, right, k) for n, right in counts]) for k in sorted({*KS, samples}) if k <= samples
    }
    signal = _mean([signal_at_k(n, right, group_size) for n, right in counts])
    figures = {
        "pass_at": pass_at,
        "signal": signal,
        "in_format": result["format"],
        "truncated": result["truncated"],
        "right_anyway": result["accuracy_anyway"],
    }
    verdict, why = judge(**figures)
    return Task(
        dataset=dataset,
        problems=len(counts),
        samples=samples,
        **figures,
        length_tokens=result["length_tokens"],
        rewards=result["rewards"],
        sampling_s=sampling_s,
        update_s=update_s,
        verdict=verdict,
        why=why,
    )


def _mean(values: Sequence[float]) -> tuple[float, float, float]:
    return fmean(values), *mean_interval(values)


def judge(
    pass_at: Mapping[int, tuple[float, float, float]],
    signal: tuple[float, float, float],
    in_format: float,
    truncated: float,
    right_anyway: float,
) -> tuple[str, str]:
    """Verdict and reason, by the shares that `Task` names.

    >>> judge({1: (0.2, 0.1, 0.3), 8: (0.6, 0.5, 0.7)}, (0.6, 0.5, 0.7), 0.9, 0.0, 0.2)
    ('start', 'RL can start: 60 % of the groups teach')
    """
    right, most = pass_at[1][0], pass_at[max(pass_at)][0]
    if right >= SOLVED:
        return "solved", f"solved already: {right:.0%} right; take harder problems".replace("%", " %")
    cut = f"; {truncated:.0%} of the responses are cut: raise --max_new_tokens" if truncated >= MOSTLY_CUT else ""
    if signal[0] >= ENOUGH_SIGNAL:
        why = f"RL can start: {signal[0]:.0%} of the groups teach{cut}"
        return "start", why.replace("%", " %")
    if signal[0] >= LITTLE_SIGNAL:
        why = f"RL can start, slowly: {signal[0]:.0%} of the groups teach; --dynamic_sampling, larger groups or easier problems help{cut}"
        return "slow", why.replace("%", " %")
    if right > 0.5:
        return "solved", f"nearly solved: few groups hold a wrong answer, {right:.0%} right".replace("%", " %")
    if right_anyway >= right + LITTLE_SIGNAL:
        why = f"SFT first, on the format: {right_anyway:.0%} are right, but only {in_format:.0%} in the template's tags{cut}"
    else:
        why = f"SFT first, or easier problems: pass@{max(pass_at)} is {most:.0%}{cut}"
    return "sft", why.replace("%", " %")


def _seconds_of_a_pass(policy: Policy, model: PreTrainedModel, evaluation: Evaluation) -> float:
    """Seconds of a forward and a backward pass over `ROWS_OF_A_PASS` of the responses, as the update makes them; the second of two."""
    lines = [line for line in evaluation.lines if line["tokens"]] or list(evaluation.lines)
    prompts = {one.prompt.problem.id: one.prompt.ids for one in evaluation.asked}
    chosen = [lines[place * len(lines) // ROWS_OF_A_PASS] for place in range(ROWS_OF_A_PASS)]
    responses = [policy.tokenizer.encode(line["response"], add_special_tokens=False) or [0] for line in chosen]
    batch = collate(
        [torch.tensor(prompts[line["problem"]]) for line in chosen],
        [torch.tensor(ids) for ids in responses],
        pad_id=policy.tokenizer.pad_token_id or 0,
    ).to(policy.device)
    actor, seconds = Actor(model), 0.0
    for _ in range(2):
        started = time.perf_counter()
        with torch.autocast(policy.device.type, torch.bfloat16, enabled=policy.engine.autocast):
            loss = -actor(batch).logprobs.sum()
        loss.backward()
        if policy.device.type != "cpu":
            torch.get_device_module(policy.device).synchronize()
        seconds = time.perf_counter() - started
        model.zero_grad(set_to_none=True)
    return seconds
