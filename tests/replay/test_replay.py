"""Any step of a run is computed again, bit for bit; what changed since is found; and a step as it would have been."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from trainer_harness import CPU

from rlvr.cli.main import main
from rlvr.journal.journal import Journal
from rlvr.trainer import ppo_update
from rlvr.trainer.callbacks import Watch
from rlvr.trainer.online import OnlineTrainer

REWARDS = Path(__file__).parents[1] / "letters_reward.py"
FLAGS = (
    f"--reward_functions {REWARDS}:letters --reward_workers 0 --num_episodes 5 --num_collect_steps 1 --num_update_steps 1 "
    "--experience_batch_size 16 --train_batch_size 8 --max_new_tokens 6 "
    "--max_length 96 --eval_interval 0 --eval_samples 4 --save_interval 2 --keep_checkpoints 5 --journal 9 --lr 1e-3 --num_threads 1 "
    "--mixed_precision fp32 --no_progress --num_sample_generations 0 --max_samples 40"
).split()
VARIANTS = {
    "two passes, adaptive kl": "--num_update_steps 2 --num_collect_steps 2 --kl_coef 0.05 --kl_target 0.001",
    "dapo": "--preset dapo --num_generations 4 --max_refills 1 --accumulation_steps 1 --truncated terminal",
    "remax": "--estimator remax",
    "lora": "--lora_config {lora}",
}


def trained(model: str, folder: Path, *words: str) -> Path:
    assert main(["train", "--pretrain", model, "--save_path", str(folder), *FLAGS, *words]) == 0
    return folder


@pytest.fixture(scope="module")
def run(micro_model, tmp_path_factory) -> Path:
    return trained(micro_model, tmp_path_factory.mktemp("journal") / "run")


def replayed(capsys, *words: str) -> tuple[int, list[dict[str, Any]]]:
    capsys.readouterr()
    try:
        status = main(["replay", *words, "--json"])
    except SystemExit as end:
        status = int(str(end.code))
    return status, [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_step_is_computed_again_bit_for_bit(variant, micro_model, tmp_path, capsys) -> None:
    lora = tmp_path / "lora.json"
    lora.write_text(json.dumps({"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"]}))
    folder = trained(micro_model, tmp_path / "run", *VARIANTS[variant].format(lora=lora).split())
    status, steps = replayed(capsys, str(folder), "--bisect")
    assert status == 0 and [step["step"] for step in steps] == [1, 2, 3, 4, 5]
    assert all(step["same"] and not step["made_otherwise"] for step in steps)
    assert len({step["after"]["actor"] for step in steps}) == 5, "each step changed the weights"


def test_a_step_begins_at_the_nearest_checkpoint(run, capsys) -> None:
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    assert main(["replay", str(run), "--step", "4"]) == 0
    told = capsys.readouterr().out
    assert "step-000002: steps 3 to 4" in told and "step 4: the same, bit for bit" in told and "step 3:" not in told
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before, "nothing in the run's folder changes"


def test_a_line_of_the_loss_that_changed_is_found_at_its_first_step(run, capsys, monkeypatch) -> None:
    """The code is another one from the third episode on, as it were: only there does the planted line take effect."""
    honest = ppo_update.policy_loss
    episodes = []
    monkeypatch.setattr(Watch, "on_episode_start", lambda *_: None)
    begin = OnlineTrainer._run_episode

    def run_episode(self: OnlineTrainer) -> None:
        episodes.append(self.progress.episode)
        begin(self)

    monkeypatch.setattr(OnlineTrainer, "_run_episode", run_episode)
    monkeypatch.setattr(
        ppo_update, "policy_loss", lambda *inputs: honest(*inputs) * (1.0 if episodes[-1] < 2 else 1 + 1e-6)
    )
    status, steps = replayed(capsys, str(run), "--bisect")
    assert status == 1 and [(step["step"], step["same"]) for step in steps] == [(1, True), (2, True), (3, False)]
    assert not steps[-1]["began_otherwise"] and steps[-1]["after"]["critic"] == steps[-1]["after_then"]["critic"]


def test_two_runs_part_where_they_differ(run, micro_model, tmp_path, capsys) -> None:
    twin = trained(micro_model, tmp_path / "twin")
    assert replayed(capsys, str(run), "--bisect", str(twin)) == (0, [{"step": None, "in": "", "same_steps": 5}])
    other = trained(micro_model, tmp_path / "other", "--eps_clip", "0.001")
    assert replayed(capsys, str(run), "--bisect", str(other)) == (
        1,
        [{"step": 1, "in": "weights after it", "same_steps": 0}],
    )
    path = tmp_path / "twin/journal/step-000004"
    items, meter = Journal(twin).experience(4, 0)
    items[3] = items[3].with_advantages(items[3].advantages + 1e-7)
    Journal(twin).write_experience(4, 0, items, meter)
    assert path.is_dir()
    assert replayed(capsys, str(run), "--bisect", str(twin)) == (1, [{"step": 4, "in": "advantages", "same_steps": 3}])


def test_a_run_that_was_stopped_and_resumed_has_the_same_journal(
    run, micro_model, tmp_path, monkeypatch, capsys
) -> None:
    """Stopped within the third episode's update, and its journal goes on where it was."""
    made = []
    step = ppo_update.Learner.step

    def stopping(self: Any, *inputs: Any, **named: Any) -> None:
        made.append(1)
        if len(made) == 5:
            os.kill(os.getpid(), signal.SIGTERM)
        step(self, *inputs, **named)

    monkeypatch.setattr(ppo_update.Learner, "step", stopping)
    words = ["train", "--pretrain", micro_model, "--save_path", str(tmp_path / "run"), *FLAGS]
    with pytest.raises(SystemExit):
        main(words)
    assert Journal(tmp_path / "run").steps() == [1, 2]
    assert main([*words, "--resume"]) == 0
    assert replayed(capsys, str(run), "--bisect", str(tmp_path / "run")) == (
        0,
        [{"step": None, "in": "", "same_steps": 5}],
    )


