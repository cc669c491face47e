"""A neural reward with running normalisation, a rule beside it and ptx are the same over two processes. Recorded responses,
as in `test_equivalence`."""

import json
import random
from pathlib import Path

import pytest
import torch

from rlvr.cli.main import main
from rlvr.models.loading import load_tokenizer
from rlvr.models.reward_model import RewardModel

pytestmark = pytest.mark.processes
COMPARED = (
    "train/actor_loss",
    "train/critic_loss",
    "train/ptx_loss",
    "loss/policy_avg",
    "grad_norm/actor",
    "objective/scores",
    "reward/reward_model",
    "reward/reward_model/raw",
    "reward/gsm8k_reward_fn",
)


@pytest.fixture(scope="module")
def data(tmp_path_factory, micro_model) -> Path:
    """A folder with a reward model, recorded responses, and supervised data."""
    folder, rng = tmp_path_factory.mktemp("data"), random.Random(0)
    model = RewardModel.from_base(micro_model, seed=1)
    with torch.no_grad():
        model.head.weight.mul_(20)
    model.save_pretrained(folder / "rm")
    load_tokenizer(micro_model).save_pretrained(folder / "rm")
    recorded, supervised = [], []
    for _ in range(64):
        a, b = rng.randrange(10, 99), rng.randrange(10, 99)
        answer = a + b if rng.random() < 0.5 else rng.randrange(200)
        thought = f"{a}+{b}={answer};" * rng.randrange(0, 4)
        response = f"<think>{thought}</think><answer>{answer}</answer>"
        recorded.append({"question": f"{a}+{b}", "answer": str(a + b), "response": response})
        supervised.append({"question": f"{a}-{b}", "answer": f"<think></think><answer>{a - b}</answer>"})
    for name, rows in (("recorded", recorded), ("supervised", supervised)):
        (folder / f"{name}.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    return folder


FLAGS = (
    "--reward_functions gsm8k_reward_fn --rm_weight 0.5 --reward_normalisation running --ptx_coef 0.3 --engine replay "
    "--kl_coef 0.05 --num_episodes 3 --experience_batch_size 32 --train_batch_size 8 --accumulation_steps 2 "
    "--max_new_tokens 40 --save_interval 0 --num_threads 1 --mixed_precision fp32 --lr 3e-4 --critic_lr 1e-3 "
    "--num_collect_steps 1 --num_update_steps 1"
)


def flags(folder: Path, data: Path, model: str) -> list[str]:
    return [
        *(
            "train",
            "--pretrain",
            model,
            *FLAGS.split(),
            "--rm_checkpoint_path",
            str(data / "rm"),
            "--save_path",
            str(folder),
        ),
        *("--prompt_dataset", str(data / "recorded.jsonl"), "--ptx_dataset", str(data / "supervised.jsonl")),
    ]


def metrics(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_a13_a20_a24_two_processes_give_the_losses_of_one(data, tmp_path, micro_model, ranks, process) -> None:
    ranks.done(2, *flags(tmp_path / "two", data, micro_model))
    assert main(flags(tmp_path / "one", data, micro_model)) == 0
    alone, together = metrics(tmp_path / "one"), metrics(tmp_path / "two")
    assert len(together) == len(alone) == 3
    for mine, theirs in zip(together, alone, strict=True):
        for name in COMPARED:
            assert mine[name] == pytest.approx(theirs[name], rel=2e-5, abs=2e-6), (name, mine["step"])
    assert alone[0]["reward/reward_model"] != alone[1]["reward/reward_model"]
