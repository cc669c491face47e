"""Every value of every setting that has choices trains an episode. The choices are read from the settings themselves, so that a new one
is tried without a line here; as many go into one run as go together."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rlvr.api import train
from rlvr.config import Config, SFTConfig, base_config, by_section, parse_sft
from rlvr.config.catalog import catalog
from rlvr.core.advantages import estimator_names
from rlvr.errors import UserError
from rlvr.models.reward_model import RewardModel
from rlvr.run.supervised import train_sft
from rlvr.validate.ppo import check_config
from rlvr.validate.supervised import check_sft

pytestmark = pytest.mark.usefixtures("process")

# What a choice asks for besides.
LOSS_KL = {"kl_in": "loss"}
MASKED = {"mismatch_correction": "mask"}
NEURAL = {"rm_checkpoint_path": "@rm"}
WITH: dict[tuple[str, Any], dict[str, Any]] = {
    ("kl_estimator", "k2"): LOSS_KL,
    ("kl_estimator", "k3"): LOSS_KL,
    ("kl_estimator", "k3_weighted"): LOSS_KL,
    **{("curriculum", kind): {"curriculum_by": "problem"} for kind in ("target_success", "learning_progress", "zone")},
    **{("mismatch_level", level): MASKED for level in ("token", "sequence", "geometric", "arithmetic")},
    ("reward_normalisation", "running"): NEURAL,
    ("reward_normalisation", "fixed"): NEURAL,
    ("reward_normalisation", "off"): NEURAL,
    ("rl_env_type", "multi_objective"): {"rl_reward_weights": '{"gsm8k_reward_fn": 1.0}'},
    ("reward_aggregation", "normalise_then_sum"): {"estimator": "grpo"},
    ("reward_aggregation", "sum_then_normalise"): {"estimator": "grpo"},
    ("policy_loss", "sapo"): {"estimator": "grpo"},
    ("policy_loss", "cispo"): {"estimator": "grpo"},
    ("ratio", "sequence"): {"estimator": "grpo", "loss_reduction": "sequence_mean"},
}
# Not on a CPU in one process, and what says so.
ELSEWHERE: dict[tuple[str, Any], str] = {
    ("plugin", "gemini_auto"): "needs a CUDA GPU",
    ("plugin", "3d"): "tensor and pipeline parallelism",
    ("engine", "vllm"): "vllm",
    ("engine", "replay"): "response",  # the data has none
    ("mixed_precision", "fp16"): "fp16",
    **{("zero_stage", stage): "belongs to --plugin 3d" for stage in (1, 2)},
    **{("sp_mode", mode): "belongs to --plugin 3d" for mode in ("ring", "all_to_all", "ring_attn")},
}
OF_3D = {("zero_stage", 0), ("sp_mode", "split_gather")}
"""Defaults of what only --plugin 3d reads."""
PRECISION = {"gemini": "bf16", "colossalai_gemini": "bf16"}
OWN_VALUES = {"estimator": estimator_names()}
"""Settings whose choices are registered, and not written down."""


def choices_of(kind: type) -> list[tuple[str, Any]]:
    found = []
    for section in catalog(kind):
        for flag in section.flags:
            values = OWN_VALUES.get(flag.name, flag.choices)
            found += [
                (flag.name, int(v) if flag.name == "zero_stage" else v)
                for v in values
                if v not in ("True", "False", "None")
            ]
    return found


@cache
def small() -> dict[str, Any]:
    return {
        "pretrain": "@model", "prompt_dataset": ["@data"], "conversation_template_config": "tiny", "reward_functions": ["gsm8k_reward_fn"],
        "num_episodes": 1, "num_collect_steps": 1, "num_update_steps": 1, "experience_batch_size": 4, "train_batch_size": 4,
        "num_generations": 2, "max_new_tokens": 4, "progress": False,
    }  # fmt: skip


def goes(settings: dict[str, Any]) -> bool:
    """Whether training takes these settings together."""
    try:
        check_config(base_config(by_section({**small(), **settings, "save_path": "x"})))
    except UserError:
        return False
    return True


def packed() -> list[dict[str, Any]]:
    """Few sets of settings in which every choice comes once at least."""
    runs: list[dict[str, Any]] = []
    for name, value in choices_of(Config):
        if (name, value) in ELSEWHERE or (name, value) in OF_3D:
            continue
        wanted = {name: value, **WITH.get((name, value), {})}
        if name == "plugin":
            wanted["mixed_precision"] = PRECISION.get(value, "fp32")
        for run in runs:
            if all(run.get(key, held) == held for key, held in wanted.items()) and goes({**run, **wanted}):
                run |= wanted
                break
        else:
            runs.append(wanted)
    return runs


@pytest.fixture(scope="module")
def files(tmp_path_factory, micro_model) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("choices")
    RewardModel.from_base(micro_model, seed=2).save_pretrained(folder / "rm")
    (folder / "rm" / "reward_statistics.json").write_text('{"mean": 0.0, "std": 1.0}')
    lines = [{"question": f"{a}+{a}=?", "answer": str(2 * a)} for a in range(10, 20)]
    (folder / "data.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return {"@model": micro_model, "@rm": str(folder / "rm"), "@data": str(folder / "data.jsonl")}


def filled(settings: dict[str, Any], files: dict[str, str]) -> dict[str, Any]:
    text = json.dumps(settings)
    for name, path in files.items():
        text = text.replace(f'"{name}"', json.dumps(path))
    return json.loads(text)


def test_every_choice_trains_an_episode(files, tmp_path) -> None:
    runs, wrong = packed(), {}
    seen = {(name, value) for run in runs for name, value in run.items() if not isinstance(value, list)}
    missing = set(choices_of(Config)) - seen - set(ELSEWHERE) - OF_3D
    assert not missing
    for number, run in enumerate(runs):
        folder = tmp_path / str(number)
        try:
            train(**filled({**small(), **run, "save_path": str(folder)}, files))
        except UserError as error:
            wrong[str(run)] = str(error)
            continue
        (row,) = (json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines())
        assert row["episode"] == 4 and (folder / "actor" / "modeling").is_dir(), run
    assert not wrong


@pytest.mark.parametrize(("name", "value"), ELSEWHERE, ids=[f"{n} {v}" for n, v in ELSEWHERE])
def test_a_choice_that_is_not_for_this_machine_says_so(name: str, value: Any, files, tmp_path) -> None:
    assert (name, value) in choices_of(Config)
    with pytest.raises(UserError, match=ELSEWHERE[name, value]):
        train(**filled({**small(), name: value, "save_path": str(tmp_path / "run")}, files))


def flags_of(settings: dict[str, Any]) -> list[str]:
    """As they are typed."""
    words: list[str] = []
    for name, value in settings.items():
        if isinstance(value, bool):
            words.append(f"--{name}" if value else f"--no_{name}")
        else:
            words += [f"--{name}", *map(str, value if isinstance(value, list) else [value])]
    return words


def test_every_choice_of_fine_tuning_trains_a_step(files, tmp_path) -> None:
    base = {
        "pretrain": "@model", "dataset": ["@data"], "conversation_template_config": "tiny", "max_steps": 1, "train_batch_size": 2,
        "progress": False,
    }  # fmt: skip
    names = sorted(
        {name for name, _ in choices_of(SFTConfig)} - {"plugin", "zero_stage", "sp_mode"}
    )  # plugins: as above
    values = {name: [v for n, v in choices_of(SFTConfig) if n == name and (n, v) not in ELSEWHERE] for name in names}
    for number in range(max(map(len, values.values()))):
        run = {name: of[number % len(of)] for name, of in values.items()}
        config = parse_sft(flags_of(filled({**base, **run, "save_path": str(tmp_path / str(number))}, files)))
        check_sft(config)
        assert Path(train_sft(config), "actor", "modeling").is_dir()
