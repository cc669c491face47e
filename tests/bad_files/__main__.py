"""Give every command files that are damaged, empty, a stranger's or something else, and see that each is refused well.

    python -m tests.bad_files                   # 300 of them, drawn with --seed
    python -m tests.bad_files model --count 0   # all of a kind

A file is refused well if the command ends with exit status 2 and one message that names it, without a traceback, within
`--seconds`. Prints a table with a row for each kind of file, and each file that was not refused well. Exits with 1 if there is one.
"""

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from .kinds import all_of_them, draw  # noqa: E402
from .refused import Refusal, give  # noqa: E402
from .workshop import Workshop  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help="rows of the table; all by default")
    parser.add_argument("--count", type=int, default=300, help="how many, from each kind its share; 0 is all")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--only", default="", help="files with this in their title")
    parser.add_argument("--seconds", type=float, default=60, help="longest that a command may take")
    parser.add_argument("--show", action="store_true", help="print every message")
    arguments = parser.parse_args()
    from rlvr.boost import process

    process.start(seed=0, num_threads=1)
    table: dict[str, list[Refusal]] = {}
    with tempfile.TemporaryDirectory(prefix="bad-files-") as folder:
        shop = Workshop(Path(folder))
        every = all_of_them(shop)
        if unknown := set(arguments.kinds) - {bad.kind for bad in every}:
            parser.error(f"no kind {unknown.pop()!r}; there are: {', '.join(dict.fromkeys(bad.kind for bad in every))}")
        wanted = [bad for bad in every if not arguments.kinds or bad.kind in arguments.kinds]
        for bad in draw([bad for bad in wanted if arguments.only in bad.title], arguments.count, arguments.seed):
            refusal = give(bad, shop, arguments.seconds)
            table.setdefault(bad.kind, []).append(refusal)
            if refusal.wrong or arguments.show:
                print(f"{bad.kind}, {bad.title}: {refusal.wrong or 'refused'}\n    {refusal.said[-1500:]}", flush=True)
    print_table(table)
    return int(any(one.wrong for found in table.values() for one in found))


def print_table(table: dict[str, list[Refusal]]) -> None:
    print("| files of | given | refused well | not | slowest |\n|---|---|---|---|---|")
    for kind, found in table.items():
        print(_row(kind, found))
    print(_row("all", [one for found in table.values() for one in found]))


def _row(kind: str, found: list[Refusal]) -> str:
    wrong = Counter(one.wrong for one in found if one.wrong)
    slowest = max((one.took_s for one in found), default=0.0)
    return f"| {kind} | {len(found)} | {len(found) - wrong.total()} | {wrong.total()} | {slowest:.1f} s |"


if __name__ == "__main__":
    sys.exit(main())
