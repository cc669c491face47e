"""`rlvr eval MODEL --dataset NAME`: how many problems a model answers rightly, and how sure one can be of that."""

import argparse
import json
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlvr.errors import UserError
from rlvr.rollout.available import ENGINES
from rlvr.tools.parser import Parser

Z_95 = 1.959964  # the normal distribution's 97.5 % point


def eval_parser() -> Parser:
    """The flags of the command."""
    parser = Parser(prog="rlvr eval", description="Accuracy of a model on problems whose answers a rule can check.")
    parser.add_argument(
        "model", metavar="MODEL", help="tiny, smollm2-135m, a folder (RUN/actor/modeling), or a hub name"
    )
    data = parser.add_argument_group("data", "Problems, and how they become prompts.")
    add = data.add_argument
    add("--dataset", nargs="+", default=["builtin"], metavar="NAME", help="as --prompt_dataset of training")
    add("--split", default="test", metavar="NAME", help="split of sources that have several")
    add("--max_samples", type=int, metavar="N", help="at most this many problems, drawn by --seed")
    add("--question_column", metavar="NAME", help="column with the problem")
    add("--answer_column", metavar="NAME", help="column with the right answer")
    add("--conversation_template_config", default="auto", metavar="NAME", help="template: shipped name or JSON file")
    rewards = parser.add_argument_group("reward", "Accuracy is graded by rule; these are scored besides.")
    add = rewards.add_argument
    add("--reward_functions", nargs="+", default=[], metavar="NAME", help="functions whose mean score to report")
    add("--reward_plugins", nargs="+", default=[], metavar="FILE", help="Python files or modules to import")
    add("--reward_options", metavar="JSON", help="keyword arguments by function name")
    sampling = parser.add_argument_group("sampling", "How responses are drawn.")
    add = sampling.add_argument
    add("--temperature", type=float, default=0.0, metavar="X", help="0 is greedy")
    add("--top_k", type=int, default=0, metavar="N", help="0 is all tokens")
    add("--top_p", type=float, default=1.0, metavar="X", help="1 is all tokens")
    add("--max_new_tokens", type=int, default=256, metavar="N", help="most tokens of a response")
    add("--max_length", type=int, default=2048, metavar="N", help="most tokens of prompt and response")
    add("--engine", choices=[name for name in ENGINES if name != "replay"], default="hf", help="what samples")
    add("--generation_batch_size", type=int, default=256, metavar="N", help="most sequences at once")
    add("--seed", type=int, default=0, metavar="N", help="of sampling and of drawing problems")
    add("--mixed_precision", choices=["auto", "fp32", "bf16"], default="auto", help="arithmetic of the model")
    add("--trust_remote_code", action="store_true", help="run Python code that comes with a hub model")
    out = parser.add_argument_group("output")
    out.add_argument("--output", metavar="FILE", help="JSONL file to write each response and its verdict to")
    out.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser


def eval_command(argv: list[str]) -> None:
    """Sample a response to each problem, grade it, and print the summary.

    Raises:
        UserError: a model, data set, template or function that can't be used, or a value out of range.
    """
    arguments = eval_parser().parse_args(argv)
    _check(arguments)
    result, lines = evaluate(arguments)
    if arguments.output:
        _write(Path(arguments.output), lines)
    if arguments.json:
        print(json.dumps(result, indent=2))
    else:
        _print(result)


def _check(arguments: argparse.Namespace) -> None:
    for name, least in (("max_new_tokens", 1), ("generation_batch_size", 1), ("top_k", 0), ("temperature", 0)):
        if not getattr(arguments, name) >= least:
            raise UserError(f"--{name} {getattr(arguments, name)}: must be at least {least}")
    if not 0 < arguments.top_p <= 1:
        raise UserError(f"--top_p {arguments.top_p}: must lie above 0 and be at most 1")
    if arguments.max_samples is not None and arguments.max_samples < 1:
        raise UserError(f"--max_samples {arguments.max_samples}: must be at least 1")
    if arguments.max_new_tokens >= arguments.max_length:
        raise UserError(
            f"--max_new_tokens {arguments.max_new_tokens} leaves no room for a prompt within --max_length "
            f"{arguments.max_length}: raise the latter"
        )
    if arguments.temperature == 0 and (arguments.top_k or arguments.top_p < 1):
        raise UserError("--top_k and --top_p have no effect at --temperature 0, which is greedy: leave them out")
    if arguments.reward_options and not arguments.reward_functions:
        raise UserError("--reward_options has no effect without --reward_functions: leave it out, or name the function")


