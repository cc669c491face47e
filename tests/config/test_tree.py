"""YAML of strangers: settings as plain values of bounded size."""

import pytest

from rlvr.config import base_config, from_dict, sft_config
from rlvr.config.files import parse_yaml
from rlvr.config.tree import load_yaml
from rlvr.errors import UserError

BOMB = "a: &a [x, x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [*{chr(97 + i)}, *{chr(97 + i)}]\n" for i in range(24)
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [(BOMB, "more than 100,000 values"), ("a: &a [*a]", "more than 100,000 values"), ("[" * 3000, "too deeply"), ("a: 2020-13-45", "month")],
)  # fmt: skip
def test_yaml_that_would_hang_is_refused(text, reason, tmp_path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=f"--config .*not valid YAML.*{reason}"):
        load_yaml(str(path))


def test_aliases_may_stand() -> None:
    assert parse_yaml("a: &a {x: 1}\nb: {<<: *a, y: 2}") == {"a": {"x": 1}, "b": {"x": 1, "y": 2}}
    assert parse_yaml("") is None


@pytest.mark.parametrize("make", [from_dict, base_config])
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"lr": 1e-5}, r"unknown section 'lr': it belongs into the section 'train': write `train: {lr: ...}`"),
        ({"learning_rate": 1e-5}, r"unknown section 'learning_rate': it belongs .* write `train: {lr: ...}`"),
        ({"train": {"gamma": 1.0}}, r"unknown setting 'train.gamma': it belongs into the section 'algo'"),
        ({"train": {"learnin_rate": 1.0, "lrr": 1}}, r"unknown setting 'train.lrr'.* Did you mean 'lr'\? Known here: .*, lr, "),
        ({"trian": {"lr": 1}}, r"unknown section 'trian'\. Did you mean 'train'\? Known here: model, data"),
        ({"train": [1]}, "train = .1.: Input should be a dictionary|section 'train' must be a mapping of settings, not list"),
        ({"train": {"lr": "fast"}}, "train.lr = 'fast': Input should be a valid number"),
    ],
)  # fmt: skip
def test_a_misplaced_key_is_told_its_place(make, given, said) -> None:
    with pytest.raises(UserError, match=f"^config: .*{said}"):
        make(given)


def test_one_value_may_stand_for_a_list() -> None:
    config = base_config(
        {"reward": {"reward_functions": "correctness", "reward_weights": 2}, "data": {"prompt_dataset": "builtin"}}
    )
    assert (config.reward.reward_functions, config.reward.reward_weights) == (["correctness"], [2.0])
    assert sft_config({"data": {"dataset": "a.jsonl"}}).data.dataset == ["a.jsonl"]
