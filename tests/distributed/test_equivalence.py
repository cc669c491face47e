"""Two processes give one process's losses, for each plugin, through the real command, with recorded responses; once under torchrun.

Tolerance: 2e-5 relative (or 1e-6 absolute) on every loss and gradient norm of every episode, in float32: the sums over
tokens are taken in another order, and the optimizer carries the difference on from step to step. The divergence is a sum
over a response of small differences of logprobs, each rounded in float32, of either sign: it gets 5e-5 absolute.
"""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes
ROOT = Path(__file__).parents[2]
COMPARED = (
    "train/actor_loss",
    "train/critic_loss",
    "loss/policy_avg",
    "loss/value_avg",
    "grad_norm/actor",
    "grad_norm/critic",
    "objective/kl",
    "objective/scores",
    "val/ratio",
    "policy/entropy_avg",
)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> Path:
    """Problems with responses of very different lengths, right and wrong, some cut off by the length limit."""
    rng = random.Random(0)
    path = tmp_path_factory.mktemp("data") / "recorded.jsonl"
    rows = []
    for _ in range(64):
        a, b = rng.randrange(10, 99), rng.randrange(10, 99)
        answer = a + b if rng.random() < 0.5 else rng.randrange(200)
        thought = f"{a}+{b}={answer};" * rng.randrange(0, 4)
        rows.append(
            {
                "question": f"{a}+{b}",
                "answer": str(a + b),
                "response": f"<think>{thought}</think><answer>{answer}</answer>",
            }
        )
    path.write_text("\n".join(json.dumps(row) for row in rows))
    path.with_name("other.jsonl").write_text("\n".join(json.dumps(row) for row in rows[:11]))
    return path


def words(folder: Path, data: Path, plugin: str, *more: str) -> list[str]:
    """Flags of a run."""
    flags = (
        f"--reward_functions gsm8k_reward_fn --engine replay --prompt_dataset {data} --save_path {folder} --plugin {plugin} "
        "--num_threads 1 --num_episodes 3 --experience_batch_size 32 --train_batch_size 8 --accumulation_steps 2 "
        "--max_new_tokens 40 --kl_coef 0.05 --save_interval 0 --eval_interval 3 --eval_samples 24 "
        f"--generation_batch_size 16 --eval_datasets {data} {data.with_name('other.jsonl')}"
    )
    return [*flags.split(), *more]


def metrics(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def alone(recorded, tmp_path_factory, ranks) -> list[dict[str, float]]:
    folder = tmp_path_factory.mktemp("alone")
    ranks.done(1, "train", *words(folder, recorded, "ddp"))
    return metrics(folder)


@pytest.mark.parametrize("plugin", ["ddp", "fsdp"])  # the others: test_plugins.py
def test_a13_a20_a24_two_processes_give_the_losses_of_one(plugin, alone, recorded, tmp_path, ranks, clean_env) -> None:
    # So few tokens in a pass that the ranks, whose responses differ in length, would make different numbers of passes.
    flags = words(tmp_path / "run", recorded, plugin, "--micro_batch_tokens", "160")
    if plugin == "ddp":
        script = str(ROOT / "scripts" / "train_rlvr.py")
        launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--standalone", script]
        done = subprocess.run([*launcher, *flags], env=clean_env, capture_output=True, text=True, timeout=800)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    else:
        ranks.done(2, "train", *flags)
    together = metrics(tmp_path / "run")
    assert len(together) == len(alone) == 4
    for mine, theirs in ((together[at], alone[at]) for at in (0, 3)):
        held_out = {name: value for name, value in theirs.items() if name.startswith("eval/")}
        assert {name: mine[name] for name in held_out} == held_out and held_out["eval/other/problems"] == 11
    for mine, theirs in zip(together[1:], alone[1:], strict=True):
        for name in COMPARED:
            rounding = 5e-5 if name == "objective/kl" else 1e-6
            assert mine[name] == pytest.approx(theirs[name], rel=2e-5, abs=rounding), (name, mine["step"])
    assert alone[1]["train/actor_loss"] != alone[3]["train/actor_loss"]