def evaluate(arguments: argparse.Namespace) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The summary, and a line for each response."""
    import torch
    from transformers.utils.logging import disable_progress_bar

    from rewards import load_plugins
    from rlvr.boost.plugins import resolve_precision
    from rlvr.conversation import Conversation, choose_template
    from rlvr.data.prompts import prepare_prompts
    from rlvr.data.readers import read_problems
    from rlvr.evaluate import Evaluator
    from rlvr.gold_check import with_good_golds
    from rlvr.models.loading import load_causal_lm, load_tokenizer
    from rlvr.reward_settings import parse_reward_options
    from rlvr.rewarding import RLVRRewardModel
    from rlvr.rollout.engine import Sampling, make_engine

    a = arguments
    disable_progress_bar()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    load_plugins(a.reward_plugins)
    tokenizer = load_tokenizer(a.model, a.trust_remote_code)
    conversation = Conversation(choose_template(a.conversation_template_config, tokenizer), tokenizer)
    options = parse_reward_options(a.reward_options)
    rewards = RLVRRewardModel(a.reward_functions, tokenizer, conversation.tags, options=options)
    problems = read_problems(
        a.dataset,
        split=a.split,
        question_column=a.question_column,
        answer_column=a.answer_column,
        limit=a.max_samples,
        seed=a.seed,
    )
    notes: list[str] = []
    good = with_good_golds(problems, notes, rewards.rewards.functions)
    prepared = prepare_prompts(good, conversation, a.max_length - a.max_new_tokens)
    if prepared.dropped:
        notes.append(
            f"{prepared.dropped} of {len(good)} prompts left out: longer than {a.max_length - a.max_new_tokens}"
        )
    engine = make_engine(a.engine, tokenizer)
    engine.autocast = resolve_precision(a.mixed_precision, device) == "bf16"
    sampling = Sampling(
        max_new_tokens=a.max_new_tokens,
        temperature=a.temperature,
        top_k=a.top_k,
        top_p=a.top_p,
        stop_ids=conversation.stop_ids,
        stop_strings=conversation.stop_strings,
        batch_size=a.generation_batch_size,
    )
    model = load_causal_lm(a.model, trust_remote_code=a.trust_remote_code).to(device).eval()
    answers = Evaluator(prepared.prompts, engine, sampling, tokenizer, conversation, a.seed).answers(model)
    scores = rewards.score([answered.sample for answered in answers]) if a.reward_functions else []
    return _summary(a, answers, scores, notes), _lines(answers, scores)


def _summary(a: argparse.Namespace, answers: Sequence[Any], scores: Sequence[Any], notes: list[str]) -> dict[str, Any]:
    count, right = len(answers), sum(answered.outcome.correct for answered in answers)
    low, high = wilson_interval(right, count)
    means = {}
    for name in scores[0].scores if scores else ():
        values = [one.scores[name].value for one in scores if one.scores[name].value is not None]
        means[name] = sum(values) / len(values) if values else None
    return {
        "model": a.model,
        "dataset": a.dataset,
        "problems": count,
        "accuracy": right / count,
        "accuracy_95": [low, high],
        "format": sum(answered.in_format for answered in answers) / count,
        "length_tokens": sum(answered.tokens for answered in answers) / count,
        "truncated": sum(not answered.sample.finished for answered in answers) / count,
        "statuses": dict(Counter(answered.outcome.status for answered in answers).most_common()),
        "rewards": means,
        "notes": notes,
    }


def wilson_interval(right: int, count: int) -> tuple[float, float]:
    """The 95 % interval of a share of which `right` out of `count` was seen (Wilson 1927, J. Am. Stat. Assoc. 22, 209).

    >>> [round(x, 3) for x in wilson_interval(8, 10)]
    [0.49, 0.943]
    """
    share, z2 = right / count, Z_95**2
    middle = share + z2 / (2 * count)
    half = Z_95 * math.sqrt(share * (1 - share) / count + z2 / (4 * count**2))
    return max(0.0, (middle - half) / (1 + z2 / count)), min(1.0, (middle + half) / (1 + z2 / count))


def _lines(answers: Sequence[Any], scores: Sequence[Any]) -> list[dict[str, Any]]:
    lines = []
    for index, answered in enumerate(answers):
        problem = answered.prompt.problem
        line = {
            "id": problem.id,
            "question": problem.question,
            "gold": problem.answer,
            "response": answered.sample.response,
            "status": answered.outcome.status,
            "answer": answered.outcome.answer,
            "finished": answered.sample.finished,
            "tokens": answered.tokens,
        }
        if scores:
            line["scores"] = {name: one.value for name, one in scores[index].scores.items()}
        lines.append(line)
    return lines


def _write(path: Path, lines: Sequence[dict[str, Any]]) -> None:
    try:
        with path.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
    except OSError as error:
        raise UserError(f"--output {path}: {error.strerror}") from None


def _print(result: dict[str, Any]) -> None:
    low, high = result["accuracy_95"]
    for note in result["notes"]:
        print(f"note: {note}")
    print(f"{result['model']} on {' '.join(result['dataset'])}: {result['problems']} problems")
    print(f"  accuracy   {result['accuracy']:7.2%}  (95 % interval {low:.2%} to {high:.2%})")
    print(f"  in format  {result['format']:7.2%}")
    print(f"  truncated  {result['truncated']:7.2%}")
    print(f"  length     {result['length_tokens']:7.1f} tokens")
    for status, count in result["statuses"].items():
        print(f"  {status:<10} {count:6d}")
    for name, mean in result["rewards"].items():
        print(f"  {name}  {'does not apply' if mean is None else f'{mean:.4f}'}")
