"""The plan of a study: the file, its runs and folders, and mistakes."""

from pathlib import Path

import pytest
import yaml

from rlvr.config import parse, to_dict
from rlvr.config.presets import PRESETS
from rlvr.errors import UserError
from rlvr.study.plan import Study, read_study
from rlvr.validate.ppo import plan_batches

STUDIES = Path(__file__).parents[2] / "benchmarks" / "studies"
PLAN = """
out: somewhere
seeds: [3, 4]
settings: {reward_functions: [gsm8k_reward_fn], num_episodes: 4}
grid:
  preset: [ppo, grpo]
  data:
    as it comes: {}
    five, numbers: {prompt_dataset: ["builtin@5"], num_episodes: 5}
"""


def a_study(tmp_path: Path, text: str = PLAN, **changes: object) -> Study:
    (tmp_path / "plan.yaml").write_text(text)
    return read_study(tmp_path / "plan.yaml", changes)


def test_a_run_for_each_combination_and_seed_seed_by_seed(tmp_path: Path) -> None:
    study = a_study(tmp_path)
    assert [run.seed for run in study.runs] == [3] * 4 + [4] * 4
    assert [tuple(run.cell.values()) for run in study.runs[:4]] == [
        ("ppo", "as it comes"), ("ppo", "five, numbers"), ("grpo", "as it comes"), ("grpo", "five, numbers"),
    ]  # fmt: skip
    run = study.runs[7]
    assert run.folder == Path("somewhere/grpo/five-numbers/seed-4") and run.name == "grpo, five, numbers seed 4"
    config = run.config()
    assert (config.algo.preset, config.train.num_episodes, config.train.seed) == ("grpo", 5, 4)
    assert config.data.prompt_dataset == ["builtin@5"]


def test_settings_as_a_file_are_those_of_the_flags(tmp_path: Path) -> None:
    run = a_study(tmp_path).runs[2]
    (tmp_path / "run.yaml").write_text(run.as_yaml())
    folder = ["--save_path", str(run.folder)]
    by_file = parse(["--config", str(tmp_path / "run.yaml"), *folder])
    flags = "--reward_functions gsm8k_reward_fn --preset grpo --seed 3 --num_episodes 4"
    assert to_dict(by_file) == to_dict(parse([*flags.split(), *folder])) == to_dict(run.config())


def test_the_command_line_wins_and_only_takes_a_part(tmp_path: Path) -> None:
    study = a_study(tmp_path, out="else", seeds=[7])
    assert [str(run.folder) for run in study.only(["grpo"]).runs] == [
        "else/grpo/as-it-comes/seed-7",
        "else/grpo/five-numbers/seed-7",
    ]
    with pytest.raises(UserError, match="--only gpro.*Did you mean 'grpo'"):
        study.only(["gpro"])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"gird": {}}, "unknown key 'gird'; known here: out, seeds, settings, grid"),
        ({"seeds": ["x"]}, "seeds.0 = 'x'"),
        ({"seeds": [1, 1]}, "two runs would share the folder somewhere/ppo/as-it-comes/seed-1"),
        ({"settings": {"lrr": 1}}, "ppo, as it comes: there is no setting 'lrr'. Did you mean 'lr'"),
        ({"settings": {"reward_functions": ["gsm8k_reward_fn"], "seed": 1}}, "'seed' is the study's own"),
        ({"settings": {"reward_functions": ["gsm8k_reward_fn"], "lr": "high"}}, "lr = 'high'"),
        ({"baseline": {"preset": "pop"}}, "baseline: preset has no value 'pop'"),
        ({"across": ["task"]}, "no axis 'task' in the grid; there are preset, data"),
    ],
)
def test_mistakes_are_told_before_anything_is_trained(tmp_path: Path, change: dict, said: str) -> None:
    with pytest.raises(UserError, match="study .*plan.yaml: ") as told:
        a_study(tmp_path, yaml.safe_dump({**yaml.safe_load(PLAN), **change}, sort_keys=False))
    assert said in str(told.value)


def test_files_that_are_no_plans(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file"):
        read_study(tmp_path / "none.yaml", {})
    for text in ("[1, 2]", "a: [", "a: &a [*a, *a]"):
        with pytest.raises(UserError, match="study .*plan.yaml"):
            a_study(tmp_path, text)


def test_a_study_without_a_grid_has_a_run_for_each_seed(tmp_path: Path) -> None:
    study = a_study(tmp_path, "settings: {reward_functions: [gsm8k_reward_fn]}\nseeds: [1]")
    assert [str(run.folder) for run in study.runs] == ["runs/plan/seed-1"] and study.runs[0].name == "seed 1"


def test_the_study_of_the_presets_has_them_all() -> None:
    study = read_study(STUDIES / "presets.yaml", {})
    assert [cell["preset"] for cell in study.cells] == list(PRESETS) and len(study.runs) == 5 * len(PRESETS)


def test_methods_of_the_critics_study_differ_in_where_advantages_come_from_alone() -> None:
    study = read_study(STUDIES / "critic.yaml", {})
    assert len(study.runs) == 30
    for run in study.runs[:6]:
        config = run.config()
        plan, t = plan_batches(config, 1), config.train
        assert (plan.samples_per_episode, plan.steps_per_epoch, plan.total_steps) == (256, 4, 24)
        assert (t.lr, t.lr_schedule, t.adam_beta1, t.adam_beta2, t.seed) == (3e-4, "constant", 0.9, 0.999, 0)
        assert (config.eval.eval_samples, config.eval.eval_temperature) == (128, 1.0)
        assert t.critic_steps == {"gae": 1, "gae, 4 steps": 4, "drgrpo": 1}[run.cell["method"]]
        assert config.data.prompt_dataset == (["builtin@5"] if run.cell["task"] == "five numbers" else ["builtin"])
