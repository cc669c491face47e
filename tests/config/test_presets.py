"""Presets: settings from papers beneath the user's own, and the combinations of settings that are refused."""

import inspect
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlvr.cli.main import main
from rlvr.config import Config, base_config, from_dict, merge, parse, presets, to_dict
from rlvr.config.conditions import correction_of
from rlvr.config.models import SETTINGS_OF
from rlvr.config.presets import PRESETS
from rlvr.errors import UserError
from rlvr.validate.ppo import check_config, plan_batches

REWARD = ["--reward_functions", "gsm8k_reward_fn"]


@pytest.mark.parametrize("model", [*SETTINGS_OF, "some/model"])
@pytest.mark.parametrize("name", PRESETS)
def test_each_preset_is_a_set_of_settings_that_go_together(name: str, model: str) -> None:
    config = parse([*REWARD, "--preset", name, "--pretrain", model])
    check_config(config)
    plan = plan_batches(config, 1)
    assert 1 <= plan.actor_steps <= plan.total_steps
    plan_batches(config, 2)
    tree, preset = to_dict(config), PRESETS[name]
    for section, values in preset.settings.items():
        for key, value in values.items():
            own = SETTINGS_OF.get(model, {}).get(Config, {})
            changed = key in preset.for_small.get(section, {}) or (section != "algo" and key in own.get(section, {}))
            assert tree[section][key] == value or (own and changed), key
    assert "arXiv" in preset.paper


@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("model", [*SETTINGS_OF, "some/model"])
@pytest.mark.parametrize("name", PRESETS)
def test_an_optimizer_step_takes_whole_groups(name: str, model: str, world_size: int) -> None:
    """Of more than one prompt, unless nothing is compared within a group; and as many steps as the preset says."""
    config = parse([*REWARD, "--preset", name, "--pretrain", model])
    plan, generations = plan_batches(config, world_size), config.rollout.num_generations
    local = config.train.train_batch_size * config.train.accumulation_steps // world_size
    assert local % generations == 0 and local * world_size > generations
    assert plan.samples_per_episode == plan.steps_per_epoch * local * world_size
    assert config.train.num_update_steps == 1, "later passes shuffle single responses"
    assert model in SETTINGS_OF or plan.steps_per_epoch == PRESETS[name].updates


def test_presets_step_as_their_papers_do() -> None:
    """Peak, shape and Adam's second beta, as the recipes name them; what is not named is the default."""
    found = {name: parse([*REWARD, "--preset", name, "--pretrain", "some/model"]).train for name in PRESETS}
    constant = {name for name, train in found.items() if train.lr_schedule == "constant"}
    assert constant == {"ppo", "orz", "vapo", "drgrpo", "dapo", "top_entropy"}
    assert {name for name, train in found.items() if train.adam_beta2 == 0.95} == {
        "ppo",
        "orz",
        "drgrpo",
        "cispo",
    }
    assert found["cispo"].adam_eps == 1e-15
    assert {name: train.warmup_steps for name, train in found.items() if train.warmup_steps is not None} == {
        "ppo": 80,
        "orz": 50,
        "dapo": 80,
        "top_entropy": 0,
    }
    assert found["orz"].critic_lr == 5e-6 and found["orz"].critic_steps == 12 and found["orz"].weight_decay == 0.0


@pytest.mark.parametrize("name", PRESETS)
def test_each_line_of_a_recipe_has_its_source(name: str) -> None:
    """Beside each line with a setting stands a comment: where the paper says it, or that it doesn't."""
    lines = inspect.getsource(presets).split("PRESETS: dict")[1].split("\n    ),\n")
    recipe = next(part for part in lines if f'"{name}": Preset(' in part)
    settings = [
        line for line in recipe.partition("for_small=")[0].splitlines() if re.search(r"\w=\d|\w\": [^P]|=\{.", line)
    ]
    unsourced = [line.strip() for line in settings if "  # " not in line and "prompts=" not in line]
    assert len(settings) > 6 and unsourced == []


