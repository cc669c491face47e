"""What the family adds to a step is the same over two processes: whitening without a critic, the language-modelling loss
on right responses, and the coefficient that adapts to the divergence. Recorded responses, as in `test_equivalence`."""

import json
import random
from pathlib import Path

import pytest
from ranks import Ranks

pytestmark = pytest.mark.processes
COMPARED = ("train/actor_loss", "loss/positive_lm_avg", "grad_norm/actor", "objective/scores", "objective/kl_coef")


def run(folder: Path, data: Path, model: str, processes: int, ranks: Ranks) -> list[dict[str, float]]:
    flags = (
        f"train --pretrain {model} --prompt_dataset {data} --save_path {folder} --mixed_precision fp32 --lr 3e-4 "
        "--reward_functions gsm8k_reward_fn --engine replay --estimator reinforce_pp --positive_lm_coef 0.1 "
        "--kl_coef 0.05 --kl_target 0.01 --kl_horizon 64 --num_episodes 3 --experience_batch_size 32 "
        "--num_collect_steps 1 --num_update_steps 1 --train_batch_size 8 --accumulation_steps 2 --max_new_tokens 40 "
        "--save_interval 0 --num_threads 1"
    )
    ranks.done(processes, *flags.split())
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_a13_a20_a24_two_processes_give_the_losses_of_one_without_a_critic(tmp_path, ranks, micro_model) -> None:
    rng = random.Random(0)
    rows = []
    for _ in range(64):
        a, b = rng.randrange(10, 99), rng.randrange(10, 99)
        answer = a + b if rng.random() < 0.5 else rng.randrange(200)
        thought = f"{a}+{b}={answer};" * rng.randrange(0, 4)
        response = f"<think>{thought}</think><answer>{answer}</answer>"
        rows.append({"question": f"{a}+{b}", "answer": str(a + b), "response": response})
    data = tmp_path / "recorded.jsonl"
    data.write_text("\n".join(json.dumps(row) for row in rows))
    alone, together = (run(tmp_path / str(n), data, micro_model, n, ranks) for n in (1, 2))
    assert len(together) == len(alone) == 3
    for mine, theirs in zip(together, alone, strict=True):
        for name in COMPARED:
            assert mine[name] == pytest.approx(theirs[name], rel=2e-5, abs=1e-6), (name, mine["step"])
    coefs = [row["objective/kl_coef"] for row in alone]
    assert coefs[0] == 0.05 and len(set(coefs)) == 3
    assert alone[0]["loss/positive_lm_avg"] != alone[2]["loss/positive_lm_avg"]
