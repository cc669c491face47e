"""`rlvr eval MODEL --dataset NAME`: the share of problems that a model answers rightly, with its 95 % interval.

Here are the flags and the printed table; `rlvr/evaluation/evaluate.py` evaluates.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from rlvr.cli.parser import Parser
from rlvr.errors import UserError, escape_control_characters
from rlvr.evaluation.records import Line, read_evaluation
from rlvr.report.figures import check_figure
from rlvr.rollout.registry import ENGINES


def eval_parser() -> Parser:
    """The flags of the command."""
    parser = Parser(prog="rlvr eval", description="Accuracy of a model on problems whose answers a rule can check.")
    parser.add_argument(
        "model", metavar="MODEL", help="tiny, smollm2-135m, the folder of a run or of a model, or a hub name"
    )
    add = parser.add_argument_group("data sets").add_argument
    add("--dataset", nargs="+", default=["builtin"], metavar="NAME", help="as --prompt_dataset of training")
    add_evaluation_flags(parser, split="test", problems=None, num_generations=1, temperature=0.0)
    add = parser.add_argument_group("figure").add_argument
    add("--plot", metavar="FILE", help="draw pass@k over k with its intervals (.png, .svg, .pdf)")
    add(
        "--plot_beside",
        nargs="+",
        default=[],
        metavar="FOLDER",
        help="earlier evaluations (--save_path) to draw with it",
    )
    return parser


def add_evaluation_flags(
    parser: Parser, *, split: str, problems: int | None, num_generations: int, temperature: float
) -> None:
    """The flags that `rlvr.evaluation.evaluate` reads besides `model` and `dataset`, with these defaults."""
    data = parser.add_argument_group("data", "Problems, and how they become prompts.")
    add = data.add_argument
    add("--split", default=split, metavar="NAME", help="split of sources that have several")
    add(
        "--max_samples", type=int, default=problems, metavar="N",
        help="at most this many problems of each data set, drawn by --seed",
    )  # fmt: skip
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
    add(
        "--num_generations", type=int, default=num_generations, metavar="N",
        help="responses to each problem, for pass@k and maj@k",
    )  # fmt: skip
    add("--temperature", type=float, default=temperature, metavar="X", help="0 is greedy")
    add("--top_k", type=int, default=0, metavar="N", help="0 is all tokens")
    add("--top_p", type=float, default=1.0, metavar="X", help="1 is all tokens")
    add("--max_new_tokens", type=int, default=256, metavar="N", help="most tokens of a response")
    add("--max_length", type=int, default=2048, metavar="N", help="most tokens of prompt and response")
    add(
        "--environment", metavar="FILE.py:CLASS",
        help="what answers the model's turns; the last turn is graded, and what the environment pays is reported besides",
    )  # fmt: skip
    add("--max_turns", type=int, metavar="N", help="most turns of the model with an environment; 8 by default")
    add("--engine", choices=[name for name in ENGINES if name != "replay"], default="hf", help="what samples")
    add("--generation_batch_size", type=int, default=64, metavar="N", help="most sequences at once in a process")
    add("--seed", type=int, default=0, metavar="N", help="of sampling and of drawing problems")
    add("--mixed_precision", choices=["auto", "fp32", "bf16"], default="auto", help="arithmetic of the model")
    add("--num_threads", type=int, metavar="N", help="CPU threads of each process; all cores, divided among them")
    add("--trust_remote_code", action="store_true", help="run Python code that comes with a hub model")
    out = parser.add_argument_group("output")
    out.add_argument("--save_path", metavar="FOLDER", help="write each response with its verdict, and the result")
    out.add_argument("--resume", action="store_true", help="go on with what --save_path holds")
    out.add_argument("--json", action="store_true", help="print the result as JSON")


def eval_command(argv: list[str]) -> None:
    """Sample responses to each problem, grade them, and print the summary.

    Raises:
        UserError: a model, data set, template or function that can't be used, or a value out of range.
    """
    arguments = eval_parser().parse_args(argv)
    check_evaluation_flags(arguments)
    beside = _read_beside(arguments)
    from rlvr.evaluation.evaluate import Evaluation, open_policy

    policy = open_policy(arguments)
    with closing(policy.engine):
        evaluation = Evaluation(arguments, policy)
        result = evaluation.run(policy.load())
    if result is None:  # another process prints
        return
    if arguments.plot:
        from rlvr.report.pass_at_k import draw_pass_at_k

        draw_pass_at_k({**beside, arguments.model: evaluation.lines}, Path(arguments.plot))
    if arguments.json:
        print(json.dumps(result, indent=2))
    else:
        _print(result)


def _read_beside(a: argparse.Namespace) -> dict[str, Sequence[Line]]:
    """The earlier evaluations of the figure by their models' names, or by their folders where these are alike."""
    if not a.plot:
        if a.plot_beside:
            raise UserError("--plot_beside has no effect without --plot FILE: leave it out, or give that")
        return {}
    check_figure("--plot", Path(a.plot))
    if a.num_generations < 2:
        raise UserError("--plot draws pass@k over k: give --num_generations, such as 128, and a --temperature")
    read = [(folder, *read_evaluation(Path(folder))) for folder in a.plot_beside]
    models = [a.model, *(model for _, model, _ in read)]
    return {model if models.count(model) == 1 else folder: lines for folder, model, lines in read}


