"""A run's folder stands for the model that it trained."""

from pathlib import Path

import pytest

from rlvr.models.loading import resolve_source
from rlvr.models.saved import trained_actor, trained_model


@pytest.mark.parametrize(
    ("folders", "model", "actor"),
    [
        (["actor/modeling", "actor/adapter", "critic/modeling"], "actor/modeling", True),
        (["actor/adapter", "critic/adapter"], "actor/adapter", True),
        (["reward_model/modeling"], "reward_model/modeling", False),
        (["modeling", "adapter"], "modeling", True),  # the folder of a role
        (["checkpoints/step-000001/actor/modeling"], None, False),
        ([], None, False),
    ],
)
def test_what_a_folder_holds(folders: list[str], model: str | None, actor: bool, tmp_path: Path) -> None:
    run = tmp_path / "actor"  # as the folder of a role is called; a run's may be
    for folder in folders:
        (run / folder).mkdir(parents=True)
    want = None if model is None else run / model
    assert trained_model(run) == want and trained_actor(run) == (want if actor else None)
    assert resolve_source(str(run)).path == str(want if actor and want else run)


def test_a_reward_models_folder_is_no_actor(tmp_path: Path) -> None:
    (tmp_path / "reward_model" / "modeling").mkdir(parents=True)
    assert trained_model(tmp_path / "reward_model") == tmp_path / "reward_model" / "modeling"
    assert trained_actor(tmp_path / "reward_model") is None
    assert resolve_source("nobody/nothing").path == "nobody/nothing"
