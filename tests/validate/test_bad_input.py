"""Every mistake a user can make gives exit status 2 and one message that says what was given, what is allowed and what to
do; there is no traceback and nothing that was there is lost."""

import json
from pathlib import Path

import pytest

from rlvr.cli.main import main

pytestmark = pytest.mark.usefixtures("process", "tiny_cache")
REWARD = ["--reward_functions", "gsm8k_reward_fn"]
SHORT = ["--num_episodes", "1", "--experience_batch_size", "8", "--train_batch_size", "4"]
FEW = ["--eval_samples", "4"]  # only where there is something to evaluate on


def fails(capsys, tmp_path: Path, *flags: str, reward: bool = True) -> str:
    """Run `rlvr train` with these flags; returns the message after checking how it was given."""
    save = [] if "--save_path" in flags else ["--save_path", str(tmp_path / "run")]
    few = [] if "--prompt_dataset" in flags else FEW
    try:
        status = main(["train", *(REWARD if reward else []), *SHORT, *few, *save, *flags])
    except SystemExit as stop:  # the argument parser's own messages
        status = stop.code
    captured = capsys.readouterr()
    assert status == 2, captured.out
    assert "Traceback" not in captured.err + captured.out
    assert captured.err.count("error:") <= 1
    return " ".join((captured.err + captured.out).split())


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def rows(path: Path, *items: dict) -> str:
    return write(path, "\n".join(json.dumps(item) for item in items))


GOOD_ROWS = [{"question": f"{a}+{a}", "answer": str(2 * a)} for a in range(10, 30)]


def test_no_reward_function(capsys, tmp_path) -> None:
    message = fails(capsys, tmp_path, reward=False)
    assert "--reward_functions" in message and "gsm8k_reward_fn" in message


def test_unknown_reward_function_names_the_nearest(capsys, tmp_path) -> None:
    message = fails(capsys, tmp_path, "--reward_functions", "gsm8k_rewad_fn", reward=False)
    assert "gsm8k_rewad_fn" in message and "gsm8k_reward_fn" in message and "math_competition_reward_fn" in message


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import does_not_exist_anywhere", "does_not_exist_anywhere"),
        ("def f(:\n", "invalid syntax"),
        ("x = 1", "plugin.py"),
    ],
)
def test_plugin_file_that_can_not_be_used(capsys, tmp_path, code, said) -> None:
    path = write(tmp_path / "plugin.py", code)
    message = fails(capsys, tmp_path, "--reward_plugins", path)
    assert "plugin.py" in message and said in message


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return 'high'", "str"),
        ("return float('nan')", "nan"),
        ("return float('inf')", "inf"),
        ("return [1.0]", "list"),
    ],
)
def test_plugin_that_returns_no_score_is_named(capsys, tmp_path, body, said) -> None:
    path = write(
        tmp_path / "odd.py",
        f"from rewards import reward_fn\n\n@reward_fn('odd_{said}')\ndef odd(response):\n    {body}\n",
    )
    message = fails(capsys, tmp_path, "--reward_functions", f"{path}:odd", reward=False)
    assert "odd" in message and said in message


def test_plugin_that_returns_too_few_scores_is_named(capsys, tmp_path) -> None:
    path = write(
        tmp_path / "few.py",
        "from rewards import reward_fn\n\n@reward_fn('few')\ndef few(responses):\n    return [1.0]\n",
    )
    message = fails(capsys, tmp_path, "--reward_functions", f"{path}:few", reward=False)
    assert "few" in message and "1" in message and "8" in message


def test_reward_weights_must_match(capsys, tmp_path) -> None:
    assert "--reward_weights has 2 numbers for 1" in fails(capsys, tmp_path, "--reward_weights", "1", "2")


def test_reward_options_must_be_json(capsys, tmp_path) -> None:
    assert "--reward_options" in fails(capsys, tmp_path, "--reward_options", "{nope")
    message = fails(capsys, tmp_path, "--reward_options", '{"gsm8k_reward_fn": {"bonus": 1}}')
    assert "bonus" in message and "gsm8k_reward_fn" in message