def check_evaluation_flags(arguments: argparse.Namespace) -> None:
    """Raise `UserError` where a value is out of range, or flags don't go together."""
    for name, least in (
        ("num_generations", 1), ("max_new_tokens", 1), ("generation_batch_size", 1), ("max_samples", 1), ("num_threads", 1), ("max_turns", 1),
        ("top_k", 0), ("temperature", 0),
    ):  # fmt: skip
        value = getattr(arguments, name)
        if value is not None and not value >= least:
            raise UserError(f"--{name} {value}: must be at least {least}")
    if arguments.environment is not None and arguments.engine == "vllm":
        raise UserError("--environment: --engine vllm gives one turn and no more; take --engine hf, generate or paged")
    if arguments.environment is None and arguments.max_turns is not None:
        raise UserError(
            "--max_turns has no effect without --environment, as a response is one turn: leave it out, or give that"
        )
    if not 0 < arguments.top_p <= 1:
        raise UserError(f"--top_p {arguments.top_p}: must lie above 0 and be at most 1")
    if arguments.max_new_tokens >= arguments.max_length:
        raise UserError(
            f"--max_new_tokens {arguments.max_new_tokens} leaves no room for a prompt within --max_length "
            f"{arguments.max_length}: raise the latter"
        )
    if arguments.temperature == 0 and (arguments.top_k or arguments.top_p < 1):
        raise UserError("--top_k and --top_p have no effect at --temperature 0, which is greedy: leave them out")
    if arguments.temperature == 0 and arguments.num_generations > 1:
        raise UserError(
            f"--num_generations {arguments.num_generations} at --temperature 0 gives one response several times: give a "
            "temperature, such as 0.7 or 1"
        )
    if arguments.reward_options and not arguments.reward_functions:
        raise UserError("--reward_options has no effect without --reward_functions: leave it out, or name the function")
    if arguments.resume and not arguments.save_path:
        raise UserError("--resume needs --save_path, the folder of the evaluation to go on with")
    if len(set(arguments.dataset)) < len(arguments.dataset):
        raise UserError(f"--dataset {' '.join(arguments.dataset)}: a data set is named twice; name it once")


def _print(result: Mapping[str, Any]) -> None:
    from rich.table import Table

    from rlvr.tracking.terminal import Terminal

    for note in result["notes"]:
        print(f"note: {escape_control_characters(note)}")
    parts = result["datasets"]
    columns = {"all": result, **parts} if len(parts) > 1 else {next(iter(parts)): result}
    console = Terminal(width=max(60, 24 + 24 * len(columns)))
    drawn = f"at temperature {result['temperature']:g}" if result["temperature"] else "greedy"
    table = Table(
        title=f"{result['model']}: {result['problems']} problems, {result['samples']} response(s) each, {drawn}"
    )
    table.add_column("")
    for name in columns:
        table.add_column(Path(name).name, justify="right")
    for row in _rows(result):
        table.add_row(row, *(_cell(part, row) for part in columns.values()))
    console.print(table)
    if result["save_path"]:
        print(f"saved: {result['save_path']}")


RIGHT_WITHOUT_TAGS = "right, tags aside"
SHARES = {"in format": "format", RIGHT_WITHOUT_TAGS: "accuracy_anyway"}
"""Rows of the table whose figure has another name in the result."""


def _rows(result: Mapping[str, Any]) -> list[str]:
    k = [name for name in result if name.startswith(("pass@", "maj@"))]
    statuses = [f"verdict {name}" for name in result["statuses"]]
    scores = [f"mean {name}" for name in result["rewards"]]
    return [
        "problems",
        "accuracy",
        "95 % interval",
        *k,
        RIGHT_WITHOUT_TAGS,
        "in format",
        "truncated",
        "length, tokens",
        *([] if "turns" not in result else ["turns", "environment, mean score"]),
        *statuses,
        *scores,
    ]


def _cell(part: Mapping[str, Any], row: str) -> str:
    kind, _, name = row.partition(" ")
    if row == "problems":
        return str(part["problems"])
    if row == "95 % interval":
        low, high = part["accuracy_95"]
        return f"{low:.1%} to {high:.1%}"
    if row == "length, tokens":
        return f"{part['length_tokens']:.1f}"
    if row == "turns":
        return f"{part['turns']:.2f}"
    if row == "environment, mean score":
        return f"{part['environment']:.4f}"
    if kind == "verdict":
        return str(part["statuses"].get(name, 0))
    if kind == "mean":
        mean = part["rewards"].get(name)
        return "does not apply" if mean is None else f"{mean:.4f}"
    return f"{part[SHARES.get(row, row)]:.1%}"