def test_a_step_as_it_would_have_been(run, capsys) -> None:
    status, [found] = replayed(capsys, str(run), "--step", "3", "--with", "eps_clip=1e-6", "vf_coef=1.0")
    assert status == 0
    was, otherwise = found["was"], found["otherwise"]
    assert was["mean reward"] == otherwise["mean reward"] and was["clipped tokens"] < otherwise["clipped tokens"]
    assert found["cosines"]["gradients"] == pytest.approx(1, abs=1e-6), "nothing is clipped at the first mini-batch"
    assert found["cosines"]["changes of the weights"] < 0.9999 and was["KL after the step"] > 0


def test_the_same_step_with_nothing_changed_is_the_same(run, capsys) -> None:
    """Advantages formed anew from the journal's responses and scores give the step that the run took."""
    _, [found] = replayed(capsys, str(run), "--step", "3", "--with", "eps_clip=0.2")
    assert found["was"] == found["otherwise"] and found["cosines"]["changes of the weights"] == pytest.approx(1)
    metrics = Journal(run).info(3).metrics
    assert metrics is not None
    assert found["was"]["policy loss"] == metrics["loss/policy_avg"]
    assert found["was"]["gradient norm"] == metrics["grad_norm/actor"]


def test_the_same_responses_graded_by_another_function(run, tmp_path, capsys) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text("def long(response: str) -> float:\n    return len(response) / 10\n")
    _, [found] = replayed(capsys, str(run), "--step", "2", "--rewards", f"{plugin}:long")
    assert found["otherwise"]["mean reward"] > found["was"]["mean reward"] and found["cosines"]["gradients"] < 0.999


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere", "--step", "1"], "nowhere is no folder of a run"),
        (["RUN", "--step", "9"], "has no step 9; it has 5 steps, 1 to 5"),
        (["RUN", "--step", "2", "--with", "lr=1"], "--lr can't be changed for a step whose responses are there"),
        (
            ["RUN", "--step", "2", "--with", "reference_reset_interval=1"],
            "--reference_reset_interval can't be changed for a step",
        ),
        (["RUN", "--step", "2", "--with", "eps_clip"], "give NAME=VALUE"),
        (["RUN", "--bisect", "--with", "eps_clip=1"], "give --step"),
        (["RUN", "--bisect", "nowhere"], "have no step in common"),
        (["RUN", "--step", "2", "--with", "estimator=remax"], "greedy"),
    ],
)
def test_mistakes_are_one_message(words, said, run, capsys) -> None:
    assert main(["replay", *(str(run) if word == "RUN" else word for word in words)]) == 2
    assert said in capsys.readouterr().err


def test_a_step_without_a_way_to_it(micro_model, tmp_path, capsys) -> None:
    folder = trained(micro_model, tmp_path / "run", "--journal", "2", "--keep_checkpoints", "1")
    assert Journal(folder).steps() == [4, 5]
    assert main(["replay", str(folder), "--step", "5"]) == 2
    assert "step 3 is missing" in capsys.readouterr().err
    assert main(["replay", str(folder), "--bisect"]) == 2
    assert "no step of" in capsys.readouterr().err


def test_a_gradient_is_taken_without_a_step(process) -> None:
    """`Boosted.gradient` is the gradient that autograd gives, and leaves nothing behind."""
    from rlvr.boost.boosted import Boosted
    from rlvr.boost.plugins import make_booster
    from rlvr.config import ParallelConfig

    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    role = Boosted(
        make_booster(ParallelConfig(mixed_precision="fp32"), CPU, 1.0), model, torch.optim.AdamW(model.parameters())
    )
    inputs, weights = torch.randn(4, 3), [p.detach().clone() for p in model.parameters()]
    found = role.gradient([lambda: model(inputs[:2]).square().sum(), lambda: model(inputs[2:]).square().sum()])
    expected = torch.autograd.grad(model(inputs).square().sum(), list(model.parameters()))
    assert torch.allclose(found, torch.cat([g.flatten() for g in expected]))
    assert all(map(torch.equal, model.parameters(), weights)) and all(
        p.grad is None or not p.grad.any() for p in model.parameters()
    )
