"""The house in figures: `uv run python -m benchmarks.house`. Prints how much there is to read, and how it hangs together.

Counted are `rlvr` and `rewards`. Import depth is the longest chain of modules of which each imports the next at its top. A circle
is looked for among all imports, those inside functions too. The files of a step are traced (`docs/generate/step_files.py`); the
model of that run is the built-in one. Targets are for orientation, except for circles: where a figure stands against ease of
reading, reading wins.
"""

import ast
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("rlvr", "rewards")
LOSS_SETTINGS = ("entropy_coef", "eps_clip", "kl_coef", "vf_coef", "positive_lm_coef")


@cache
def modules(*packages: str) -> dict[str, Path]:
    """Every module of the packages by its dotted name."""
    files = [path for package in packages for path in sorted((ROOT / package).rglob("*.py"))]
    return {".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p for p in files}


@cache
def trees(*packages: str) -> dict[str, ast.Module]:
    return {name: ast.parse(path.read_text()) for name, path in modules(*packages).items()}


@cache
def import_graph(*packages: str, everywhere: bool = True) -> dict[str, set[str]]:
    """The modules of the packages that each of them imports: at its top, or everywhere but where only type checkers read.

    `rlvr` itself is left out: it loads names lazily, from anywhere.
    """
    return {
        name: _imports(name, tree, packages, everywhere) for name, tree in trees(*packages).items() if name != "rlvr"
    }


def _imports(name: str, tree: ast.Module, packages: tuple[str, ...], everywhere: bool) -> set[str]:
    known = modules(*packages)
    only_types = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and getattr(block.test, "id", "") == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    found: set[str] = set()
    for node in ast.walk(tree) if everywhere else tree.body:
        if id(node) in only_types:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            parts = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {part if part in known else node.module for part in parts}
    return (found & known.keys()) - {name, "rlvr"}


def circle(graph: Mapping[str, set[str]]) -> str:
    """One circle of imports, or "none"."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return " imports ".join(reversed(error.args[1]))
    return "none"


@cache
def depth(name: str) -> int:
    return 1 + max(map(depth, import_graph(*PACKAGES, everywhere=False)[name]), default=0)


def functions() -> Iterator[int]:
    """Lines of each function."""
    for tree in trees(*PACKAGES).values():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield (node.end_lineno or node.lineno) - node.lineno + 1


def files_naming(setting: str) -> list[str]:
    """Files that name a setting of the loss, whether as a name, an attribute, an argument or a text."""
    return [
        name
        for name, tree in trees(*PACKAGES).items()
        if any(
            setting
            in (getattr(n, "id", ""), getattr(n, "attr", ""), getattr(n, "arg", ""), str(getattr(n, "value", "")))
            for n in ast.walk(tree)
        )
    ]


def files_of_a_step() -> list[str]:
    out = subprocess.run(
        [sys.executable, "docs/generate/step_files.py"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    words = [line.split() for line in out.stdout.splitlines()]
    return [pair[1] for pair in words if len(pair) == 2 and pair[0].isdigit() and pair[1].endswith(".py")]


def processor_seconds(*words: str) -> float:
    """Processor time of a command, its best of three."""
    return min(_timed(words) for _ in range(3))


def _timed(words: tuple[str, ...]) -> float:
    import resource

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def first_line_s() -> float:
    """Seconds by the clock until `rlvr train` prints its first line."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["-m", "rlvr", "train", "--reward_functions", "gsm8k_reward_fn", "--save_path", f"{folder}/run"]
        begun = time.perf_counter()
        with subprocess.Popen([sys.executable, *words], cwd=ROOT, stdout=subprocess.PIPE) as run:
            assert run.stdout is not None
            run.stdout.readline()
            seconds = time.perf_counter() - begun
            run.kill()
    return seconds


@dataclass(frozen=True)
class Figure:
    """A line of the table."""

    name: str
    found: str
    target: str = ""


def figures() -> Iterator[Figure]:
    lines = {name: path.read_text().splitlines() for name, path in modules(*PACKAGES).items()}
    counts = sorted(len(text) for text in lines.values())
    total, comments = sum(counts), sum(line.lstrip().startswith("#") for text in lines.values() for line in text)
    yield Figure("files", str(len(lines)), "about 210")
    yield Figure("lines", f"{total:,}", "about 35,000")
    yield Figure("file, median and largest", f"{statistics.median(counts):.0f}, {counts[-1]}", "150 to 400")
    of_functions = sorted(functions())
    nine_tenths = of_functions[len(of_functions) * 9 // 10]
    yield Figure(
        "function, median, nine tenths, longest",
        f"{statistics.median(of_functions):.0f}, {nine_tenths}, {of_functions[-1]}",
    )
    yield Figure("comment lines", f"{comments / total:.1%}")
    loose = [p.name for p in (ROOT / "rlvr").glob("*.py") if p.name != "__init__.py"]
    yield Figure("loose modules in rlvr/", f"{len(loose)} ({', '.join(sorted(loose))})", "at most 3")
    yield Figure("circle of imports", circle(import_graph(*PACKAGES)), "none")
    yield Figure("import depth", str(max(map(depth, import_graph(*PACKAGES)))), "about 14")
    step = files_of_a_step()
    of_step = sum(len((ROOT / file).read_text().splitlines()) for file in step)
    graded = sum(file.startswith("rewards/") for file in step)
    yield Figure(
        "files of one PPO step", f"{len(step)}, {of_step:,} lines ({graded} of them grade an answer)", "about 30"
    )
    for setting in LOSS_SETTINGS:
        yield Figure(f"files that name {setting}", str(len(files_naming(setting))), "3, and facades")
    yield Figure("rlvr --help", f"{processor_seconds('-m', 'rlvr', '--help'):.2f} s of processor time", "0.5 s")
    yield Figure("first line of rlvr train", f"{first_line_s():.1f} s", "4 s")


def main() -> None:
    for row in figures():
        print(f"{row.name:<42}{row.found:<64}{row.target}", flush=True)


if __name__ == "__main__":
    main()
