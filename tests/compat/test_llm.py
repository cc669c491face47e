"""`LLMTrainingParams`, `Project` and `rlvr llm`: names, defaults, ranges, and what each parameter becomes."""

import copy
import json
import pickle
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import rlvr
from rlvr.cli.llm import parse_params
from rlvr.cli.main import main
from rlvr.compat.aitraining import ALL, GROUPS, PARAMETERS, PPO, RL, LLMTrainingParams
from rlvr.compat.aitraining_project import part_of_run, ppo_config, supervised_config
from rlvr.errors import UserError

NEEDED = {"model": "some-model", "data_path": "data.jsonl", "project_name": "p", "trainer": "ppo"}
RULE = {"rl_reward_fn": "correctness"}


def params(**given: Any) -> LLMTrainingParams:
    return LLMTrainingParams(**{**NEEDED, **RULE, **given})


def config(**given: Any) -> Any:
    return ppo_config(params(**given), prompts=64)


# The reference's tables: parameter, default, range.
REFERENCE: list[tuple[str, Any, tuple[float, float] | None]] = [
    ("rl_reward_model_path", None, None), ("rl_gamma", 0.99, (0.9, 0.99)), ("rl_gae_lambda", 0.95, (0.9, 0.99)),
    ("rl_kl_coef", 0.1, (0.01, 0.5)), ("rl_value_loss_coef", 1.0, (0.5, 2.0)), ("rl_clip_range", 0.2, (0.1, 0.3)),
    ("rl_value_clip_range", 0.2, None), ("rl_num_ppo_epochs", 4, None), ("rl_chunk_size", 128, None),
    ("rl_mini_batch_size", 8, None), ("rl_optimize_device_cache", True, None), ("rl_max_new_tokens", 128, None),
    ("rl_top_k", 50, None), ("rl_top_p", 1.0, None), ("rl_temperature", 1.0, None), ("rl_reward_fn", None, None),
    ("rl_multi_objective", False, None), ("rl_reward_weights", None, None), ("rl_env_type", None, None),
    ("rl_env_config", None, None), ("epochs", 1, None), ("batch_size", 4, None), ("lr", 1e-5, None), ("model_ref", None, None),
]  # fmt: skip


@pytest.mark.parametrize(("name", "default", "allowed"), REFERENCE, ids=[row[0] for row in REFERENCE])
def test_names_defaults_and_ranges_are_the_references(name, default, allowed) -> None:
    found = {f.name: f for f in fields(LLMTrainingParams)}[name]
    assert found.default == default and type(found.default) is type(default)
    if allowed is None:
        return
    low, high = allowed
    assert params(**{name: low}) and params(**{name: high})
    for beyond in (low - 1e-3, high + 1e-3):
        with pytest.raises(UserError, match=rf"{name} .*: must be from {low:g} to {high:g}"):
            params(**{name: beyond})


def test_the_table_has_a_row_for_each_parameter() -> None:
    assert list(PARAMETERS) and set(PARAMETERS) == {f.name for f in fields(LLMTrainingParams)}
    assert [f.name for f in fields(LLMTrainingParams)] == [f.name for g in GROUPS for f in fields(g)]