@pytest.mark.parametrize("name", PRESETS)
def test_flags_files_and_python_build_the_same_run(name: str, tmp_path: Path) -> None:
    flags = parse([*REWARD, "--preset", name, "--kl_coef", "0.7"])
    file = tmp_path / "c.yaml"
    given = {"algo": {"preset": name, "kl_coef": 0.7}, "reward": {"reward_functions": ["gsm8k_reward_fn"]}}
    file.write_text(yaml.safe_dump(given))
    assert flags == parse(["--config", str(file)]) == base_config(given)
    assert flags.algo.kl_coef == 0.7
    file.write_text(yaml.safe_dump(to_dict(flags)))
    assert parse(["--config", str(file)]) == flags, "what a run saves gives the run back"


def test_flags_win_over_the_file_and_the_file_over_the_preset(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(yaml.safe_dump({"algo": {"eps_clip": 0.3, "eps_clip_high": 0.5}}))
    config = parse(["--config", str(file), "--preset", "dapo", "--eps_clip", "0.1"])
    assert (config.algo.eps_clip, config.algo.eps_clip_high) == (0.1, 0.5)
    assert config.algo.dynamic_sampling and config.algo.preset == "dapo"


def test_a_preset_for_a_model_named_by_a_flag_has_nothing_of_the_built_in_ones() -> None:
    config = parse(["--preset", "grpo", "--pretrain", "some/model"])
    assert config.algo.kl_coef == 0.04 and config.rollout.num_generations == 64 and config.train.lr == 1e-6
    assert parse(["--pretrain", "some/model"]) == merge(from_dict({}), {"model": {"pretrain": "some/model"}})


def test_an_unknown_preset_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *REWARD, "--preset", "drgrp"]) == 2
    message = capsys.readouterr().err
    assert "Did you mean 'drgrpo'?" in message and all(name in message for name in PRESETS)
    with pytest.raises(UserError, match="there are: ppo"):
        base_config({"algo": {"preset": "x"}})


