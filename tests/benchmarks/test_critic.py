"""The benchmarks of the critic: settings that runs still take, what is read of runs, and their statistics."""

import json
from pathlib import Path

import pytest
import torch

from benchmarks import critic, critic_offline
from benchmarks.critic_offline import Response
from rlvr.config import base_config, by_section
from rlvr.validate.ppo import check_config, plan_batches


@pytest.mark.parametrize("task", critic.TASKS)
@pytest.mark.parametrize("method", critic.METHODS)
def test_methods_differ_in_where_advantages_come_from_alone(tmp_path: Path, task: str, method: str) -> None:
    if task == "five numbers":
        for split in ("train", "test"):
            critic.problems_of(tmp_path, split).write_text('{"question": "1+1+1+1+1=?", "answer": "5"}\n')
    config = base_config(by_section(critic.settings_of(tmp_path, (task, method, 3), 6)))
    check_config(config)
    plan, t = plan_batches(config, 1), config.train
    assert (plan.samples_per_episode, plan.steps_per_epoch, plan.total_steps) == (256, 4, 24)
    assert (t.lr, t.lr_schedule, t.adam_beta1, t.adam_beta2, t.seed) == (3e-4, "constant", 0.9, 0.999, 3)
    assert (config.eval.eval_samples, config.eval.eval_temperature) == (128, 1.0)
    assert t.critic_steps == {"gae": 4, "gae, 1 step": 1, "drgrpo": 4}[method]  # that nothing reads


def test_the_table_has_responses_to_each_target_and_what_was_explained(tmp_path: Path) -> None:
    for seed, accuracy in enumerate(([0.2, 0.6, 1.0], [0.2, 0.4, 0.6])):
        folder = critic.folder_of(tmp_path, ("five numbers", "gae, 1 step", seed))
        folder.mkdir(parents=True)
        rows = [{"step": i, "episode": 100 * i, "eval/accuracy": share} for i, share in enumerate(accuracy)]
        rows += [
            {"step": 3 + i, "critic/explained_variance": share} for i, share in enumerate((-9, 0.1, 0.2, 0.3, 0.7))
        ]
        (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)))
    runs = {
        key: critic.read(critic.folder_of(tmp_path, key))
        for key in [("five numbers", "gae, 1 step", s) for s in (0, 1)]
    }
    *_, line = critic.table(runs, [50.0, 80.0]).splitlines()
    # To 50 %: 75 and 150 responses, t(1) = 12.706.
    assert line == "| five numbers | `gae, 1 step` | 112 ± 476 | 150 (1 of 2) | 80.0 ± 254.1 % | 0.20, 0.70 | 2 |"


def test_what_problem_and_style_explain() -> None:
    def response(text: str, score: float) -> Response:
        return Response(torch.tensor([5]), torch.tensor([6]), text, score)

    blurted, worked = "<think></think>", "<think>1+1=2</think>"
    by_style = [[response(blurted, 0.0), response(worked, 1.0)] for _ in range(3)]
    assert critic_offline.of_style([r for group in by_style for r in group]) == pytest.approx(1.0)
    assert critic_offline.of_problem(by_style) <= 0.0
    by_problem = [[response(blurted, score), response(worked, score)] for score in (0.0, 1.0)]
    assert critic_offline.of_problem(by_problem) == pytest.approx(1.0)
    assert critic_offline.of_style([r for group in by_problem for r in group]) == pytest.approx(0.0)
