"""The README's code runs. (Its commands: tests/examples/test_page_commands.py.)"""

import re
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("code", BLOCKS, ids=lambda code: code.strip().splitlines()[0][:40])
def test_the_code_runs(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it stands, but for training, whose settings are checked and which is not begun."""
    import rewards.registry
    import rlvr
    from rlvr.validate.ppo import check_config

    monkeypatch.setattr(rewards.registry, "_registered", dict(rewards.registry._registered))
    trained = []
    monkeypatch.setattr(rlvr, "train", lambda config: trained.append(check_config(config)), raising=False)
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
    assert len(trained) == code.count("rlvr.train(")
