"""A setting that nothing reads is refused, with why and what to do; every setting says when it is read, or always is."""

from dataclasses import replace

import pytest

from rlvr.cli.main import main
from rlvr.config import Config, RewardTrainingConfig, SFTConfig, from_dict, merge, parse, to_dict
from rlvr.config.catalog import catalog, values_of
from rlvr.config.fields import Condition, read_when
from rlvr.config.flags import parse_with_origins
from rlvr.errors import UserError
from rlvr.run.folder import run_state
from rlvr.validate import settings
from rlvr.validate.ppo import check_config
from rlvr.validate.settings import check_ranges, check_unread

REWARD = ["--reward_functions", "gsm8k_reward_fn"]
GRPO = ["--estimator", "grpo", "--num_generations", "4"]
OBJECTIVES = ["--rl_multi_objective", "--rl_reward_weights", '{"gsm8k_reward_fn": 1.0}']
OWN_DATA = ["--prompt_dataset", "mine.jsonl"]
# Flags -> what the message says besides the flag.
UNREAD = [
    ([*GRPO, "--lam", "0.95"], "has no critic"),
    ([*GRPO, "--lam", "0.5"], "has no critic"),
    ([*GRPO, "--critic_lam", "1"], "critic"),
    ([*GRPO, "--lam_alpha", "1"], "critic"),
    ([*GRPO, "--vf_coef", "0.5"], "choose one that has: gae"),
    ([*GRPO, "--value_clip", "0.3"], "no critic"),
    ([*GRPO, "--critic_warmup_steps", "1"], "critic"),
    ([*GRPO, "--value_pretraining_episodes", "1"], "critic"),
    ([*GRPO, "--critic_lr", "0.1"], "no critic"),
    ([*GRPO, "--critic_steps", "2"], "no critic"),
    ([*GRPO, "--rm_pretrain", "x"], "no critic"),
    ([*GRPO, "--critic_checkpoint_path", "x"], "no critic"),
    ([*GRPO, "--gamma", "0.9"], "one advantage"),
    ([*GRPO, "--whiten_rewards"], "one advantage"),
    ([*GRPO, "--discount_by", "turn"], "one advantage"),
    (["--max_turns", "3"], "without --environment"),
    (["--share_trunk", "--critic_lr", "0.1"], "learns at --lr"),
    (["--share_trunk", "--rm_pretrain", "x"], "critic of its own"),
    (["--share_trunk", "--critic_checkpoint_path", "x"], "critic of its own"),
    (["--no_lora_merge"], "nothing to merge"),
    (["--load_in_4bit"], "without LoRA: all weights learn"),
    (["--kl_coef", "0", "--ref_model", "x"], "at --kl_coef 0"),
    (["--lam_alpha", "0.05", "--lam", "0.9"], "each length its own"),
    (["--kl_coef", "0", "--kl_estimator", "k3"], "at --kl_coef 0"),
    (["--kl_coef", "0", "--kl_in", "loss"], "at --kl_coef 0"),
    (["--kl_coef", "0", "--no_offload_inference_models"], "no reference"),
    (["--truncated", "bootstrap", "--missing_eos_penalty", "1"], "takes the place of a cut response's score"),
    (["--kl_horizon", "10000"], "without --kl_target"),
    *(
        ([f"--mismatch_{name}", value], "without a correction")
        for name, value in (("level", "token"), ("low", "0.5"), ("high", "3"))
    ),
    (["--lr_schedule", "constant", "--lr_floor", "0.1"], "take cosine or linear"),
    (["--policy_loss", "sapo", "--eps_clip", "0.2"], "take ppo or cispo"),
    (["--policy_loss", "sapo", "--eps_clip_high", "0.3"], "take ppo or cispo"),
    (["--policy_loss", "cispo", "--dual_clip", "3"], "take ppo"),
    (["--tau_pos", "1"], "take sapo"),
    (["--policy_loss", "cispo", "--tau_neg", "1.05"], "take sapo"),
    (["--entropy_share", "0.2"], "without --entropy_control"),
    (["--entropy_control", "kl_cov", "--clip_cov_low", "1"], "without --entropy_control clip_cov"),
    (["--entropy_control", "kl_cov", "--clip_cov_high", "5"], "without --entropy_control clip_cov"),
    (["--entropy_control", "clip_cov", "--kl_cov_coef", "1"], "without --entropy_control kl_cov"),
    (["--kl_coef", "0", "--reference_reset_interval", "3"], "at --kl_coef 0: there is no reference"),
    (["--lora_config", "x", "--reference_reset_interval", "3"], "the reference is the actor with its adapter off"),
    (["--ref_model", "x", "--reference_reset_interval", "3"], "is what is to be measured from"),
    (["--reference_mix", "0.5"], "without --reference_reset_interval"),
    (["--positive_threshold", "0.5"], "without --positive_lm_coef or --curriculum"),
    (["--curriculum_by", "kind"], "without a --curriculum"),
    (["--curriculum_memory", "5"], "without a --curriculum"),
    (["--curriculum_even", "0.5"], "give --curriculum"),
    (["--vllm_servers", "http://127.0.0.1:8000"], "give --engine vllm"),
    (["--curriculum", "zone", "--curriculum_target", "0.3"], "without --curriculum target_success"),
    (["--max_refills", "3"], "without --dynamic_sampling"),
    (["--ptx_batch_size", "4"], "without --ptx_dataset"),
    (["--question_column", "q"], "no columns"),
    (["--answer_column", "a"], "no columns"),
    (["--reward_timeout_s", "3"], "--reward_workers N"),
    (["--reward_memory_mb", "64", "--reward_workers", "0"], "nothing can end them"),
    (["--max_reward_failures", "0.1"], "--reward_workers N"),
    (["--engine", "replay", *OWN_DATA, "--top_k", "5"], "from the data"),
    (["--engine", "replay", *OWN_DATA, "--top_p", "0.5"], "from the data"),
    (["--rm_weight", "1"], "there is none"),
    (["--reward_normalisation", "fixed"], "--rm_checkpoint_path"),
    ([*OBJECTIVES, "--reward_weights", "1"], "with several objectives"),
    (["--rl_reward_weights", '{"math_reward_fn": 1}'], "without --rl_multi_objective"),
    (["--rl_env_config", "{}"], "without --rl_env_type"),
    (["--tp", "2"], "belongs to --plugin 3d"),
    (["--pp", "2"], "belongs to --plugin 3d"),
    (["--sp", "2"], "belongs to --plugin 3d"),
    (["--zero_stage", "2"], "zero1 and zero2 are plugins"),
    (["--sp_mode", "ring"], "belongs to --plugin 3d"),
    (["--enable_sequence_parallelism"], "belongs to --plugin 3d"),
    (["--plugin", "3d", "--sp_mode", "ring"], "without --enable_sequence_parallelism"),
    (["--zero_cpu_offload"], "take a ZeRO plugin"),
    ([*OWN_DATA, "--eval_interval", "3"], "--eval_datasets"),
    ([*OWN_DATA, "--eval_samples", "3"], "--eval_datasets"),
    ([*OWN_DATA, "--eval_temperature", "0.5", "--eval_generations", "2"], "--eval_datasets"),
    ([*OWN_DATA, "--eval_temperature", "0.5"], "--eval_datasets"),
    (["--engine", "replay", "--eval_temperature", "0.5"], "from the data"),
    (["--engine", "replay", "--eval_generations", "2"], "from the data"),
    (["--ray_address", "auto"], "without --ray"),
    *(([f"--num_{role}_nodes", "1"], "without --ray") for role in ("actor", "critic", "initial", "reward")),
    (["--num_gpus_per_node", "1"], "without --ray"),
    (["--num_gpus_per_process", "1"], "without --ray"),
    (["--num_cpus_per_node", "1"], "without --ray"),
    (["--min_reward_workers", "1"], "without --ray"),
    (["--max_reward_workers", "4"], "without --ray"),
    (["--num_rollout_workers", "1"], "without --ray"),
    (["--max_staleness", "1"], "without --ray"),
    (["--ray", *GRPO, "--num_critic_nodes", "1"], "no critic"),
    (["--ray", "--kl_coef", "0", "--num_initial_nodes", "1"], "at --kl_coef 0"),
    (["--ray", "--lora_config", "x", "--num_initial_nodes", "1"], "its adapter off"),
    (["--ray", "--num_reward_nodes", "1"], "a neural reward model"),
    (["--ray", "--rm_checkpoint_path", "x", "--max_reward_workers", "2"], "run in its processes"),
    (["--ray", "--max_staleness", "1"], "give --num_rollout_workers N"),
    (["--partial_rollout_tokens", "9"], "without --ray"),
    (["--ray", "--num_rollout_workers", "1", "--partial_rollout_tokens", "9"], "give --max_staleness K"),
    (["--ray", "--engine", "replay", "--num_rollout_workers", "1"], "from the data"),
    (["--ray", "--no_buffer_cpu_offload"], "the driver's main memory"),
    (["--ray", "--no_offload_inference_models"], "a device of its own"),
    (["--ray", "--no_empty_device_cache"], "a device of its own"),
    (["--hub_private"], "without --push_to_hub"),
    (["--hub_revision", "v1"], "without --push_to_hub"),
    (["--tracker_project", "x"], "without a tracker"),
    (["--tracker_run", "x"], "without a tracker"),
    (["--log_dir", "x", "--tracker_run", "x"], "without a tracker"),
    (["--prompt_csv_url", "x.csv", "--prompt_dataset", "builtin"], "which names the data"),
    (["--reward_options", '{"math_reward_fn": {"x": 1}}'], "name the function"),
]


