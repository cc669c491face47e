"""`rlvr audit NAME`: a reward function tried with answers that it must accept, and with answers that must not fool it.

The probes are in `rewards/audit`; here are the flags and the printed report.
"""

import argparse
import json

from rewards import RewardFunction
from rewards.audit import Finding, Report, audit
from rlvr.cli.parser import Parser
from rlvr.cli.rewards import add_reward_flags, open_scorer, resolve_rewards, template_tags

GOLDS_SHOWN = 50
TIMEOUT_S = 5.0
WIDTH = 120
CATEGORIES = {
    "equivalence": "answers that say the same",
    "distinction": "answers that say something else",
    "exploit": "worthless answers and responses",
    "robustness": "hostile texts",
    "gold": "golds of the data, as answers to themselves",
}


def audit_command(argv: list[str]) -> None:
    """`rlvr audit`: try a reward function with every probe. Exits with 1 if there are findings.

    Raises:
        UserError: no such function, template or data, or a function that can't score a plain answer.
    """
    arguments = audit_parser().parse_args(argv)
    function = resolve_rewards([arguments.name], arguments)[0]
    report = _audit(function, arguments)
    if arguments.json:
        print(json.dumps(report.to_dict(), indent=2))
    else:
        _print(report)
    if not report.ok:
        raise SystemExit(1)


def audit_parser() -> Parser:
    """The flags of the command."""
    parser = Parser(
        prog="rlvr audit",
        description="Try a reward function with answers that it must accept or must not be fooled by.",
    )
    parser.add_argument("name", help="a registered name, package.module:function, or path/to/file.py:function")
    parser.add_argument(
        "--data",
        metavar="SOURCE",
        help="data whose golds must each be accepted as their own answer, and whose columns the function may read",
    )
    parser.add_argument("--answer_column", metavar="NAME", help="column of the data with the right answers")
    parser.add_argument("--question_column", metavar="NAME", help="column of the data with the questions")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    add_reward_flags(parser)
    return parser


def _audit(function: RewardFunction, arguments: argparse.Namespace) -> Report:
    data = None
    if arguments.data:
        from rlvr.data.readers import read_problems

        problems = read_problems(
            [arguments.data], question_column=arguments.question_column, answer_column=arguments.answer_column
        )
        data = [(problem.source, problem.answer, problem.columns) for problem in problems]
    with open_scorer([function], arguments.reward_plugins, arguments.workers, TIMEOUT_S) as score:
        return audit(
            function, tags=template_tags(arguments.template), data=data, scorer=lambda samples: score(samples)[0]
        )


def _print(report: Report) -> None:
    from rich.markup import escape
    from rich.table import Table

    from rlvr.tracking.terminal import Terminal

    console = Terminal(plain_width=WIDTH)
    console.print(_headline(report), highlight=False)
    findings = [f for f in report.findings if f.category != "gold"]
    golds = [f for f in report.findings if f.category == "gold"]
    if report.findings:
        table = Table("what it does", "probe", "text, or reason", "score")
        for finding in findings + golds[:GOLDS_SHOWN]:
            table.add_row(*(escape(cell) for cell in _cells(finding)))
        console.print(table)
    if len(golds) > GOLDS_SHOWN:
        console.print(f"and {len(golds) - GOLDS_SHOWN} more golds; --json lists them all")
    counts = Table("probes", "tried", "findings")
    for category, tried in report.tried.items():
        counts.add_row(CATEGORIES[category], str(tried), str(report.count(category)))
    console.print(counts)
    if report.ok:
        console.print(f"{escape(report.function)}: no findings")


def _headline(report: Report) -> str:
    from rich.markup import escape

    name = escape(report.function)
    if report.looks_at_answer:
        wrong = "nothing" if report.wrong is None else f"{report.wrong:g}"
        return f"{name} pays {report.right:g} for a plainly right answer, {wrong} for a plainly wrong one."
    return (
        f"{name} does not look at the answer: it pays right and wrong alike. It is tried with exploits and hostile texts "
        "only, none of which may be paid more than an honest response."
    )


def _cells(finding: Finding) -> tuple[str, ...]:
    # The names of these probes are made of answer and gold, and their scores speak for themselves.
    named = finding.category in ("equivalence", "distinction")
    plain = finding.kind in ("wrongly accepts", "wrongly rejects")
    text = finding.detail if not plain else "" if named else finding.text
    score = "-" if finding.score is None else f"{finding.score:g}"
    return finding.kind, finding.probe, text, score