CHANGES: list[tuple[str, Any, str, Any]] = [
    ("model", "other", "model.pretrain", "other"),
    ("data_path", "other.jsonl", "data.prompt_dataset", ["other.jsonl"]),
    ("project_name", "elsewhere", "ckpt.save_path", "elsewhere"),
    ("epochs", 3, "train.num_episodes", 6),
    ("batch_size", 2, "train.train_batch_size", 2),
    ("lr", 2e-5, "train.lr", 2e-5),
    ("lr", 2e-5, "train.critic_lr", 2e-5),
    ("seed", 7, "train.seed", 7),
    ("resume", True, "ckpt.resume", True),
    ("mixed_precision", "bf16", "parallel.mixed_precision", "bf16"),
    ("prompt_text_column", "q", "data.question_column", "q"),
    ("text_column", "q", "data.question_column", "q"),
    ("chat_template", "generic", "template.conversation_template_config", "generic"),
    ("model_max_length", 999, "rollout.max_length", 999),
    ("rl_reward_model_path", "rm", "model.rm_checkpoint_path", "rm"),
    ("model_ref", "ref", "model.ref_model", "ref"),
    ("rl_gamma", 0.95, "algo.gamma", 0.95),
    ("rl_gae_lambda", 0.9, "algo.lam", 0.9),
    ("rl_kl_coef", 0.2, "algo.kl_coef", 0.2),
    ("rl_value_loss_coef", 0.5, "algo.vf_coef", 0.5),
    ("rl_clip_range", 0.1, "algo.eps_clip", 0.1),
    ("rl_value_clip_range", 0.3, "algo.value_clip", 0.3),
    ("rl_num_ppo_epochs", 2, "train.num_update_steps", 2),
    ("rl_mini_batch_size", 16, "train.accumulation_steps", 4),
    ("rl_rollout_batch_size", 64, "rollout.experience_batch_size", 64),
    ("rl_num_generations", 4, "rollout.num_generations", 4),
    ("rl_chunk_size", 64, "train.chunk_tokens", 64),
    ("rl_optimize_device_cache", False, "train.empty_device_cache", False),
    ("rl_max_new_tokens", 64, "rollout.max_new_tokens", 64),
    ("rl_top_k", 0, "rollout.top_k", 0),
    ("rl_top_p", 0.9, "rollout.top_p", 0.9),
    ("rl_temperature", 0.7, "rollout.temperature", 0.7),
    ("rl_reward_fn", "length_penalty", "reward.reward_functions", ["length_penalty"]),
    ("rl_multi_objective", True, "env.rl_multi_objective", True),
    ("rl_reward_weights", "{}", "env.rl_reward_weights", "{}"),
    ("rl_env_type", "multi_objective", "env.rl_env_type", "multi_objective"),
    ("rl_env_config", "{}", "env.rl_env_config", "{}"),
]


@pytest.mark.parametrize(("name", "value", "place", "becomes"), CHANGES, ids=[f"{c[0]}-{c[2]}" for c in CHANGES])
def test_each_parameter_becomes_a_setting(name, value, place, becomes) -> None:
    def read(made: Any) -> Any:
        section, field = place.split(".")
        return getattr(getattr(made, section), field)

    assert read(config(**{name: value})) == becomes
    assert read(config()) != becomes


def test_every_parameter_of_reinforcement_learning_is_among_these() -> None:
    assert {c[0] for c in CHANGES} | {"trainer", "rejected_text_column"} == set(PARAMETERS)


def test_grpo_is_the_preset_with_these_parameters_on_it() -> None:
    made = config(trainer="grpo", rl_kl_coef=0.05)
    assert (made.algo.estimator, made.algo.kl_in, made.algo.kl_estimator) == ("grpo", "loss", "k3")
    assert (made.algo.kl_coef, made.rollout.num_generations, made.train.num_update_steps) == (0.05, 8, 4)
    assert made.rollout.experience_batch_size == 32 and made.train.num_episodes == 16  # 64 prompts, 8 responses each


def test_groups_of_responses_where_they_are_compared() -> None:
    assert config(rl_env_type="preference_comparison").rollout.num_generations == 8
    with pytest.raises(UserError, match="whole groups of rl_num_generations 3"):
        config(rl_num_generations=3, rl_rollout_batch_size=32)


def test_reward_functions() -> None:
    def functions(**given: Any) -> list[str]:
        made = LLMTrainingParams(**{**NEEDED, **given})
        return ppo_config(made, 64).reward.reward_functions

    assert functions(model_ref="ref") == ["correctness"]
    assert functions(rl_reward_fn="default") == ["correctness"]
    assert functions(rl_reward_model_path="rm") == []
    assert functions(rl_reward_model_path="rm", rl_reward_fn="default") == []
    assert functions(rl_reward_model_path="rm", rl_reward_fn="length_penalty") == ["length_penalty"]
    assert functions(rl_reward_weights='{"correctness": 1}', rl_multi_objective=True) == []


def test_supervised_trainers() -> None:
    sft = supervised_config(params(trainer="sft", rl_reward_fn=None, text_column="t", epochs=2, model_max_length=77))
    assert (sft.data.dataset, sft.data.text_column, sft.data.question_column) == (["data.jsonl"], "t", None)
    assert (sft.train.num_epochs, sft.train.train_batch_size, sft.train.lr, sft.data.max_length) == (2, 4, 1e-5, 77)
    asked = supervised_config(params(trainer="sft", rl_reward_fn=None, prompt_text_column="q", text_column="t"))
    assert (asked.data.question_column, asked.data.answer_column) == ("q", "t")
    reward = supervised_config(
        params(trainer="reward", rl_reward_fn=None, prompt_text_column="q", text_column="c", rejected_text_column="r")
    )
    d = reward.data
    assert (d.preference_dataset, d.question_column, d.text_column, d.rejected_text_column) == (
        ["data.jsonl"],
        "q",
        "c",
        "r",
    )
    assert (reward.train.seed, reward.ckpt.save_path) == (42, "p")