@pytest.mark.parametrize(("flags", "said"), UNREAD, ids=lambda v: " ".join(v[-2:]) if isinstance(v, list) else "")
def test_each_unread_setting_is_refused_with_a_remedy(flags, said, capsys) -> None:
    assert main(["train", *REWARD, *flags]) == 2
    text = capsys.readouterr().err
    culprit = [word for word in flags if word.startswith("--")][-1]
    if culprit == "--lam" and "--lam_alpha" in flags:
        assert "--lam 0.9 has no effect" in text
    assert culprit in text and said in text and text.count("\n") == 1
    assert any(word in text for word in ("eave it out", "eave one out", "eave them out", "; give "))


def test_every_rule_is_tried_above() -> None:
    tried = {word[2:].removeprefix("no_") for flags, _ in UNREAD for word in flags if word.startswith("--")}
    assert {flag.name for section in catalog(Config) for flag in section.flags if flag.read_when} <= tried


# Read in every combination, or looked after elsewhere (lora_merge: `rlvr.validate.lora`). A new setting goes here or into
# the table.
ALWAYS = {
    "model": "pretrain tokenizer_dir checkpoint_path rm_checkpoint_path lora_config lora_merge share_trunk float32_head grad_checkpoint use_flash_attn "
    "trust_remote_code",
    "ray": "ray",
    "data": "prompt_csv_url max_samples curriculum overlong_prompts eval_datasets eval_share ptx_dataset",
    "template": "conversation_template_config template_check",
    "reward": "reward_functions reward_plugins reward_options reward_aggregation reward_workers neural_reward_model",
    "env": "environment rl_env_type rl_multi_objective",
    "rollout": "experience_batch_size num_generations max_length max_new_tokens temperature engine generation_batch_size",
    "algo": "preset estimator kl_coef kl_target policy_loss ratio old_logprobs mismatch_correction off_policy_mask_threshold ptx_coef "
    "entropy_coef entropy_control positive_lm_coef dynamic_sampling whiten_advantages loss_reduction truncated",
    "train": "num_episodes num_collect_steps num_update_steps train_batch_size accumulation_steps micro_batch_tokens memory_limit chunk_tokens lr "
    "lr_schedule warmup_steps weight_decay adam_beta1 adam_beta2 adam_eps grad_clip max_skipped_steps buffer_limit sample_buffer disable_loss_mask seed num_threads",
    "parallel": "plugin mixed_precision dist_timeout",
    "ckpt": "save_path save_interval keep_checkpoints resume push_to_hub",
    "eval": "",
    "log": "log_dir use_wandb use_mlflow use_trackio num_sample_generations journal progress",
}


