"""Does plain `pip install` of the wheel work? Builds it, installs it on each Python into an environment of its own, and runs the main
commands from an empty folder: doctor, train, resume, score, audit, eval, report, chat.

    python -m benchmarks.installation --pythons 3.11 3.12 3.13

Writes benchmarks/results/installation.md. Needs uv (which fetches the Pythons), the network, and 8 GB of disk for a Python at a time.
pip takes the versions that ColossalAI's metadata allows (torch 2.5.1, transformers 4.51.3); `uv sync` takes today's.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from benchmarks.machine import processor

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "benchmarks" / "results" / "installation.md"
EXTRAS = "report"  # smollm2 is left out: with pip, its package compiles llama.cpp
SMALL = "--experience_batch_size 64 --train_batch_size 32 --eval_samples 32".split()
TRAIN = ["train", "--reward_functions", "gsm8k_reward_fn", "--save_path", "run", *SMALL]
ANSWERS = [{"response": "<think>6 * 7</think><answer>42</answer>", "gold": "42"}, {"response": "41", "gold": "42"}]
COMMANDS: dict[str, list[str]] = {
    "doctor": ["doctor"],
    "train": [*TRAIN, "--num_episodes", "2"],
    "resume": [*TRAIN, "--num_episodes", "3", "--resume"],
    "score": ["score", "answers.jsonl", "--reward", "gsm8k_reward_fn", "--workers", "1"],
    "audit": ["audit", "gsm8k_reward_fn"],
    "eval": ["eval", "run", "--dataset", "builtin", "--max_samples", "16"],
    "report": ["report", "run"],
    "chat": ["chat", "run"],
}
LIMIT_S = 1200.0


@dataclass
class Installation:
    """What happened on one Python.

    Attributes:
        versions: of Python and the main packages.
        seconds, bytes: of the installation.
        commands: exit status (None: killed at the limit) and seconds of each.
    """

    versions: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    bytes: int = 0
    commands: dict[str, tuple[int | None, float]] = field(default_factory=dict)


def main() -> None:
    """Build, install and try; exit with status 1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pythons", nargs="+", default=["3.11", "3.12", "3.13"])
    pythons = parser.parse_args().pythons
    with tempfile.TemporaryDirectory(prefix="rlvr-installation-") as folder:
        run(["uv", "build", "--wheel", "--sdist", "--out-dir", f"{folder}/dist", str(ROOT)])
        wheel = next(Path(folder, "dist").glob("*.whl"))
        found: dict[str, Installation] = {}
        for python in pythons:
            found[python] = try_python(python, wheel)
            # Each takes minutes: what there is stays if the next is stopped.
            PAGE.write_text("\n".join(lines(found)) + "\n")
    print(PAGE.read_text())
    if any(status != 0 for one in found.values() for status, _ in one.commands.values()):
        sys.exit(1)


def try_python(python: str, wheel: Path) -> Installation:
    """Install the wheel with pip on one Python, and run all commands there."""
    with tempfile.TemporaryDirectory(prefix=f"rlvr-{python}-") as folder:
        home, empty = Path(folder), Path(folder, "empty")
        empty.mkdir()
        run(["uv", "venv", "--quiet", "--seed", "--python", python, str(home / "venv")])
        began = time.monotonic()
        done = run([str(home / "venv/bin/pip"), "install", "--no-cache-dir", "--quiet", f"{wheel}[{EXTRAS}]"])
        found = Installation(seconds=time.monotonic() - began)
        print(f"{python}: installed in {found.seconds:.0f} s\n{done.stderr}", flush=True)
        found.bytes = sum(p.stat().st_size for p in (home / "venv").rglob("*") if p.is_file() and not p.is_symlink())
        found.versions = versions(home / "venv/bin/python")
        (empty / "answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ANSWERS))
        for name, words in COMMANDS.items():
            found.commands[name] = call(home, empty, words)
            print(f"{python}: {name} {found.commands[name]}", flush=True)
        return found


def call(home: Path, folder: Path, words: list[str]) -> tuple[int | None, float]:
    """Run `rlvr` with these words; nothing of this machine's other installations is on its path."""
    env = {"PATH": f"{home / 'venv/bin'}:/usr/bin:/bin", "HOME": str(home), "RLVR_CACHE": str(home / "cache")}
    env |= {name: os.environ[name] for name in ("HTTPS_PROXY", "HTTP_PROXY", "SSL_CERT_FILE") if name in os.environ}
    began = time.monotonic()
    try:
        done = subprocess.run(
            [str(home / "venv/bin/rlvr"), *words],
            cwd=folder,
            env=env,
            input="12+30=?\n",
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        return None, LIMIT_S
    if done.returncode:
        print(done.stdout[-2000:], done.stderr[-3000:], flush=True)
    return done.returncode, time.monotonic() - began


def versions(python: Path) -> dict[str, str]:
    """Versions of Python and of the packages that matter."""
    code = (
        "import json, platform; from importlib.metadata import version as v\n"
        "print(json.dumps({'Python': platform.python_version(), **{n: v(n) for n in ('torch', 'transformers', 'colossalai', 'peft')}}))"
    )
    return json.loads(run([str(python), "-P", "-c", code]).stdout)


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command that must work; its output is shown if it does not."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done


def lines(found: dict[str, Installation]) -> Iterator[str]:
    """The table as Markdown."""
    yield f"`pip install 'rlvr[{EXTRAS}]'` of the wheel, {date.today()}, {processor()}; seconds of each command, or how it ended.\n"
    yield (
        "| Python | "
        + " | ".join(("torch", "transformers", "colossalai", "peft"))
        + " | installed in | size | "
        + " | ".join(f"`rlvr {name}`" for name in COMMANDS)
        + " |"
    )
    yield "|---" * (7 + len(COMMANDS)) + "|"
    for one in found.values():
        cells = [*one.versions.values(), f"{one.seconds:.0f} s", f"{one.bytes / 1e9:.1f} GB"]
        for status, seconds in one.commands.values():
            cells.append(f"{seconds:.0f} s" if status == 0 else "never ended" if status is None else f"status {status}")
        yield "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
