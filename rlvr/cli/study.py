"""`rlvr study FILE.yaml`: a grid of settings and seeds trained and compared; `rlvr/study` does it."""

from functools import partial
from pathlib import Path

from rlvr.cli.parser import Parser
from rlvr.errors import UserError


def study_parser() -> Parser:
    """The flags of the command."""
    parser = Parser(
        prog="rlvr study", description="Train a grid of settings over several seeds, and compare them with intervals."
    )
    parser.add_argument("file", metavar="FILE", help="YAML with settings, grid and seeds")
    add = parser.add_argument_group("runs").add_argument
    add("--out", metavar="FOLDER", help="folder of the runs, in place of the file's")
    add("--seeds", nargs="+", type=int, metavar="N", help="these seeds, in place of the file's")
    add("--only", nargs="+", metavar="NAME", help="combinations with one of these names of the grid alone")
    add("--jobs", type=int, default=1, metavar="N", help="runs at a time, which share the CPU's cores")
    add("--report_only", action="store_true", help="train nothing; report the runs that are finished")
    add = parser.add_argument_group("output").add_argument
    add(
        "--results",
        metavar="FILE",
        help="keep what was measured as JSON, and the table as .md beside it; of runs that are gone, take what it has",
    )
    add("--plot", metavar="FILE", help="draw the curves and where they end (.png, .svg, .pdf)")
    return parser


def study_command(argv: list[str]) -> None:
    """Train what is not finished, print the table, draw the figure.

    Raises:
        UserError: a plan that can't be carried out, a folder with a run of other settings, or runs that failed.
    """
    a = study_parser().parse_args(argv)
    if a.jobs < 1:
        raise UserError(f"--jobs {a.jobs}: must be at least 1")
    from rlvr.report.figures import check_figure
    from rlvr.study.carry_out import carry_out
    from rlvr.study.figure import draw
    from rlvr.study.plan import read_study
    from rlvr.study.results import read_results, table, write_results

    study = read_study(Path(a.file), {"out": a.out, "seeds": a.seeds})
    if a.only:
        study = study.only(a.only)
    if a.plot:
        check_figure("--plot", Path(a.plot))
    if not a.report_only:
        carry_out(study.runs, a.jobs, partial(print, flush=True))
    results = Path(a.results) if a.results else None
    curves = read_results(study, results)
    print(table(study, curves))
    if results:
        write_results(results, study, curves)
        print(f"kept: {results}")
    if a.plot:
        draw(study, curves, Path(a.plot))
        print(f"drawn: {a.plot}")