def test_every_setting_is_in_the_table_or_always_read() -> None:
    for section in catalog(Config):
        ruled = {flag.name for flag in section.flags if flag.read_when}
        always = set(ALWAYS[section.name].split())
        assert ruled | always == {flag.name for flag in section.flags}, section.name
        assert not ruled & always


SUPERVISED = [
    (["sft", "--text_column", "x"], "no columns"),
    (["sft", "--answer_column", "x"], "no columns"),
    (["reward-model", "--prompt_text_column", "x"], "no columns"),
    (["reward-model", "--question_column", "x"], "no columns"),
    (["reward-model", "--rejected_text_column", "x"], "no columns"),
    (["reward-model", "--margin_column", "x"], "no columns"),
    (["sft", "--dataset", "mine.jsonl", "--eval_interval", "3"], "give --eval_dataset or --eval_share"),
    (["reward-model", "--preference_dataset", "mine.jsonl", "--eval_samples", "3"], "nothing is held out"),
    (["sft", "--tp", "2"], "belongs to --plugin 3d"),
    (["sft", "--zero_cpu_offload"], "take a ZeRO plugin"),
    (["reward-model", "--hub_private"], "without --push_to_hub"),
    (["sft", "--tracker_run", "x"], "without a tracker"),
]


@pytest.mark.parametrize(("words", "said"), SUPERVISED, ids=lambda v: " ".join(v[-2:]) if isinstance(v, list) else "")
def test_supervised_runs_refuse_them_too(words, said, capsys) -> None:
    assert main([*words, "--dry_run"]) == 2
    text = capsys.readouterr().err
    culprit = [word for word in words if word.startswith("--")][-1]
    assert culprit in text and said in text and "eave it out" in text and text.count("\n") == 1


