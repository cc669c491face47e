"""GRPO here and in TRL 1.16.0: the same work, in turn, in one run.

    uv run python benchmarks/grpo_vs_trl.py                     # model M, about half an hour on two cores
    uv run python benchmarks/grpo_vs_trl.py --sizes S --iterations 5

The work (benchmarks/sides/work.py): a random Llama of 3M (S) or 42M parameters (M), 8 prompts of 48 tokens, eight
responses each, one epoch of four mini-batches of 16, no reference model. "fixed": every response has all
its tokens; "realistic": responses end by themselves, after a third of the cap on average. "best": each side in bf16 or
fp32, whichever is faster for it. TRL runs in an environment of its own, which uv makes.
"""

import argparse
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])  # benchmarks/rewards.py must not stand for the package

from benchmarks.sides.alternate import Runner, alternate, ours, theirs  # noqa: E402
from benchmarks.sides.report import Case, print_report, save_report  # noqa: E402
from benchmarks.sides.work import Work  # noqa: E402

TRL = ("trl==1.16.0", "torch==2.13.0", "transformers==5.23.0", "accelerate", "datasets", "psutil")
TARGETS = {"fixed": 1.5, "realistic": 1.5, "best": 1.5}
MEMORY_TARGET = 0.7


def main() -> int:
    """Run the cases, print the table; 1 if a target is missed."""
    arguments = _arguments()
    cases = []
    for size in arguments.sizes:
        for tokens in arguments.tokens:
            for lengths in arguments.lengths:
                cases += _cases(size, tokens, lengths, arguments)
    met = print_report("GRPO: rlvr and TRL 1.16.0", cases, MEMORY_TARGET)
    if arguments.save:
        save_report("grpo_vs_trl", cases, MEMORY_TARGET)
    return 0 if met else 1


def _cases(size: str, tokens: int, lengths: str, arguments: argparse.Namespace) -> list[Case]:
    """The same precision on both sides; then each at its best."""
    results = {}
    for precision in arguments.precisions:
        work = Work(size=size, response_tokens=tokens, lengths=lengths, precision=precision, recipe="grpo")
        print(f"{size}, {tokens} tokens, {lengths}, {precision}", file=sys.stderr)
        trl = arguments.trl_python.split() if arguments.trl_python else theirs("trl_grpo", *TRL)[:-2]
        runners = [
            Runner("rlvr", ours("rlvr_ppo"), work, arguments.threads),
            Runner("trl", [*trl, "-m", "benchmarks.sides.trl_grpo"], work, arguments.threads),
        ]
        results[precision] = alternate(runners, arguments.iterations)
    name = f"{size} {tokens} {lengths}"
    cases = [
        Case(f"{name} {p}", r["rlvr"], r["trl"], TARGETS[lengths] if size == "M" else None) for p, r in results.items()
    ]
    if len(results) > 1:
        best = [min((r[side] for r in results.values()), key=lambda s: s["seconds"]) for side in ("rlvr", "trl")]
        cases.append(Case(f"{name} best", *best, TARGETS["best"] if size == "M" else None))
    return cases


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["M"], choices=["S", "M"])
    parser.add_argument("--tokens", nargs="+", type=int, default=[64])
    parser.add_argument("--lengths", nargs="+", default=["fixed", "realistic"], choices=["fixed", "realistic"])
    parser.add_argument("--precisions", nargs="+", default=["fp32", "bf16"], choices=["fp32", "bf16"])
    parser.add_argument("--iterations", type=int, default=3, help="of each side, after one to warm up")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--trl_python", help="a Python that has TRL 1.16.0, instead of an environment made by uv")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/grpo_vs_trl.md and .json")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
