"""One recipe here and in TRL on the same work: random models over sizes, lengths and precisions, or a real model."""

import argparse
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.sides.alternate import Runner, alternate, ours, theirs
from benchmarks.sides.real import write_work
from benchmarks.sides.report import Case, Target, print_report, result_name, save_report
from benchmarks.sides.work import Work

REAL_TOKENS = 96
"""Most tokens of a real model's response."""
PACKAGES = ("torch==2.13.0", "transformers==5.23.0", "accelerate", "datasets", "psutil")


@dataclass(frozen=True)
class Versus:
    """A comparison with one release of TRL.

    Attributes:
        recipe: of the work: ppo, grpo or sft; also names the sides and the results.
        trl: the release.
        targets: on model M: by lengths, and `best`.
        real: on a real model, each side at its best.
        doc: help of the command.
    """

    recipe: str
    trl: str
    targets: Mapping[str, Target]
    real: Target
    doc: str

    def main(self) -> int:
        """Run the cases, print the table; 1 if a target is missed."""
        arguments = self._arguments()
        if arguments.model:
            with tempfile.TemporaryDirectory() as folder:
                print(f"writing {arguments.model} and its prompts", file=sys.stderr)
                write_work(arguments.model, self.recipe, Path(folder), arguments.problems)
                cases = self._cases(arguments.model, REAL_TOKENS, "realistic", arguments, folder)
        else:
            cases = [
                case
                for size in arguments.sizes
                for tokens in arguments.tokens
                for lengths in arguments.lengths
                for case in self._cases(size, tokens, lengths, arguments)
            ]
        met = print_report(f"{self.recipe.upper()}: rlvr and TRL {self.trl}", cases)
        if arguments.save:
            save_report(result_name(f"{self.recipe}_vs_trl", arguments.model), cases)
        return 0 if met else 1

    def _cases(
        self, size: str, tokens: int, lengths: str, arguments: argparse.Namespace, folder: str = ""
    ) -> list[Case]:
        """The same precision on both sides; then each at its best."""
        module = f"trl_{self.recipe}"
        given = arguments.trl_python
        trl = [given, "-m", f"benchmarks.sides.{module}"] if given else theirs(module, f"trl=={self.trl}", *PACKAGES)
        results = {}
        for precision in arguments.precisions:
            work = Work(size, tokens, lengths, precision, self.recipe, folder=folder)
            print(f"{size}, {tokens} tokens, {lengths}, {precision}", file=sys.stderr)
            runners = [
                Runner("rlvr", ours("rlvr_sft" if self.recipe == "sft" else "rlvr_ppo"), work, arguments.threads),
                Runner("trl", trl, work, arguments.threads),
            ]
            results[precision] = alternate(runners, arguments.iterations)
        name = f"{size} {tokens} {lengths}"
        targets = {"best": self.real} if folder else self.targets if size == "M" else {}
        cases = [Case(f"{name} {p}", r["rlvr"], r["trl"], targets.get(lengths)) for p, r in results.items()]
        if len(results) > 1 or folder:
            best = [min((r[side] for r in results.values()), key=lambda s: s["seconds"]) for side in ("rlvr", "trl")]
            cases.append(Case(f"{name} best", *best, targets.get("best")))
        return cases

    def _arguments(self) -> argparse.Namespace:
        parser = argparse.ArgumentParser(description=self.doc, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("--model", help="a real model, such as smollm2-135m, on real text, in place of random ones")
        parser.add_argument("--problems", type=Path, help="its problems: JSON lines (default: ../shared/data/problems)")
        parser.add_argument("--sizes", nargs="+", default=["M"], choices=["S", "M"])
        parser.add_argument("--tokens", nargs="+", type=int, default=[64])
        parser.add_argument("--lengths", nargs="+", default=["fixed", "realistic"], choices=["fixed", "realistic"])
        parser.add_argument("--precisions", nargs="+", default=["fp32", "bf16"], choices=["fp32", "bf16"])
        parser.add_argument("--iterations", type=int, default=3, help="of each side, after one to warm up")
        parser.add_argument("--threads", type=int, default=2)
        parser.add_argument(
            "--trl_python", help=f"a Python that has TRL {self.trl}, instead of an environment made by uv"
        )
        parser.add_argument(
            "--save", action="store_true", help=f"write benchmarks/results/{self.recipe}_vs_trl.md and .json"
        )
        return parser.parse_args()