OTB = ["--estimator", "optimal_token_baseline", "--num_generations", "8"]
GROUPED = ["--estimator", "grpo", "--num_generations", "4"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--estimator", "grpo"], "--num_generations is 1: give at least 2"),
        (["--preset", "grpo", "--num_generations", "1"], "--preset grpo: estimator grpo compares"),
        (["--estimator", "gprpo"], "unknown advantage estimator 'gprpo'.*Did you mean 'grpo'"),
        ([*GROUPED, "--critic_lr", "0.1"], "--critic_lr 0.1 has no effect.*gae"),
        ([*GROUPED, "--lam", "0.5"], "--lam 0.5 has no effect"),
        ([*GROUPED, "--gamma", "0.9"], "--gamma 0.9 has no effect"),
        (
            [*GROUPED, "--critic_warmup_steps", "2"],
            "--critic_warmup_steps 2 has no effect.*no critic; give --critic_warmup_steps 0, or choose one that has: gae",
        ),
        (
            [*GROUPED, "--value_pretraining_episodes", "2"],
            "--value_pretraining_episodes 2 has no effect.*no critic; give --value_pretraining_episodes 0",
        ),
        (
            ["--preset", "vapo", "--estimator", "grpo", "--num_generations", "4"],
            "--critic_lam 1.0 has no effect: --preset vapo: estimator grpo has no critic; give --critic_lam None, or",
        ),
        (["--kl_horizon", "5"], "--kl_horizon 5 has no effect without --kl_target"),
        (["--max_refills", "5"], "--max_refills 5 has no effect without --dynamic_sampling"),
        (["--preset", "vapo", "--lam", "0.5"], "--lam 0.5 has no effect: --lam_alpha"),
        ([*GROUPED, "--critic_checkpoint_path", "x"], "--critic_checkpoint_path x has no effect"),
        ([*GROUPED, "--truncated", "bootstrap"], "--truncated bootstrap.*no critic"),
        (["--ratio", "sequence"], "--ratio sequence moves a response as one.*grpo"),
        ([*GROUPED, "--ratio", "sequence"], "needs --loss_reduction sequence_mean, not token_mean"),
        (["--preset", "gspo", "--loss_reduction", "token_mean"], "needs --loss_reduction sequence_mean"),
        (
            ["--preset", "gspo", "--mismatch_correction", "mask", "--mismatch_level", "geometric"],
            "--mismatch_level geometric weighs single tokens.*--mismatch_level sequence",
        ),
        (
            ["--mismatch_correction", "truncate", "--mismatch_level", "geometric"],
            "--mismatch_level geometric is a mean.*--mismatch_correction mask",
        ),
        (
            ["--mismatch_correction", "mask", "--mismatch_low", "1.5"],
            "--mismatch_low 1.5 and --mismatch_high 2 leave out what agrees",
        ),
        (["--mismatch_correction", "truncate", "--old_logprobs", "sampled"], "take --old_logprobs recompute"),
        (["--mismatch_correction", "mask", "--engine", "generate"], "--engine generate, which does not give"),
        (["--off_policy_mask_threshold", "0"], "--off_policy_mask_threshold 0.0: must be above 0"),
        (["--preset", "gspo", "--estimator", "gae"], "--preset gspo: estimator gae gives its tokens"),
        (["--preset", "gspo", "--policy_loss", "sapo"], "--policy_loss sapo is made for the ratios of tokens"),
        (["--preset", "gspo", "--entropy_control", "kl_cov"], "--entropy_control kl_cov chooses single tokens"),
        (["--float32_head", "--plugin", "gemini"], "--plugin gemini replaces the model's head"),
        (["--float32_head", "--engine", "vllm"], "vLLM has a head of its own"),
        (["--entropy_control", "top_entropy", "--old_logprobs", "sampled"], "goes by the tokens' entropies"),
        ([*OTB, "--old_logprobs", "sampled"], "goes by the probabilities of all words.*take --old_logprobs recompute"),
        (["--estimator", "optimal_token_baseline"], "give at least 2"),
        ([*OTB, "--ratio", "sequence"], "gives its tokens different advantages"),
        (["--entropy_control", "clip_cov", "--clip_cov_low", "6"], "leave no covariance between them"),
        (["--entropy_control", "kl_cov", "--entropy_share", "0"], "--entropy_share 0.0: must be above 0 and at most 1"),
        (
            ["--kl_in", "loss", "--kl_estimator", "k1"],
            "k1 with --kl_in loss has no force.*k3_weighted or k2 or k3.*--kl_in reward",
        ),
        (["--kl_estimator", "k3"], "k3 with --kl_in reward draws.*Give --kl_estimator k1 there, or --kl_in loss"),
        (["--kl_estimator", "k2"], "k2 with --kl_in reward draws"),
        (["--preset", "grpo", "--kl_in", "reward"], "k3 with --kl_in reward draws"),
        (["--kl_target", "6", "--kl_coef", "0"], "--kl_coef 0 stays 0"),
        (["--preset", "dapo", "--kl_target", "6"], "--kl_coef 0 stays 0"),
        (["--kl_target", "-1"], "--kl_target -1.0: must be above 0"),
        (["--kl_horizon", "0"], "--kl_horizon 0"),
        (["--mismatch_high", "0"], "--mismatch_high 0.0: must be above 0"),
        (["--eps_clip_high", "-1"], "--eps_clip_high -1.0"),
        (["--lam_alpha", "0"], "--lam_alpha 0.0: must be above 0"),
        (["--critic_lam", "1.5"], "--critic_lam 1.5: must lie between 0 and 1"),
        (["--positive_threshold", "0.5"], "--positive_threshold 0.5 has no effect"),
        (["--positive_lm_coef", "-1"], "--positive_lm_coef -1"),
        (["--dynamic_sampling"], "--dynamic_sampling compares.*at least 2"),
        (["--dynamic_sampling", "--num_generations", "2", "--engine", "replay"], "--engine replay"),
        (["--preset", "dapo", "--max_refills", "0"], "--max_refills 0"),
        (["--estimator", "remax", "--engine", "replay"], "remax samples a greedy response"),
        (["--estimator", "remax", "--reward_aggregation", "sum_then_normalise"], "use sum"),
        (["--critic_warmup_steps", "160"], "leaves the actor none of the run's 160 optimizer steps"),
    ],
)
def test_settings_that_can_not_work_together_say_what_to_do(flags: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        config = parse([*REWARD, *flags])
        check_config(config)
        plan_batches(config, 1)


@pytest.mark.parametrize(
    ("flags", "how", "level", "bounds"),
    [
        ([], "none", "token", (0.5, 2)),
        (["--engine", "paged"], "none", "token", (0.5, 2)),
        (["--engine", "vllm"], "truncate", "token", (0, 2)),
        (["--engine", "vllm", "--preset", "gspo"], "truncate", "sequence", (0, 3)),
        (["--engine", "vllm", "--mismatch_correction", "none"], "none", "token", (0.5, 2)),
        (["--engine", "vllm", "--top_k", "5"], "none", "token", (0.5, 2)),
        (["--engine", "vllm", "--old_logprobs", "sampled"], "none", "token", (0.5, 2)),
        (["--ray", "--num_rollout_workers", "1", "--max_staleness", "1"], "truncate", "token", (0, 2)),
        (["--ray", "--num_rollout_workers", "1", "--max_staleness", "1", "--old_logprobs", "sampled"], "none", "token", (0.5, 2)),
        (["--mismatch_correction", "mask", "--mismatch_level", "sequence", "--mismatch_low", "0"], "mask", "sequence", (0, 3)),
    ],
)  # fmt: skip
def test_what_differs_by_design_is_corrected_by_default(flags, how, level, bounds) -> None:
    found = correction_of(parse([*REWARD, *flags]))
    assert (found.how, found.level, (found.low, found.high)) == (how, level, bounds)


def test_steps_are_counted_with_the_critics_pretraining() -> None:
    config = parse([*REWARD, "--preset", "vapo", "--num_episodes", "10", "--value_pretraining_episodes", "3"])
    plan = plan_batches(config, 1)
    assert plan.num_episodes == 13 and plan.total_steps == 13 * 4 and plan.actor_steps == 10 * 4
    assert plan.critic_steps == plan.total_steps
    four = plan_batches(parse([*REWARD, "--critic_steps", "4"]), 1)
    assert four.critic_steps == 4 * four.total_steps
    few = parse([*REWARD, "--experience_batch_size", "4", "--train_batch_size", "2", "--critic_steps", "8"])
    assert plan_batches(few, 1).critic_steps == 2 * plan_batches(few, 1).total_steps, "one for each sample"


SHORT = "--num_episodes 2 --experience_batch_size 16 --train_batch_size 8 --eval_samples 4 --warmup_steps 0".split()


@pytest.mark.usefixtures("process", "tiny_cache")
@pytest.mark.parametrize(
    ("name", "metric"), [("vapo", "loss/positive_lm_avg"), ("dapo", "dynamic/refills"), ("gspo", "policy/clipfrac_avg")]
)
def test_presets_run_and_are_printed(
    name: str, metric: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *REWARD, *SHORT, "--preset", name, "--save_path", str(tmp_path / "run")]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert f"preset {name} (" in printed and "arXiv" in printed and "eps_clip_high" in printed
    assert "lr 0.0003 (not 1e-06)" in printed, "what the built-in model changes is said"
    rows: list[dict[str, Any]] = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").open()]
    assert metric in rows[-1]
    assert (tmp_path / "run" / "critic").is_dir() is (name == "vapo")
