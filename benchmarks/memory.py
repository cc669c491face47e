"""How far off the memory estimate of `--dry_run` is: real training, its peaks phase by phase.

    python -m benchmarks.memory --pretrain tiny --mixed_precision bf16
    python -m benchmarks.memory --pretrain smollm2-135m --max_length 128 --max_new_tokens 16 --experience_batch_size 4 --train_batch_size 4
    python -m benchmarks.memory sft --pretrain tiny
    python -m benchmarks.memory reward-model --pretrain tiny

The flags are those of `rlvr train`, `rlvr sft` and `rlvr reward-model`. Every prompt, response and row is made as long as the
settings allow, so that measured and estimated are of the same shape. On a CPU the peak is that of the process's resident memory
(Linux resets it on demand) less what was resident before the models were loaded, with an allocator that gives freed memory back;
`--kept` leaves it as it is in training, where the process keeps it. On a GPU it is what the allocator gave out.
"""

import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

# glibc would keep freed blocks, and they would count as ours.
if not {"--kept", "--help"} & set(sys.argv) and os.environ.get("MALLOC_MMAP_THRESHOLD_") is None:
    os.environ |= {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    os.execv(sys.executable, sys.orig_argv)

import torch

from rlvr import api
from rlvr.boost import process as processes
from rlvr.boost.boosted import Boosted
from rlvr.boost.plugins import resolve_precision
from rlvr.config import parse
from rlvr.config.flags import parse_reward_training, parse_sft
from rlvr.data.examples import Example
from rlvr.data.preferences import Pair
from rlvr.data.problems import Problem
from rlvr.data.prompts import Prompt
from rlvr.data.supervised import SupervisedData
from rlvr.experience.maker import NaiveExperienceMaker
from rlvr.memory import estimate as memory
from rlvr.memory.usage import memory_use, readable
from rlvr.run import parts as build
from rlvr.run import supervised as pipeline
from rlvr.trainer import ppo_update
from rlvr.trainer.supervised import SupervisedTrainer

GPU = torch.cuda.is_available()
KEPT = "--kept" in sys.argv
BRIEF = ["--num_threads", "1", "--no_progress"]
before = 0.0
peaks: dict[str, float] = {}


def measured(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """`call`, with the peak of its last run noted under `name`: optimizer states are there by then."""

    def run(*args: Any, **named: Any) -> Any:
        if GPU:
            torch.cuda.reset_peak_memory_stats()
        else:
            Path("/proc/self/clear_refs").write_text("5")
        try:
            return call(*args, **named)
        finally:
            peaks[name] = torch.cuda.max_memory_allocated() if GPU else memory_use()["memory/rss_peak_bytes"] - before

    return run


def from_here(load: Callable[..., Any]) -> Callable[..., Any]:
    """`load`, before which what is resident counts as nobody's."""

    def run(*args: Any) -> Any:
        global before
        before = memory_use()["memory/rss_bytes"]
        return load(*args)

    return run


def random_ids(rows: int, length: int) -> list[list[int]]:
    return torch.randint(10, 90, (rows, length), generator=torch.Generator().manual_seed(0)).tolist()


def train_ppo(argv: list[str], folder: str) -> Any:
    """Two episodes. Returns the settings."""
    sizes = ["--num_episodes", "2", "--num_collect_steps", "1", "--num_update_steps", "2"]
    config = parse(["--reward_functions", "gsm8k_reward_fn", *sizes, *BRIEF, *argv])

    def prompts(config: Any, conversation: Any) -> build.Prompts:
        r = config.rollout
        ids = random_ids(r.experience_batch_size, r.max_length - r.max_new_tokens)
        return build.Prompts(
            [Prompt(Problem(str(i), "question", "1"), tuple(row)) for i, row in enumerate(ids)], [], []
        )

    training_sampling = build.training_sampling
    # A response ends at its limit only.
    build.training_sampling = lambda *a: replace(training_sampling(*a), stop_ids=(), stop_strings=())
    build.make_models = from_here(build.make_models)  # type: ignore[assignment]
    build.make_prompts = prompts
    NaiveExperienceMaker.respond = measured("rollout", NaiveExperienceMaker.respond)  # type: ignore[method-assign]
    NaiveExperienceMaker.run_models = measured("scoring", NaiveExperienceMaker.run_models)  # type: ignore[method-assign]
    ppo_update.train_actor = measured("learning (actor)", ppo_update.train_actor)
    ppo_update.train_critic = measured("learning (critic)", ppo_update.train_critic)
    config.ckpt.save_path = folder
    api.train(config)
    return config


def train_sft(argv: list[str], folder: str) -> Any:
    """Four steps of supervised fine-tuning. Returns the settings."""
    config = parse_sft([*BRIEF, *argv])

    def data(*args: Any) -> SupervisedData[Example]:
        ids = random_ids(config.train.train_batch_size, config.data.max_length)
        rows = [Example(tuple(row), 1) for row in ids]
        return SupervisedData(rows, rows, [])

    pipeline.read_sft_data = data
    pipeline._make_sft_model = from_here(pipeline._make_sft_model)  # type: ignore[assignment]
    return _train_supervised(config, folder, pipeline.train_sft)


def train_reward_model(argv: list[str], folder: str) -> Any:
    """Four steps of training a reward model. Returns the settings."""
    config = parse_reward_training([*BRIEF, *argv])

    def data(*args: Any) -> SupervisedData[Pair]:
        ids = random_ids(2 * config.train.train_batch_size, config.data.max_length)
        rows = [Pair(tuple(a), tuple(b), tuple(a[:1])) for a, b in zip(ids[::2], ids[1::2], strict=True)]
        return SupervisedData(rows, rows, [])

    pipeline.read_preference_data = data
    pipeline._make_reward_model = from_here(pipeline._make_reward_model)  # type: ignore[assignment]
    return _train_supervised(config, folder, pipeline.train_reward_model)


def _train_supervised(config: Any, folder: str, train: Callable[[Any], Any]) -> Any:
    SupervisedTrainer._measured = measured("evaluating", SupervisedTrainer._measured)  # type: ignore[method-assign]
    Boosted.learn = measured("learning", Boosted.learn)  # type: ignore[method-assign]
    config.ckpt.save_path, config.train.max_steps = folder, 4
    train(config)
    return config


def main() -> None:
    """Train, then say what was estimated and what was measured."""
    words = [word for word in sys.argv[1:] if word != "--kept"]
    train = {"sft": train_sft, "reward-model": train_reward_model}.get(words[0] if words else "", train_ppo)
    if "--help" in words:
        print(__doc__)
        return
    if not KEPT:
        processes.keep_freed_memory = lambda: None
    with tempfile.TemporaryDirectory() as folder:
        config = train(words if train is train_ppo else words[1:], f"{folder}/run")
    device = torch.device("cuda" if GPU else "cpu")
    precision = resolve_precision(config.parallel.mixed_precision, device)
    print(f"\n{config.model.pretrain}, {device.type}, {config.parallel.plugin}, {precision}")
    estimate: Callable[..., memory.Estimate] = memory.estimate if train is train_ppo else memory.estimate_supervised
    for phase in estimate(config, 1, precision, GPU).phases:
        peak = peaks[phase.name]
        print(
            f"{phase.name:<18} estimated {readable(phase.peak):>9} measured {readable(peak):>9}  {phase.peak / peak - 1:+.0%}"
        )


main()
