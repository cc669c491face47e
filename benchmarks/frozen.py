"""Freeze the numbers: what short seeded trainings compute, to the last bit, before and after a change that must not change them.

    uv run python -m benchmarks.frozen record before.json                   # every case; some minutes on 2 quiet cores
    uv run python -m benchmarks.frozen record after.json --only ppo fsdp    # some of them
    uv run python -m benchmarks.frozen compare before.json after.json       # equal, or each difference and status 1
    uv run python -m benchmarks.frozen compare before.json after.json --only ppo fsdp

Only the public commands are run (`scripts/*.py`, by torchrun too, and `rlvr`), with flags that users type, and only the files that
they write are read: whatever is moved inside the packages, this file goes on working. `CASES` names the cases and their commands.

A case's record holds
- metrics: every row of `metrics.jsonl`, floats exactly (JSON writes their repr), without the fields of `CLOCKED`;
- samples: the rows of `samples.jsonl`, so texts, scores and verdicts;
- weights: for each tensor of the final `*.safetensors`, a digest of dtype, shape and bytes, under file and name;
- state: the same for all that the states in the last checkpoint hold (optimizer, schedule, random generators);
- verdicts (case `rewards`): score, status and answer of each response by `rlvr score`.

Digests are the first 16 hexadecimal digits of SHA-256. One thread for each process (OMP_NUM_THREADS=1): the order of sums, and so the
last bit, would depend on the number. The figures hold for one kind of processor and one set of versions, which the record names;
`compare` says where these differ. All but `warm_start` use the built-in model of this machine's cache, which the first of
them builds if there is none; `warm_start` builds it anew in a folder of its own.
"""

import argparse
import hashlib
import importlib.metadata
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from benchmarks.machine import processor
from rlvr.checkpoint.storage import TRAINING, load_tensors

ROOT = Path(__file__).parents[1]
LABELLED = ROOT.parent / "shared" / "data" / "rewards"
ROWS_PER_FILE = 40  # of each labelled file

# Fields that depend on the clock or on the machine's other work, by where in the name they match:
CLOCKED = re.compile(
    r"^time/"  # seconds by phase, of the episode, in all
    r"|^memory/"  # bytes resident and on the device
    r"|(^|/)seconds(_|/|$)"  # the run's clock in checkpoints
    r"|per_second"  # throughput
)

Command = list[str]
PYTHON = sys.executable
RLVR = [PYTHON, "-m", "rlvr"]
PPO = [PYTHON, "scripts/train_rlvr.py"]
TWO = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "scripts/train_rlvr.py"]
RAY = [PYTHON, "scripts/train_rlvr_on_ray.py", "--pretrain", "tiny", "--num_collect_steps", "1"]
SFT = [PYTHON, "scripts/train_sft.py"]
RM = [PYTHON, "scripts/train_rm.py"]
RULE = "--reward_functions gsm8k_reward_fn"
# Two episodes of two optimizer steps. 24 tokens end some responses and cut others.
SHORT = "--seed 1 --num_episodes 2 --experience_batch_size 16 --train_batch_size 8 --max_new_tokens 24"
SAVED = "--save_interval 1 --eval_samples 8 --no_progress --save_path {folder}/run"
GROUPS = "--num_generations 4"
SUPERVISED = (
    "--seed 1 --max_steps 4 --train_batch_size 8 --max_samples 64 --log_interval 1 --save_interval 2 --no_progress"
)


@dataclass(frozen=True)
class Case:
    """Commands that are run in turn; `{folder}` in them is the case's own. What they wrote to `{folder}/run` is recorded.

    Attributes:
        run: takes the case's folder and log, in place of `commands`; returns what is recorded.
        transformers: the case needs a version that starts so.
        unseeded: entries of `state` that start so are left out: nothing seeds them and nothing reads them.
    """

    commands: tuple[Command, ...] = ()
    run: Callable[[Path, Path], dict[str, Any]] | None = None
    transformers: str = ""
    unseeded: str | None = None


class Skipped(Exception):
    """A case that can't be run here, and why."""


class Failed(Exception):
    """A case whose command failed, or whose numbers contradict each other."""


def ppo(flags: str = "", start: Command = PPO, rule: str = RULE) -> Command:
    """A short PPO run; `flags` win over its own."""
    return [*start, *f"{rule} {SHORT} {SAVED} {flags}".split()]


def supervised(start: Command, flags: str = "", folder: str = "run") -> Command:
    return [*start, *f"{SUPERVISED} --save_path {{folder}}/{folder} {flags}".split()]