PAIRS = ("--num_generations", "2")
JUDGED = ("--rl_env_type", "preference_comparison", *PAIRS)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--rm_weight", "2"), "--rm_weight 2.0 has no effect: it is for a neural reward model, and there is none"),
        (
            ("--reward_normalisation", "running"),
            "--reward_normalisation running has no effect: it is for a neural reward model",
        ),
        (("--rm_checkpoint_path", "rm", "--rm_weight", "nan"), "--rm_weight nan: must be a finite number"),
        (("--rm_checkpoint_path", "./rm"), "--rm_checkpoint_path ./rm: there is no such folder"),
        (("--rm_checkpoint_path", "tiny"), "no trained sequence classifier"),
        (
            ("--rm_checkpoint_path", "rm", "--no_neural_reward_model"),
            "--no_neural_reward_model and --rm_checkpoint_path",
        ),
        (
            ("--rm_checkpoint_path", "rm", "--reward_normalisation", "running", "--dynamic_sampling", *PAIRS),
            "needs all processes to score equally often",
        ),
        (
            ("--rm_checkpoint_path", "rm", "--reward_normalisation", "running", "--estimator", "remax"),
            "--estimator remax compares with it",
        ),
        (("--reward_weights", "0"), "nothing has a weight, so nothing is paid"),
        (("--rl_reward_weights", '{"a": 1}'), "without --rl_multi_objective"),
        (("--rl_multi_objective", "--rl_reward_weights", "{"), "--rl_reward_weights is not valid JSON"),
        (("--rl_multi_objective", "--rl_reward_weights", '{"reward_model": 1}'), "give --rm_checkpoint_path"),
        (("--rl_multi_objective", "--rl_reward_weights", '{"nope": 1}'), "no score is called 'nope'"),
        (("--rl_multi_objective",), "there is one: give more --reward_functions"),
        (
            ("--rl_multi_objective", "--rl_reward_weights", '{"gsm8k_reward_fn": 1}', "--reward_weights", "2"),
            "has no effect with several objectives",
        ),
        (("--rl_env_type", "roulette"), "roulette"),
        (("--rl_env_config", '{"tie_margin": 1}'), "without --rl_env_type"),
        ((*JUDGED, "--rl_env_config", "{"), "--rl_env_config is not valid JSON"),
        ((*JUDGED, "--rl_env_config", '{"judges": "x"}'), "has no setting 'judges'; its settings: judge, tie_margin"),
        ((*JUDGED, "--rl_env_config", '{"judge": "reward_model"}'), "give --rm_checkpoint_path"),
        ((*JUDGED, "--rl_env_config", '{"judge": "nope"}'), "no score is called 'nope'"),
        (("--rl_env_type", "preference_comparison"), "--num_generations is 1: give at least 2"),
        ((*JUDGED, "--estimator", "remax"), "nothing to compare with"),
        (("--critic_checkpoint_path", "tests"), "holds no critic"),
    ],
)
def test_rewards_that_can_not_be_paid(capsys, tmp_path, flags, said) -> None:
    assert said in fails(capsys, tmp_path, *flags)


def test_neither_functions_nor_a_reward_model(capsys, tmp_path) -> None:
    assert "--rm_checkpoint_path" in fails(capsys, tmp_path, reward=False)
    assert "--rm_checkpoint_path" not in fails(capsys, tmp_path, "--no_neural_reward_model", reward=False)


def template(path: Path, **changes) -> str:
    from rlvr.prompting.template import template_dir

    content = json.loads((template_dir() / "tiny.json").read_text())
    for key, value in changes.items():
        content.pop(key, None)
        if value is not None:
            content[key] = value
    return write(path, json.dumps(content))


def test_template_mistakes(capsys, tmp_path) -> None:
    path = tmp_path / "t.json"
    flag = "--conversation_template_config"
    assert "stop_idz" in fails(capsys, tmp_path, flag, template(path, stop_idz=[1]))
    assert "99999" in fails(capsys, tmp_path, flag, template(path, stop_ids=[99999]))
    assert "<|nope|>" in fails(capsys, tmp_path, flag, template(path, stop_ids=["<|nope|>"]))
    assert "qwen2.5" in fails(capsys, tmp_path, flag, "qwen2.6")
    assert "t.json" in fails(capsys, tmp_path, flag, write(path, "{"))


def test_dataset_mistakes(capsys, tmp_path) -> None:
    flag, path = "--prompt_dataset", tmp_path / "d.jsonl"
    assert "nowhere.jsonl" in fails(capsys, tmp_path, flag, str(tmp_path / "nowhere.jsonl"))
    assert "d.jsonl" in fails(capsys, tmp_path, flag, write(path, ""))
    message = fails(capsys, tmp_path, flag, rows(path, {"foo": "1+1", "answer": "2"}))
    assert "foo" in message and "question" in message
    message = fails(capsys, tmp_path, flag, rows(path, {"question": "1+1", "result": "2"}))
    assert "result" in message and "answer" in message
    assert "d.jsonl:2" in fails(
        capsys, tmp_path, flag, rows(path, {"question": "1+1", "answer": "2"}, {"question": 3, "answer": "2"})
    )
    assert "d.jsonl:2" in fails(capsys, tmp_path, flag, write(path, '{"question": "1+1", "answer": "2"}\n{"quest'))


