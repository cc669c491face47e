"""A run of two processes is computed again bit for bit; a step of it otherwise, in one process."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes
REWARDS = Path(__file__).parents[1] / "letters_reward.py"
FLAGS = (
    f"--reward_functions {REWARDS}:letters --reward_workers 0 --num_episodes 3 --num_collect_steps 1 --num_update_steps 1 "
    "--experience_batch_size 16 --train_batch_size 8 --max_new_tokens 6 --max_length 96 --eval_interval 0 --eval_samples 4 "
    "--save_interval 1 --keep_checkpoints 5 --journal 9 --lr 1e-3 --num_threads 1 --no_progress --num_sample_generations 0 "
    "--max_samples 40"
).split()
TWO = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--standalone", "-m", "rlvr"]
ONE = [sys.executable, "-m", "rlvr"]


def done(command: list[str], env: dict[str, str], status: int = 0) -> str:
    result = subprocess.run(command, env=env, capture_output=True, text=True, timeout=280)
    assert result.returncode == status, result.stdout[-2000:] + result.stderr[-2000:]
    return result.stdout + result.stderr


def test_a_run_of_two_processes(micro_model, clean_env, tmp_path) -> None:
    run = str(tmp_path / "run")
    flags = [*FLAGS, "--plugin", "zero2", "--mixed_precision", "bf16"]
    done([*TWO, "train", "--pretrain", micro_model, "--save_path", run, *flags], clean_env)
    told = done([*TWO, "replay", run, "--bisect"], clean_env)
    assert [f"step {step}: the same, bit for bit" in told for step in (1, 2, 3)] == [True] * 3, told
    assert told.count("journal: 3 steps") == 1, "one process speaks"
    assert "torchrun --nproc_per_node=2" in done([*ONE, "replay", run, "--step", "2"], clean_env, status=2)
    otherwise = done([*ONE, "replay", run, "--step", "2", "--with", "eps_clip=1e-6", "--json"], clean_env)
    [found] = [json.loads(line) for line in otherwise.splitlines() if line.startswith("{")]
    assert found["cosines"]["gradients"] == pytest.approx(1, abs=1e-5)
    assert found["was"]["clipped tokens"] < found["otherwise"]["clipped tokens"]
