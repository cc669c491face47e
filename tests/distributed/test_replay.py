"""A run of two processes is computed again bit for bit; a step of it otherwise, in one process."""

import json
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


def test_a_run_of_two_processes(micro_model, ranks, tmp_path) -> None:
    run = str(tmp_path / "run")
    flags = [*FLAGS, "--plugin", "zero2", "--mixed_precision", "bf16"]
    ranks.done(2, "train", "--pretrain", micro_model, "--save_path", run, *flags)
    told = ranks.done(2, "replay", run, "--bisect")
    assert [f"step {step}: the same, bit for bit" in told for step in (1, 2, 3)] == [True] * 3, told
    assert told.count("journal: 3 steps") == 1, "one process speaks"
    (alone,) = ranks.ended([["replay", run, "--step", "2"]])
    assert alone.status == 2 and "torchrun --nproc_per_node=2" in alone.said
    otherwise = ranks.done(1, "replay", run, "--step", "2", "--with", "eps_clip=1e-6", "--json")
    [found] = [json.loads(line) for line in otherwise.splitlines() if line.startswith("{")]
    assert found["cosines"]["gradients"] == pytest.approx(1, abs=1e-5)
    assert found["was"]["clipped tokens"] < found["otherwise"]["clipped tokens"]
