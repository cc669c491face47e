"""The README's code runs, and its commands are commands."""

import re
import shlex
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
COMMANDS = [
    line.strip()
    for line in README.replace("\\\n", " ").splitlines()
    if re.match(r" {4}(uv run|rlvr) ", line) and "pytest" not in line
]


@pytest.mark.parametrize("code", BLOCKS, ids=lambda code: code.strip().splitlines()[0][:40])
def test_the_code_runs(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it stands, but for training, whose settings are checked and which is not begun."""
    import rewards.registry
    import rlvr
    from rlvr.validate import check_config

    monkeypatch.setattr(rewards.registry, "_registered", dict(rewards.registry._registered))
    trained = []
    monkeypatch.setattr(rlvr, "train", lambda config: trained.append(check_config(config)), raising=False)
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
    assert len(trained) == code.count("rlvr.train(")


@pytest.mark.parametrize("line", COMMANDS)
def test_the_flags_of_the_commands_exist(line: str) -> None:
    from rlvr.config import parse, parse_reward_training, parse_sft

    words = shlex.split(line.split("#")[0])
    if "scripts/train_rlvr.py" in words:
        config = parse([w for w in words[words.index("scripts/train_rlvr.py") + 1 :]])
        assert config.reward.reward_functions
        return
    for script, reader in (("scripts/train_sft.py", parse_sft), ("scripts/train_rm.py", parse_reward_training)):
        if script in words:
            reader(words[words.index(script) + 1 :])
            return
    from rlvr.tools.commands import COMMANDS

    assert words[words.index("rlvr") + 1] in COMMANDS


REWARD_MODELS = (Path(__file__).parents[1] / "docs" / "reward_models.md").read_text()


@pytest.mark.parametrize("line", re.findall(r"^    (rlvr train .*)$", REWARD_MODELS, re.MULTILINE))
def test_the_commands_about_reward_models_can_be_given(line: str) -> None:
    from rlvr.config import parse
    from rlvr.validate import check_config

    check_config(parse(shlex.split(line)[2:]))
