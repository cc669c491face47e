"""Strike runs with faults, go on, and compare with the run that nothing happened to.

    uv run python -m tests.faults --count 200

Prints each fault with its outcome and, at the end, the table of docs/faults.md. The exit status is 0 if every outcome is
right. As root it also fills a real (small) file system and cuts a wire between two network namespaces; otherwise these
kinds are left out, and the table says so. `--only WORD` takes kinds with this word in their name.

`--runs` names what is struck: `ppo`, `sft` or `rm`, then `x2` for two processes, then a plugin (`fsdp`, `gemini`; `3d` where
transformers 4.51 is installed) or `Ray`; or `two machines`.
"""

import argparse
import contextlib
import random
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from . import kinds as k  # noqa: E402
from . import ray_kinds as r  # noqa: E402
from .forking import import_all  # noqa: E402
from .lab import SORTS, Lab, Wire, may_join_namespaces, may_mount  # noqa: E402
from .strike import Maker, Outcome, strike  # noqa: E402


@dataclass
class Row:
    """A line of the table: a kind of fault in a kind of run."""

    kind: str
    lab: Lab
    make: Maker
    weight: int = 1
    outcomes: list[Outcome] = field(default_factory=list)


def rows(labs: dict[str, Lab], wire: Wire | None, mounts: bool) -> list[Row]:
    """Every kind of fault, in every kind of run that it fits."""
    found: list[Row] = []
    for name, lab in labs.items():
        if name == "two machines":
            assert wire is not None
            found.append(Row("network cut for good", lab, k.network_cut(wire, True)))
            found.append(Row("network cut for 0.3 s", lab, k.network_cut(wire, False)))
            continue
        if lab.on_ray:
            found += [Row(kind, lab, make) for kind, make in r.KINDS.items()]
        phases = [p for p in k.PHASES if any(v.phase == p for v in lab.visits[0])]
        found += [Row(f"SIGKILL in {phase}", lab, k.kill(phase)) for phase in phases]
        if not lab.on_ray:  # starting takes too long
            found.append(Row("SIGKILL five times in a row", lab, k.killed_again_and_again))
        found.append(Row("SIGKILL while slowly writing", lab, k.slow_and_killed))
        found.append(Row("SIGTERM", lab, k.terminate, 2))
        found += [
            Row(f"{how} of a checkpoint file", lab, k.damaged(how)) for how in ("truncation", "bit flip", "deletion")
        ]
        found.append(Row("all checkpoints damaged", lab, k.all_damaged))
        found.append(Row("limit on file size", lab, k.file_limit))
        if mounts:
            found.append(Row("disk full", lab, k.full_disk))
        if lab.name == "ppo":
            if not lab.on_ray:
                found += [
                    Row(f"SIGKILL of the reward {which}", lab, k.reward_worker(which)) for which in ("worker", "zygote")
                ]
            found += [
                Row(f"reward function {how}", lab, k.broken_reward(how))
                for how in ("raises", "hangs", "exits", "allocates")
            ]
        if lab.processes > 1:
            found.append(Row("process asleep", lab, k.frozen))
    return found


@contextlib.contextmanager
def laboratory(folder: Path, names: tuple[str, ...]) -> Iterator[tuple[dict[str, Lab], Wire | None]]:
    """The kinds of runs, in a folder of their own."""
    from saved_models import save_micro_model

    model = save_micro_model(folder / "model")
    wire = Wire() if "two machines" in names else None
    labs = {}
    for name in names:
        root = folder / name.replace(" ", "-")
        root.mkdir()
        if name == "two machines" and wire is not None:
            labs[name] = Lab("ppo", 2, root, model, wire.names, wire.ADDRESSES[0], wire.cards, 4.0)
        else:
            kind, *words = name.split()
            sort = "".join(word for word in words if word != "x2")
            labs[name] = Lab(kind, 2 if "x2" in words else 1, root, model, timeout_s=15.0, sort=sort)
    try:
        yield labs, wire
    finally:
        if wire is not None:
            wire.close()


def campaign(table: list[Row], count: int, seed: int, tell: Callable[[str], None]) -> None:
    """Strike `count` times: every row as often as its weight says, in an order that the seed gives. A fault that came too
    late, or found nothing to strike, is drawn again."""
    order = [row for row in table for _ in range(row.weight)]
    random.Random(seed).shuffle(order)
    for number in range(count):
        row = order[number % len(order)]
        rng = random.Random(f"{seed} {number} {row.kind} {row.lab.name} {row.lab.processes}")
        while (
            outcome := strike(row.lab, row.make, rng, row.lab.root / "run")
        ).struck == "missed" and not outcome.problem:
            tell(f"{number + 1}/{count} {row.lab.title}: {row.kind} ({outcome.what}): missed, drawn again")
        row.outcomes.append(outcome)
        verdict = outcome.problem or f"{outcome.struck}, then {outcome.then}"
        tell(f"{number + 1}/{count} {row.lab.title}: {row.kind} ({outcome.what}): {verdict}")


def print_table(table: list[Row]) -> None:
    names = list(dict.fromkeys(row.lab.title for row in table))
    print("| fault | " + " | ".join(names) + " | struck run | after `--resume` | wrong |")
    print("|---|" + "---|" * (len(names) + 3))
    for kind in dict.fromkeys(row.kind for row in table):
        of_kind = {row.lab.title: row.outcomes for row in table if row.kind == kind}
        every = [outcome for outcomes in of_kind.values() for outcome in outcomes]
        cells = [str(len(of_kind[name])) if name in of_kind else "" for name in names]
        cells += [_counts(o.struck for o in every), _counts(o.then for o in every if not o.problem)]
        print(f"| {kind} | {' | '.join(cells)} | {sum(bool(o.problem) for o in every)} |")
    all_of_them = [outcome for row in table for outcome in row.outcomes]
    print(f"\n{len(all_of_them)} faults, {sum(bool(o.problem) for o in all_of_them)} with a wrong outcome")


def _counts(words: Iterable[str]) -> str:
    return ", ".join(f"{number} {word}" for word, number in Counter(words).most_common())


def _run(text: str) -> str:
    """A kind of run by its name."""
    kind, *words = text.split() or [""]
    if text != "two machines" and (kind not in ("ppo", "sft", "rm") or set(words) - {"x2", *SORTS}):
        raise argparse.ArgumentTypeError(
            f"{text!r}: give ppo, sft or rm, then x2 or not, then {', '.join(SORTS)} or nothing"
        )
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="of kinds' moments")
    parser.add_argument("--only", default="", help="kinds with this in their name")
    parser.add_argument(
        "--runs", nargs="*", default=["ppo", "ppo x2", "sft", "rm", "sft x2", "two machines"], type=_run
    )
    arguments = parser.parse_args()
    names = [n for n in arguments.runs if n != "two machines" or may_join_namespaces()]
    import_all()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # leaves no namespaces and folders behind
    folder = Path(tempfile.mkdtemp(prefix="faults-"))
    try:
        with laboratory(folder, tuple(names)) as (labs, wire):
            table = [row for row in rows(labs, wire, may_mount()) if arguments.only in row.kind]
            campaign(table, arguments.count, arguments.seed, lambda text: print(text, flush=True))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print_table(table)
    return 1 if any(outcome.problem for row in table for outcome in row.outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
