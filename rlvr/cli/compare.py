"""`rlvr compare FIRST SECOND`: which of two evaluated models is better, problem by problem, with a test of significance."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from rlvr.cli.parser import Parser
from rlvr.errors import UserError, escape_control_characters
from rlvr.evaluation.records import read_evaluation
from rlvr.evaluation.statistics import compare
from rlvr.evaluation.summary import by_problem

SHOWN_QUESTIONS = 3
Shares = dict[tuple[str, str], float]
"""Share of right answers by data set and problem."""


def compare_parser() -> Parser:
    """The flags of the command."""
    parser = Parser(
        prog="rlvr compare", description="Compare two evaluations of the same problems, with a test of significance."
    )
    parser.add_argument("first", metavar="FIRST", help="folder that `rlvr eval --save_path` wrote")
    parser.add_argument("second", metavar="SECOND", help="another")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser


def compare_command(argv: list[str]) -> None:
    """Print the difference, its interval, the test and the problems that made it.

    Raises:
        UserError: a folder without responses, or no problem in common.
    """
    a = compare_parser().parse_args(argv)
    (first, asked), (second, _) = (_read(Path(folder)) for folder in (a.first, a.second))
    common = [key for key in first if key in second]
    if not common:
        raise UserError(f"{a.first} and {a.second} have no problem in common: evaluate both on the same --dataset")
    found = compare([first[key] for key in common], [second[key] for key in common])
    left_out = len(first) + len(second) - 2 * len(common)
    if a.json:
        gained, lost = ([key[1] for key in common if (second[key] - first[key]) * s > 0] for s in (1, -1))
        print(json.dumps({**asdict(found), "left_out": left_out, "gained_ids": gained, "lost_ids": lost}, indent=2))
        return
    shares = [fmean(side[key] for key in common) for side in (first, second)]
    low, high = found.interval
    print(
        f"{found.problems} problems in common" + (f" ({left_out} that only one has are left out)" if left_out else "")
    )
    print(f"  first     {shares[0]:7.2%}  {a.first}")
    print(f"  second    {shares[1]:7.2%}  {a.second}")
    print(f"  difference {found.difference:+.2%}  (95 % interval {low:+.2%} to {high:+.2%})")
    verdict = "significant at 5 %" if found.p_value < 0.05 else "may well be chance"
    print(f"  p = {found.p_value:.3g} ({found.test}): {verdict}")
    for name, sign in (("better", 1), ("worse", -1)):
        keys = [key for key in common if (second[key] - first[key]) * sign > 0]
        shown = "".join(f"\n    {_short(asked[key])}" for key in keys[:SHOWN_QUESTIONS])
        print(f"  second {name} on {len(keys)}" + (":" if keys else "") + shown)


def _read(folder: Path) -> tuple[Shares, Mapping[tuple[str, str], str]]:
    """Each problem's share of right answers, and its question."""
    problems = by_problem(read_evaluation(folder)[1])
    shares = {key: fmean(line["correct"] for line in lines) for key, lines in problems.items()}
    return shares, {key: lines[0]["question"] for key, lines in problems.items()}


def _short(text: Any) -> str:
    line = escape_control_characters(" ".join(str(text).split()))
    return line if len(line) <= 90 else line[:87] + "..."
