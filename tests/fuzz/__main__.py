"""Fuzz the grader for as long as you like.

    python -m tests.fuzz [equivalents near_misses hacks hostile] [--seconds 3600] [--seed 0] [--found FILE]

Tries new cases of `tests/fuzz_cases.py` until the time is over, in turn from each of the kinds' strategies. What the grader gets
wrong is shrunk and printed as a line of JSON, for tests/fuzz/found.jsonl, whose cases tests/fuzz/test_found.py tries for good. After
`--most` faults of one topic the others have the time. Exits with 1 if there were any.
"""

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from fuzz_cases import KINDS, Case  # noqa: E402
from fuzz_search import fault, search  # noqa: E402

EXAMPLES = 200
"""Cases of one strategy before the next has its turn."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}; all by default")
    parser.add_argument("--seconds", type=float, default=60, help="how long")
    parser.add_argument(
        "--seed", type=int, default=0, help="of the first cases; the same seed tries the same ones in the same order"
    )
    parser.add_argument("--most", type=int, default=5, help="faults of one topic that are printed")
    parser.add_argument("--found", type=Path, help="file to write the faults to, beside printing them")
    arguments = parser.parse_args()
    if unknown := [kind for kind in arguments.kinds if kind not in KINDS]:
        parser.error(f"no kind {unknown[0]!r}; there are: {', '.join(KINDS)}")
    found, tried = _fuzz(arguments)
    for topic, count in sorted(tried.items()):
        print(f"{topic:12} {count:9,} cases", file=sys.stderr)
    print(f"{sum(tried.values()):,} cases, {len(found)} faults, seed {arguments.seed}", file=sys.stderr)
    return int(bool(found))


def _fuzz(arguments: argparse.Namespace) -> tuple[list[Case], Counter[str]]:
    strategies = [(kind, one) for kind in arguments.kinds or KINDS for one in KINDS[kind].values()]
    found: list[Case] = []
    faults: Counter[tuple[str, str]] = Counter()
    tried: Counter[str] = Counter()
    until_s, number = time.monotonic() + arguments.seconds, 0

    def known(case: Case) -> bool:
        return faults[case.kind, case.topic] >= arguments.most or case in found

    while time.monotonic() < until_s:
        kind, strategy = strategies[number % len(strategies)]
        case, count = search(strategy, arguments.seed + number, EXAMPLES, known, until_s)
        tried[kind] += count
        number += 1
        if case is not None:
            found.append(case)
            faults[case.kind, case.topic] += 1
            print(f"{case.kind}, {case.topic}: {fault(case)}", file=sys.stderr)
            print(case.line(), flush=True)
            if arguments.found:
                with arguments.found.open("a", encoding="utf-8") as file:
                    file.write(case.line() + "\n")
    return found, tried


if __name__ == "__main__":
    sys.exit(main())