def test_folders_of_runs_stand_for_their_models(tmp_path) -> None:
    (tmp_path / "rm" / "reward_model" / "modeling").mkdir(parents=True)
    (tmp_path / "sft" / "actor" / "modeling").mkdir(parents=True)
    made = config(
        model=str(tmp_path / "sft"), model_ref=str(tmp_path / "sft"), rl_reward_model_path=str(tmp_path / "rm")
    )
    assert made.model.pretrain == made.model.ref_model == str(tmp_path / "sft" / "actor" / "modeling")
    assert made.model.rm_checkpoint_path == str(tmp_path / "rm" / "reward_model" / "modeling")
    assert part_of_run("owner/name", "actor") == "owner/name"


@pytest.mark.parametrize("name", [n for n, row in PARAMETERS.items() if row.trainers != ALL])
def test_what_a_trainer_does_not_read_is_refused(name) -> None:
    value = {c[0]: c[1] for c in CHANGES}.get(name, "x")
    row = PARAMETERS[name]
    trainer = "sft" if row.trainers in (RL, ("reward",)) else "grpo"
    assert row.trainers in (RL, PPO, ("reward",))
    with pytest.raises(UserError, match=f"{name} .* has no effect with trainer {trainer}"):
        LLMTrainingParams(**{**NEEDED, "trainer": trainer, name: value})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"rl_kl_coeff": 0.1}, "no parameter 'rl_kl_coeff'.*rl_kl_coef"),
        ({"trainer": "dpo"}, "trainer 'dpo': Input should be 'ppo', 'grpo', 'sft' or 'reward'"),
        ({"rl_reward_fn": None}, "at least one of rl_reward_model_path .* and model_ref"),
        ({"rl_reward_fn": "custom"}, "package.module:function"),
        ({"rl_gamma": "high"}, "valid number"),
        ({"epochs": 1.5}, "valid integer"),
        ({"epochs": True}, "valid integer"),
        ({"rl_multi_objective": "yes"}, "valid boolean"),
        ({"rl_temperature": 0.0}, "above 0"),
        ({"rl_top_p": 1.5}, "from 0 to 1"),
        ({"batch_size": 0}, "at least 1"),
        ({"rl_mini_batch_size": 0}, "at least 1"),
        ({"model": 3}, "valid string"),
        ({"rl_env_type": "chess"}, "text_generation"),
    ],
)
def test_mistakes(given, said) -> None:
    with pytest.raises(UserError, match=said):
        config(**given)


def test_batches_must_divide() -> None:
    with pytest.raises(UserError, match="rl_mini_batch_size 8 is no multiple of batch_size 3"):
        config(batch_size=3)
    with pytest.raises(UserError, match="rl_rollout_batch_size 12 is no multiple of rl_mini_batch_size 8"):
        config(rl_rollout_batch_size=12)


def test_parameters_can_be_copied() -> None:
    made = params(rl_kl_coef=0.2)
    assert copy.deepcopy(made) == made == pickle.loads(pickle.dumps(made))


def test_parameters_that_must_be_given() -> None:
    with pytest.raises(UserError, match="data_path, trainer must be given"):
        LLMTrainingParams(model="m", project_name="p")


FLAGS = ["--train", "--model", "m", "--data-path", "d", "--project-name", "p", "--trainer", "ppo"]


def test_flags_with_hyphens_and_underscores() -> None:
    kebab = parse_params(
        [*FLAGS, "--rl-kl-coef", "0.2", "--rl-reward-fn", "correctness", "--no-rl-optimize-device-cache"]
    )
    snake = parse_params([*FLAGS, "--rl_kl_coef=0.2", "--rl_reward_fn", "correctness", "--no_rl_optimize_device_cache"])
    assert kebab == snake == params(
        model="m", data_path="d", rl_kl_coef=0.2, rl_optimize_device_cache=False
    )  # fmt: skip