def test_supervised_settings_are_in_a_table_or_always_read() -> None:
    always = {
        "model": "pretrain tokenizer_dir checkpoint_path lora_config lora_merge grad_checkpoint use_flash_attn trust_remote_code",
        "data": "dataset preference_dataset max_samples max_length overlong_rows eval_dataset eval_share",
        "template": "conversation_template_config template_check",
        "train": "num_epochs max_steps train_batch_size accumulation_steps micro_batch_tokens memory_limit lr lr_schedule warmup_steps weight_decay "
        "adam_beta1 adam_beta2 adam_eps grad_clip max_skipped_steps seed num_threads packing center_rewards_coefficient",
        "parallel": "plugin mixed_precision dist_timeout",
        "ckpt": "save_path save_interval keep_checkpoints resume push_to_hub",
        "log": "log_interval log_dir use_wandb use_mlflow use_trackio progress",
    }
    for kind in (SFTConfig, RewardTrainingConfig):
        for section in catalog(kind):
            ruled = {flag.name for flag in section.flags if flag.read_when}
            assert {f.name for f in section.flags} <= ruled | set(always.get(section.name, "").split()), section.name


def test_what_the_user_did_not_say_does_not_count(tmp_path) -> None:
    # The built-in model's lam and critic_lr, and evaluation settings, lie beneath; nobody gave them.
    check_config(parse([*REWARD, *GRPO]))
    check_config(parse([*REWARD, *OWN_DATA]))
    # A whole saved configuration says no more than what it was made from.
    import yaml

    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(to_dict(parse([*REWARD, *GRPO]))))
    parsed = parse_with_origins(["--config", str(path)])
    check_config(parsed.config, parsed.flags)
    # Python has no flags: what differs counts.
    with pytest.raises(UserError, match="--lam 0.5 has no effect"):
        check_unread(merge(parse([*REWARD, *GRPO]), {"algo": {"lam": 0.5}}))


def test_values_that_say_what_is_the_case_may_be_given(tmp_path) -> None:
    flags = ["--tp", "1", "--pp", "1", "--sp", "1", "--zero_stage", "0", "--no_zero_cpu_offload", "--gamma", "1"]
    parsed = parse_with_origins([*REWARD, *GRPO, *flags, "--critic_warmup_steps", "0", "--value_clip", "None"])
    check_config(parsed.config, parsed.flags)


def test_workers_of_a_function_that_is_not_ours_read_their_settings() -> None:
    config = from_dict({"reward": {"reward_functions": ["brief.py:brief"], "reward_timeout_s": 3.0}})
    check_unread(config)
    config = from_dict(
        {"reward": {"reward_functions": ["gsm8k_reward_fn"], "reward_timeout_s": 3.0, "reward_workers": 1}}
    )
    check_unread(config)


def test_a_setting_that_is_never_read_would_be_noticed(monkeypatch) -> None:
    never = read_when(Condition(lambda c: False, " at all"))

    def with_lr_never_read(config):
        for flag, value in values_of(config):
            yield (replace(flag, read_when=(never,)) if flag.name == "lr" else flag), value

    monkeypatch.setattr(settings, "values_of", with_lr_never_read)
    with pytest.raises(UserError, match="--lr 0.5 has no effect at all. Leave it out"):
        check_unread(from_dict({"train": {"lr": 0.5}}))


@pytest.mark.parametrize("kind", [Config, SFTConfig, RewardTrainingConfig])
def test_values_out_of_range_are_refused_by_name(kind) -> None:
    check_ranges(kind())
    tried = 0
    for flag, usual in values_of(kind()):
        for allowed in flag.ranges:
            assert allowed.allows(usual), flag.name
            wrong = [value for value in (-1, 0, 2, float("nan")) if not allowed.allows(value)]
            assert wrong and wrong[-1] != wrong[-1], f"--{flag.name} nan would pass"
            for value in wrong:
                config = kind()
                setattr(getattr(config, flag.section), flag.name, value)
                text = allowed.text.split("(")[0] if value == value else "be (a finite number|at|above|between|in|from)"
                with pytest.raises(UserError, match=f"--{flag.name} {value}: must {text}"):
                    check_ranges(config)
                tried += 1
    assert tried > 40


def test_what_may_change_when_a_run_goes_on() -> None:
    state = run_state(from_dict({}))
    assert {name for name, values in state.items() if not values} == {"ckpt", "eval", "log"}
    assert list(state["parallel"]) == ["mixed_precision"] and list(state["ray"]) == [
        "max_staleness",
        "partial_rollout_tokens",
    ]
    assert "eval_datasets" not in state["data"] and "template_check" not in state["template"]
    assert to_dict(from_dict({}))["train"].keys() - state["train"].keys() == {"max_skipped_steps"}
