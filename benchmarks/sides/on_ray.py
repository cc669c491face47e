"""Our command on the given work, with its roles on Ray or in one process: python -m benchmarks.sides.on_ray ray|torchrun JSON.

Both sides call `rlvr.train` with the same settings but for `--ray`.
"""

import json
import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from benchmarks.sides.talk import Side
from benchmarks.sides.work import PROMPTS, SIZES, Work

PHASES = ("time/rollout", "time/reward", "time/score", "time/update")


def main() -> None:
    side, where, work = Side(), sys.argv[1], Work(**json.loads(sys.argv[2]))
    if core := os.environ.get("BENCHMARK_CORE"):
        os.sched_setaffinity(0, {int(core)})  # what this process starts stays on it too

    from rlvr import api
    from rlvr.config import base_config
    from rlvr.run import assembly
    from rlvr.trainer.callbacks import Callback

    class Report(Callback):
        def on_episode_start(self, trainer: Any, episode: int) -> None:
            if episode == 0:
                side.say(ready=True)
            side.wait()
            self.cpu = tree_cpu_s()

        def on_episode_end(self, trainer: Any, episode: int, metrics: Any) -> None:
            side.phases = {k.removeprefix("time/"): metrics[k] for k in PHASES if k in metrics}
            side.done(tree_cpu_seconds=tree_cpu_s() - self.cpu, tokens=metrics["response/length_tokens"] * PROMPTS)

    assembly.Watch = Report  # type: ignore[misc,assignment]
    with tempfile.TemporaryDirectory() as folder:
        api.train(base_config(settings(work, Path(folder), where == "ray")))


def tree_cpu_s() -> float:
    """Processor time of this process and of all that it started, directly or not; of those that still run."""
    own = psutil.Process()
    total = 0.0
    for process in (own, *own.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def settings(work: Work, folder: Path, ray: bool) -> dict[str, dict[str, Any]]:
    """One iteration is the work's prompts, a response to each, and four optimizer steps."""
    return {
        "model": {"pretrain": save_model(work, folder / "model")},
        "rollout": {
            "experience_batch_size": PROMPTS, "max_new_tokens": work.response_tokens,
            "max_length": work.response_tokens + 128,
        },
        "train": {
            "num_episodes": 10_000, "num_collect_steps": 1, "num_update_steps": 1, "train_batch_size": PROMPTS // 4,
            "num_threads": 1,
        },
        "parallel": {"mixed_precision": work.precision},
        "reward": {"reward_functions": ["gsm8k_reward_fn"]},
        "eval": {"eval_samples": 1},
        "log": {"progress": False, "num_sample_generations": 0},
        "ckpt": {"save_path": str(folder / "run")},
        "ray": {"ray": ray},
    }  # fmt: skip


def save_model(work: Work, folder: Path) -> str:
    """A random Llama of the work's size with the built-in tokenizer."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from rlvr.models.tiny import build_tiny_tokenizer

    vocabulary, hidden, intermediate, layers, heads = SIZES[work.size]
    tokenizer = build_tiny_tokenizer()
    torch.manual_seed(work.seed)
    config = LlamaConfig(
        vocab_size=vocabulary, hidden_size=hidden, intermediate_size=intermediate, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=heads, tie_word_embeddings=True, max_position_embeddings=512,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, bos_token_id=None,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


if __name__ == "__main__":
    main()