def test_help_shows_every_parameter_by_group(capsys) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["llm", "--help"])
    shown = capsys.readouterr().out
    assert stop.value.code == 0
    for f in fields(LLMTrainingParams):
        assert f"  --{f.name.replace('_', '-')} " in shown or f"  --[no-]{f.name.replace('_', '-')} " in shown
    for title in ("general", "data", "core_ppo", "updates", "generation", "advanced"):
        assert f"\n{title}: " in shown


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (FLAGS[1:], "wants to be told so"),
        (FLAGS[:-2], "--trainer must be given"),
        ([*FLAGS, "--rl-kl-coef", "9"], "rl_kl_coef 9.0: must be from 0.01 to 0.5"),
        (FLAGS, "at least one of rl_reward_model_path"),
        ([*FLAGS, "--rl-kl-coeff", "1"], "rl-kl-coef"),
        ([*FLAGS, "--rl-kl-coef", "high"], "high"),
    ],
)
def test_mistakes_on_the_command_line(capsys, flags, said) -> None:
    try:
        status = main(["llm", *flags])
    except SystemExit as stop:
        status = stop.code
    captured = capsys.readouterr()
    assert status == 2 and said in " ".join((captured.err + captured.out).split())
    assert "Traceback" not in captured.err


def prompts_file(folder: Path, count: int = 12) -> str:
    path = folder / "prompts.jsonl"
    path.write_text("".join(json.dumps({"text": f"{i}+1=", "answer": str(i + 1)}) + "\n" for i in range(count)))
    return str(path)


@pytest.fixture
def small(micro_model, tmp_path) -> dict[str, Any]:
    return {
        "model": micro_model, "data_path": prompts_file(tmp_path), "project_name": str(tmp_path / "project"),
        "trainer": "ppo", "rl_max_new_tokens": 4, "rl_rollout_batch_size": 8, "rl_num_ppo_epochs": 1, "chat_template": "tiny",
    }  # fmt: skip


@pytest.mark.usefixtures("process")
def test_a_project_trains_on_a_copy_of_the_data(small) -> None:
    project = rlvr.Project(params=params(**small), backend="local", process=True)
    folder = project.create()
    assert (folder / "actor" / "modeling").is_dir()
    copied = folder / "data" / "train.jsonl"
    assert copied.read_text() == Path(small["data_path"]).read_text()
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["episode"] == 16  # 12 prompts once, in updates of 8
    with pytest.raises(UserError, match="holds another run"):
        project.create()
    before = copied.stat().st_mtime_ns
    rlvr.Project(params=params(**small, resume=True), backend="local", process=True).create()  # nothing is left to do
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == len(rows) and copied.stat().st_mtime_ns == before


@pytest.mark.usefixtures("process")
def test_without_process_the_data_stay_where_they_are(small) -> None:
    folder = rlvr.Project(params=params(**{**small, "rl_max_new_tokens": 2}), process=False).create()
    assert not (folder / "data").exists()
    assert small["data_path"] in (folder / "config.yaml").read_text()


def test_projects_that_can_not_be() -> None:
    with pytest.raises(UserError, match="the only backend is 'local'"):
        rlvr.Project(params=params(), backend="spaces-a10g-large")
    with pytest.raises(UserError, match="must be LLMTrainingParams, not dict"):
        rlvr.Project(params={})  # type: ignore[arg-type]


@pytest.mark.usefixtures("process")
@pytest.mark.parametrize(("function", "plain"), [("length_penalty", True), ("correctness", False)])
def test_prompts_stay_plain_unless_a_rule_reads_the_format(small, function, plain, capsys) -> None:
    """And `length_penalty`, a documented value, takes its limit from rl_max_new_tokens."""
    asked = {**small, "chat_template": "auto", "rl_reward_fn": function, "rl_rollout_batch_size": 16}
    folder = rlvr.Project(params=params(**asked), process=False).create()
    row = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
    samples = [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]
    questions = [row["text"] for row in map(json.loads, Path(small["data_path"]).read_text().splitlines())]
    assert any(sample["prompt"] in questions for sample in samples) == plain
    assert ("template: as_is.json" in capsys.readouterr().out) == plain
    assert (-1 <= row["reward/length_penalty"] < 0) if plain else "reward/correctness" in row
