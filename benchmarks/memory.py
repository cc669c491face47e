"""How far off the memory estimate of `rlvr train --dry_run` is: real training, its peaks phase by phase.

    python -m benchmarks.memory --pretrain tiny
    python -m benchmarks.memory --pretrain smollm2-135m --max_length 128 --max_new_tokens 16 --experience_batch_size 4 --train_batch_size 4

Every prompt and response is made as long as the settings allow, so that measured and estimated are of the same shape. On a CPU
the peak is that of the process's resident memory (Linux resets it on demand) less what was resident before the models were
loaded, with an allocator that gives freed memory back; `--kept` leaves it as it is in training, where the process keeps it. On a GPU it is what the allocator gave out.
"""

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

# glibc would keep freed blocks, and they would count as ours.
if "--kept" not in sys.argv and os.environ.get("MALLOC_MMAP_THRESHOLD_") is None:
    os.environ |= {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    os.execv(sys.executable, sys.orig_argv)

import torch

from rlvr import api, build
from rlvr.boost import process as processes
from rlvr.boost.plugins import resolve_precision
from rlvr.boost.use import readable
from rlvr.config import parse
from rlvr.data.problem import Problem
from rlvr.data.prompts import Prompt
from rlvr.experience.maker import NaiveExperienceMaker
from rlvr.memory import estimate
from rlvr.trainer import ppo

GPU = torch.cuda.is_available()
KEPT = "--kept" in sys.argv
before = 0
peaks: dict[str, int] = {}


def resident(field: str) -> int:
    """`VmRSS` (now) or `VmHWM` (peak) of this process, in bytes."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def measured(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """`call`, with the peak of its last run noted under `name`."""

    def run(*args: Any, **named: Any) -> Any:
        if GPU:
            torch.cuda.reset_peak_memory_stats()
        else:
            Path("/proc/self/clear_refs").write_text("5")
        try:
            return call(*args, **named)
        finally:
            peak = torch.cuda.max_memory_allocated() if GPU else resident("VmHWM") - before
            peaks[name] = peak  # the last run counts: optimizer states are there by then

    return run


def full_length_prompts(config: Any, conversation: Any) -> build.Prompts:
    """Prompts of random tokens, each as long as it may be."""
    length = config.rollout.max_length - config.rollout.max_new_tokens
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(10, 90, (config.rollout.experience_batch_size, length), generator=generator).tolist()
    prompts = [Prompt(Problem(str(i), "question", "1"), tuple(row)) for i, row in enumerate(ids)]
    return build.Prompts(prompts, [], [])


def load_models(*args: Any) -> Any:
    """As the library's; what is resident before counts as nobody's."""
    global before
    before = resident("VmRSS")
    return make_models(*args)


make_models = build.make_models
flags = [
    "--reward_functions",
    "gsm8k_reward_fn",
    "--num_episodes",
    "2",
    "--num_collect_steps",
    "1",
    "--num_update_steps",
    "2",
]
config = parse([*flags, "--num_threads", "1", "--no_progress", *(word for word in sys.argv[1:] if word != "--kept")])


def without_stops(*args: Any, **named: Any) -> Any:
    """Sampling settings under which a response ends at its limit only."""
    from dataclasses import replace

    return replace(make_sampling(*args, **named), stop_ids=(), stop_strings=())


make_sampling = ppo.make_sampling
ppo.make_sampling = without_stops  # type: ignore[assignment]
if not KEPT:
    processes.keep_freed_memory = lambda: None
build.make_models = load_models  # type: ignore[assignment]
build.make_prompts = full_length_prompts
NaiveExperienceMaker.respond = measured("rollout", NaiveExperienceMaker.respond)  # type: ignore[method-assign]
NaiveExperienceMaker.run_models = measured("scoring", NaiveExperienceMaker.run_models)  # type: ignore[method-assign]
ppo.train_actor = measured("learning (actor)", ppo.train_actor)
ppo.train_critic = measured("learning (critic)", ppo.train_critic)
with tempfile.TemporaryDirectory() as folder:
    config.ckpt.save_path = f"{folder}/run"
    api.train(config)
device = torch.device("cuda" if GPU else "cpu")
precision = resolve_precision(config.parallel.mixed_precision, device)
print(f"\n{config.model.pretrain}, {device.type}, {config.parallel.plugin}, {precision}")
for phase in estimate(config, 1, precision, GPU).phases:
    peak = peaks[phase.name]
    print(
        f"{phase.name:<18} estimated {readable(phase.peak):>9} measured {readable(peak):>9}  {phase.peak / peak - 1:+.0%}"
    )