def test_gold_answers_that_can_not_be_parsed(capsys, tmp_path) -> None:
    flag, path = "--prompt_dataset", tmp_path / "d.jsonl"
    bad = [{"question": "1+1", "answer": ""}, {"question": "1+2", "answer": "   "}]
    message = fails(capsys, tmp_path, flag, rows(path, *bad))
    assert "d.jsonl:1" in message and "2 of 2" in message
    assert (
        main(["train", *REWARD, *SHORT, "--save_path", str(tmp_path / "ok"), flag, rows(path, *GOOD_ROWS, *bad)]) == 0
    )
    listed = " ".join(capsys.readouterr().out.split())
    assert "2 of 22 right answers can't be parsed" in listed and "left out" in listed


def test_prompts_that_are_all_too_long(capsys, tmp_path) -> None:
    path = rows(tmp_path / "d.jsonl", {"question": "1+1" * 200, "answer": "2"})
    message = fails(capsys, tmp_path, "--prompt_dataset", path)
    assert "--max_length" in message or "longer" in message or "tokens" in message


def test_batch_sizes_that_do_not_divide(capsys, tmp_path) -> None:
    assert "multiple" in fails(capsys, tmp_path, "--train_batch_size", "3")
    assert "multiple of 3" in fails(capsys, tmp_path, "--num_generations", "3")


@pytest.mark.parametrize("seconds", ["0", "-3", "nan", "1e12"])
def test_a_patience_that_is_none(capsys, tmp_path, seconds) -> None:
    assert "--dist_timeout" in fails(capsys, tmp_path, "--dist_timeout", seconds)


def test_precisions_that_a_plugin_does_not_have(capsys, tmp_path) -> None:
    message = fails(capsys, tmp_path, "--plugin", "gemini", "--mixed_precision", "fp32")
    assert "gemini runs in bf16 or fp16, not fp32: give --mixed_precision bf16" in message
    assert "fp16" in fails(capsys, tmp_path, "--plugin", "fsdp", "--mixed_precision", "fp16")


@pytest.mark.parametrize("plugin", ["gemini_auto", "3d"])
def test_plugins_that_need_more_than_there_is(capsys, tmp_path, plugin) -> None:
    message = fails(capsys, tmp_path, "--plugin", plugin)
    assert plugin in message and "ddp" in message


def test_unknown_plugin(capsys, tmp_path) -> None:
    message = fails(capsys, tmp_path, "--plugin", "zero7")
    assert "zero7" in message and "zero2" in message


@pytest.mark.parametrize(
    "flags",
    [
        ("--tp", "2"),
        ("--pp", "2"),
        ("--sp", "2"),
        ("--zero_stage", "1"),
        ("--enable_sequence_parallelism",),
        ("--sp_mode", "ring"),
        ("--no_neural_reward_model", "--rm_checkpoint_path", "rm"),
        ("--zero_cpu_offload",),
        ("--mixed_precision", "fp16"),
        ("--lora_config", "lora.json"),
        ("--disable_loss_mask",),
        ("--ptx_coef", "0.5"),
        ("--temperature", "0"),
        ("--gamma", "1.5"),
        ("--max_new_tokens", "0"),
        ("--max_new_tokens", "4096"),
        ("--num_episodes", "0"),
        ("--lr", "-1"),
        ("--dual_clip", "0.5"),
        ("--resume",),
    ],
)
def test_settings_that_can_not_work_say_why(capsys, tmp_path, flags) -> None:
    if flags == ("--resume",):
        status = main(["train", *REWARD, "--resume"])
        assert status == 2 and "--save_path" in capsys.readouterr().err
        return
    assert flags[0] in fails(capsys, tmp_path, *flags)


def test_unknown_flag_and_config_keys(capsys, tmp_path) -> None:
    assert "--lrr" in fails(capsys, tmp_path, "--lrr", "1")
    assert "unknown setting 'train.lrr'" in fails(
        capsys, tmp_path, "--config", write(tmp_path / "c.yaml", "train:\n  lrr: 1\n")
    )
    assert "none.yaml" in fails(capsys, tmp_path, "--config", str(tmp_path / "none.yaml"))
    assert "train.lr" in fails(capsys, tmp_path, "--config", write(tmp_path / "c.yaml", "train:\n  lr: fast\n"))


def test_model_that_is_not_there(capsys, tmp_path) -> None:
    message = fails(capsys, tmp_path, "--pretrain", str(tmp_path / "no-model"))
    assert "no-model" in message and "tiny" in message


def test_folder_that_can_not_be_written(capsys, tmp_path) -> None:
    write(tmp_path / "file", "")
    assert "can't be written" in fails(capsys, tmp_path, "--save_path", str(tmp_path / "file" / "run"))


def test_optional_packages_that_are_missing(capsys, tmp_path, monkeypatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "wandb", None)
    assert "pip install 'rlvr[wandb]'" in fails(capsys, tmp_path, "--use_wandb")


def test_replay_without_responses(capsys, tmp_path) -> None:
    path = rows(tmp_path / "d.jsonl", *GOOD_ROWS)
    assert "response" in fails(capsys, tmp_path, "--prompt_dataset", path, "--engine", "replay")