def record_run(folder: Path) -> dict[str, Any]:
    """What the files of a run hold, less what depends on the clock."""
    checkpoints = sorted((folder / "checkpoints").glob("step-*"))
    return {
        "metrics": read_rows(folder / "metrics.jsonl"),
        "samples": read_rows(folder / "samples.jsonl"),
        "weights": digest_weights(folder),
        "state": digest_state(checkpoints[-1]) if checkpoints else {},
    }


def read_rows(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [{name: value for name, value in row.items() if not CLOCKED.search(name)} for row in rows]


def digest_weights(folder: Path) -> dict[str, str]:
    """Digests of the tensors in every safetensors file under a folder that is no part of a checkpoint."""
    digests: dict[str, str] = {}
    for path in sorted(folder.rglob("*.safetensors")):
        place = path.relative_to(folder)
        if place.parts[0] == "checkpoints":
            continue
        with safe_open(path, framework="pt") as file:
            digests |= {f"{place}: {name}": digest(file.get_tensor(name)) for name in sorted(file.keys())}
    return digests


def digest_state(checkpoint: Path) -> dict[str, Any]:
    """All that the states in a checkpoint hold: tensors as digests, numbers and texts as they are."""
    found: dict[str, Any] = {}
    for path in sorted([*checkpoint.rglob(TRAINING), *checkpoint.glob("rank-*.safetensors")]):
        place = str(path.relative_to(checkpoint))
        held = load_tensors(path)
        leaves = {f"{place}: {name}": value for name, value in flatten(held)}
        found |= {name: plain(value) for name, value in leaves.items() if not CLOCKED.search(name.partition(": ")[2])}
    return found


def flatten(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of nested mappings and sequences, with the way to each."""
    if isinstance(value, Mapping):
        items: Iterable[tuple[Any, Any]] = value.items()
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    else:
        yield name, value
        return
    for key, held in items:
        yield from flatten(held, f"{name}/{key}" if name else str(key))


def plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return digest(value)
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)


def digest(tensor: torch.Tensor) -> str:
    raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)} ".encode() + raw).hexdigest()[:16]


def environment() -> dict[str, str]:
    return os.environ | {
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",  # nothing here is on the hub
        "RAY_AUTH_MODE": "disabled",  # else Ray leaves a token in the home folder
        "RAY_worker_niceness": "0",  # 15 by default: on a busy machine its workers would hardly get on
    }


def start(command: Command, folder: Path, log: Path, **variables: str) -> subprocess.Popen[bytes]:
    words = [word.replace("{folder}", str(folder)) for word in command]
    with log.open("ab") as file:
        return subprocess.Popen(words, cwd=ROOT, env=environment() | variables, stdout=file, stderr=subprocess.STDOUT)


def call(command: Command, folder: Path, log: Path, allowed: tuple[int, ...] = (0,), **variables: str) -> None:
    status = start(command, folder, log, **variables).wait()
    if status not in allowed:
        raise Failed(f"status {status} of {' '.join(command)}\n{log.read_text(errors='replace')[-3000:]}")


def warm_start(folder: Path, log: Path) -> dict[str, Any]:
    """The built-in model, built anew."""
    call(supervised(SFT, "--max_steps 1"), folder, log, RLVR_CACHE=str(folder / "cache"))
    # The cache names a model's folder after its settings; what is frozen is what it computes.
    return {"weights": {name.partition("/")[2]: value for name, value in digest_weights(folder / "cache").items()}}


def stop_and_resume(folder: Path, log: Path) -> dict[str, Any]:
    """A run that is stopped by a signal after a checkpoint and goes on; it ends as the one that was not stopped.

    Raises:
        Failed: the two differ, or the signal came too late.
    """
    flags = "--num_episodes 12 --keep_checkpoints 1 --save_path {folder}/"
    call(ppo(flags + "whole"), folder, log)
    stopped = start(ppo(flags + "stopped"), folder, log)
    while stopped.poll() is None and not list(folder.glob("stopped/checkpoints/step-*/state.json")):
        time.sleep(0.01)
    stopped.send_signal(signal.SIGTERM)
    if (status := stopped.wait()) != 128 + signal.SIGTERM:
        raise Failed(
            f"status {status} in place of {128 + signal.SIGTERM} after a signal to stop\n{log.read_text()[-3000:]}"
        )
    call(ppo(flags + "stopped --resume"), folder, log)
    whole, resumed = record_run(folder / "whole"), record_run(folder / "stopped")
    for run in (whole, resumed):
        # An episode that is resumed in its middle writes none, and which one that is depends on the clock.
        del run["samples"]
    found = list(differences(whole, resumed))
    if found:
        raise Failed("\n".join(["resumed is not as uninterrupted:", *found]))
    return resumed


def rewards(folder: Path, log: Path) -> dict[str, Any]:
    """Verdicts on the first rows of each labelled file."""
    if not LABELLED.is_dir():
        raise Skipped(f"no folder {LABELLED.relative_to(ROOT.parent)} beside the checkout")
    names, lines = labelled_rows()
    data, scored = folder / "rows.jsonl", folder / "scores.jsonl"
    data.write_text("\n".join(lines))
    functions = ["gsm8k_reward_fn", "math_reward_fn", "math_competition_reward_fn", "tag_count_fn"]
    command = [*RLVR, "score", str(data), "--reward", *functions, "--gold_column", "gold", "--output", str(scored)]
    call(command, folder, log, allowed=(0, 1))  # 1: it found rows whose right answer can't be read
    if not scored.is_file():
        raise Failed(f"nothing was scored\n{log.read_text()[-3000:]}")
    verdicts = [json.loads(line) for line in scored.read_text().splitlines()]
    if len(verdicts) != len(names):
        raise Failed(f"{len(verdicts)} verdicts on {len(names)} responses")
    return {"verdicts": {name: verdict(row) for name, row in zip(names, verdicts, strict=True)}}


def labelled_rows() -> tuple[list[str], list[str]]:
    """Names and lines of responses with a right answer."""
    names, lines = [], []
    for path in sorted(LABELLED.glob("*.jsonl")):
        rows = [json.loads(line) for line in path.read_text().splitlines()[:ROWS_PER_FILE]]
        for number, row in enumerate(rows):
            if "gold" in row and "response" in row:
                names.append(f"{path.stem} {number}")
                response = tagged(row["response"]) if number % 2 else row["response"]
                lines.append(json.dumps({"gold": row["gold"], "response": response}))
    return names, lines


def tagged(response: str) -> str:
    """The response as a template wants it, with its last line as the answer."""
    return f"<think>{response}</think><answer>{response.strip().rpartition(chr(10))[2]}</answer>"


def verdict(row: dict[str, Any]) -> str:
    parts = [f"{name} {s['score']!r} {s['status']} {s['answer']!r}" for name, s in row["scores"].items()]
    return "; ".join([f"total {row['total']!r}", *parts])


RM_FIRST = supervised(RM, folder="rm")
CASES = {
    "ppo": Case((ppo(),)),
    "ppo_bf16": Case((ppo("--mixed_precision bf16"),)),
    "ppo_terms": Case(
        (
            ppo(
                "--kl_in loss --kl_estimator k3 --kl_target 1 --entropy_coef 0.01 --dual_clip 3 --positive_lm_coef 0.1 "
                "--accumulation_steps 2 --train_batch_size 4 --num_update_steps 2 --micro_batch_tokens 256 --lam 0.9 "
                "--whiten_rewards --missing_eos_penalty 0.5"
            ),
        )
    ),
    "ddp": Case((ppo("--plugin ddp", TWO),)),
    "zero2": Case((ppo("--plugin zero2", TWO),)),
    "fsdp": Case((ppo("--plugin fsdp", TWO),)),
    "gemini": Case((ppo("--plugin gemini --mixed_precision bf16", TWO),)),
    # ColossalAI cuts up the models of this version only: docs/tensor_and_pipeline.md.
    "tp": Case((ppo("--plugin 3d --tp 2", TWO),), transformers="4.51."),
    "pp": Case((ppo("--plugin 3d --pp 2 --accumulation_steps 2", TWO),), transformers="4.51."),
    # The driver has no model and draws nothing.
    "ray": Case((ppo("--max_reward_workers 1", RAY),), unseeded="rank-0.safetensors: random/"),
    "lora": Case((ppo("--lora_config examples/smollm2_laptop/lora.json"),)),
    "grpo": Case((ppo(f"--preset grpo {GROUPS}"),)),
    "dapo": Case((ppo(f"--preset dapo {GROUPS} --max_refills 2"),)),
    "shared_trunk": Case((ppo("--share_trunk"),)),
    "sft": Case((supervised(SFT, "--eval_share 0.25 --packing"),)),
    "reward_model": Case((supervised(RM, "--eval_share 0.25"),)),
    "neural_reward": Case(
        (RM_FIRST, ppo("--rm_checkpoint_path {folder}/rm --reward_weights 0.5 --reward_normalisation fixed"))
    ),
    "stop_and_resume": Case(run=stop_and_resume),
    "rewards": Case(run=rewards),
    "warm_start": Case(run=warm_start),
}


def run_case(name: str, folder: Path) -> dict[str, Any]:
    """Run a case in a new folder; its record, or why there is none under "skipped" or "failed"."""
    case, log = CASES[name], folder / "log.txt"
    folder.mkdir()
    try:
        if not importlib.metadata.version("transformers").startswith(case.transformers):
            raise Skipped(f"needs transformers {case.transformers}*")
        if case.run is not None:
            return case.run(folder, log)
        for command in case.commands:
            call(command, folder, log)
        found = record_run(folder / "run")
        if not (found["metrics"] and found["weights"] and found["state"]):
            raise Failed(f"the run wrote no metrics, weights or checkpoint\n{log.read_text()[-3000:]}")
        if case.unseeded is not None:
            found["state"] = {k: v for k, v in found["state"].items() if not k.startswith(case.unseeded)}
        return found
    except Skipped as reason:
        return {"skipped": str(reason)}
    except Failed as reason:
        return {"failed": str(reason)}


def record(names: list[str], out: Path, jobs: int) -> int:
    """Run cases, `jobs` at a time, and write what they computed; 1 if one failed."""
    begun = time.monotonic()

    def timed(name: str) -> dict[str, Any]:
        before = time.monotonic()
        case = run_case(name, Path(folder) / name)
        how = next((f"{key}: {case[key]}" for key in ("skipped", "failed") if key in case), "done")
        print(f"{name:16}{time.monotonic() - before:6.1f} s  {how}", flush=True)
        return case

    with tempfile.TemporaryDirectory(prefix="frozen-") as folder, ThreadPoolExecutor(jobs) as pool:
        cases = dict(zip(names, pool.map(timed, names), strict=True))
    out.write_text(json.dumps({"where": where(), "cases": cases}, indent=0) + "\n")
    print(f"{out}: {len(cases)} cases, {out.stat().st_size / 1000:.0f} kB, {time.monotonic() - begun:.0f} s in all")
    return int(any("failed" in case for case in cases.values()))


def where() -> dict[str, str]:
    """What else the last bit depends on."""
    packages = {name: importlib.metadata.version(name) for name in ("torch", "transformers", "colossalai", "numpy")}
    return {"processor": processor(), "python": sys.version.split()[0], **packages}


def compare(first: Path, second: Path, only: list[str] | None) -> int:
    """Print each difference between two records; 1 if there is one."""
    one, other = (json.loads(path.read_text()) for path in (first, second))
    for line in differences(one["where"], other["where"]):
        print(f"note: recorded elsewhere: {line}")
    a, b = ({name: case for name, case in r["cases"].items() if only is None or name in only} for r in (one, other))
    count = 0
    for name in dict.fromkeys([*(only or []), *a, *b]):
        broken = [f"no record in {path}" for path, held in ((first, a), (second, b)) if name not in held]
        broken += [f"failed in {path}" for path, held in ((first, a), (second, b)) if "failed" in held.get(name, {})]
        found = broken or list(differences(a[name], b[name]))
        for line in found:
            print(f"{name}: {line}")
        count += len(found)
    skipped = [name for name in a if "skipped" in a[name]]
    print(
        f"{count} differences"
        if count
        else f"equal: {len(a) - len(skipped)} cases" + (f"; skipped: {', '.join(skipped)}" if skipped else "")
    )
    return int(count > 0)


def differences(one: Any, other: Any) -> Iterator[str]:
    """Each leaf in which two nested values differ. NaN equals NaN; 0.0 and -0.0 differ, as do 1 and 1.0."""
    a, b = dict(flatten(one)), dict(flatten(other))
    for name in dict.fromkeys([*a, *b]):
        x, y = (json.dumps(held[name]) if name in held else "absent" for held in (a, b))
        if x != y:
            yield f"{name}: {x} -> {y}{relative(a.get(name), b.get(name))}"


def relative(x: Any, y: Any) -> str:
    """How far apart two numbers are, for the reader."""
    if not (isinstance(x, float) and isinstance(y, float)) or not (math.isfinite(x) and math.isfinite(y)) or x == y:
        return ""
    return f" ({abs(x - y) / max(abs(x), abs(y)):.1e} of it)"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="run the cases and write what they computed")
    recording.add_argument("out", type=Path, metavar="OUT.json")
    recording.add_argument("--jobs", type=int, default=2, help="cases at a time (2); it changes no number")
    comparing = commands.add_parser("compare", help="print each difference between two records")
    comparing.add_argument("first", type=Path, metavar="A.json")
    comparing.add_argument("second", type=Path, metavar="B.json")
    for command in (recording, comparing):
        command.add_argument("--only", nargs="+", choices=list(CASES), metavar="NAME", help=f"among {', '.join(CASES)}")
    given = parser.parse_args()
    if given.command == "compare":
        return compare(given.first, given.second, given.only)
    return record(given.only or list(CASES), given.out, given.jobs)


if __name__ == "__main__":
    sys.exit(main())
