"""A damaged checkpoint is passed over or refused, what a kill leaves is cleared up, and a whole one always remains."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from rlvr.checkpoint import storage as checkpoint
from rlvr.checkpoint.checkpointer import FORMAT, check_run
from rlvr.checkpoint.storage import clear_up, damage, newest_whole, verify
from rlvr.config import CheckpointConfig
from rlvr.errors import UserError
from rlvr.run.folder import open_folder


def write(folder: Path, episode: int, text: str = "weights", safe_point: int = 0) -> Path:
    target = folder / "checkpoints" / checkpoint.checkpoint_name(episode, safe_point)
    with checkpoint.atomic_folder(target) as draft:
        (draft / "actor").mkdir()
        (draft / "actor" / "notes.txt").write_text(text)
        (draft / "state.json").write_text(f"{episode}")
    return target


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGE = {
    "state.json has 0 bytes instead of 1": lambda c: cut(c / "state.json"),
    "actor/notes.txt has changed": lambda c: flip(c / "actor" / "notes.txt"),
    "actor/notes.txt is missing": lambda c: (c / "actor" / "notes.txt").unlink(),
    "manifest.json is missing": lambda c: (c / "manifest.json").unlink(),
    "manifest.json can't be read": lambda c: cut(c / "manifest.json"),
    "manifest.json can't be read ": lambda c: (c / "manifest.json").write_text('{"state.json": 3}'),
    "manifest.json can't be read  ": lambda c: (c / "manifest.json").write_text("[]"),
}


@pytest.mark.parametrize("message", DAMAGE)
def test_a_damaged_newest_one_is_passed_over_with_a_warning(message, tmp_path) -> None:
    whole, broken = write(tmp_path, 1), write(tmp_path, 2)
    DAMAGE[message](broken)
    choice = newest_whole(tmp_path)
    assert choice.checkpoint == whole
    assert choice.warnings == (f"the checkpoint {broken} is damaged: {message.strip()}; going on from {whole.name}",)
    with pytest.raises(UserError, match="go on from step-000001, which is whole"):
        verify(broken)
    verify(whole)


@pytest.mark.parametrize("place", ["weights", "masters", "moments"])
def test_one_with_numbers_that_are_not_finite_is_passed_over_or_refused(place, tmp_path) -> None:
    def filled(episode: int, broken: str) -> Path:
        numbers = {name: torch.tensor([1.0, float("nan") if name == broken else 2.0]) for name in PLACES}
        target = tmp_path / "checkpoints" / checkpoint.checkpoint_name(episode)
        with checkpoint.atomic_folder(target) as draft:
            (draft / "actor" / "modeling").mkdir(parents=True)
            save_file({"w": numbers["weights"]}, draft / "actor" / "modeling" / "model.safetensors")
            moments = {"state": {0: {"exp_avg": numbers["moments"]}}}
            training = {"optimizer": moments, "masters": [numbers["masters"]], "lr_scheduler": {}}
            checkpoint.save_tensors(training, draft / "actor" / "training.safetensors")
        return target

    whole, broken = filled(1, ""), filled(2, place)
    choice = newest_whole(tmp_path)
    assert choice.checkpoint == whole
    assert f"{PLACES[place]} holds numbers that are not finite; going on from step-000001" in choice.warnings[0]
    with pytest.raises(UserError, match="not finite; go on from step-000001"):
        verify(broken)


PLACES = {
    "weights": "in actor/modeling/model.safetensors, w",
    "masters": "in actor/training.safetensors, masters/0",
    "moments": "in actor/training.safetensors, optimizer/state/0/exp_avg",
}


def test_resuming_a_run_says_so_and_goes_on(tmp_path) -> None:
    whole, broken = write(tmp_path, 1), write(tmp_path, 2)
    flip(broken / "state.json")
    said: list[str] = []
    opened = open_folder(CheckpointConfig(save_path=str(tmp_path), resume=True), True, said.append)
    opened.close()
    assert opened.checkpoint == whole and len(said) == 1 and "state.json has changed" in said[0]


def test_none_whole_is_refused_with_what_is_wrong_with_each(tmp_path) -> None:
    for episode in (1, 2):
        flip(write(tmp_path, episode) / "state.json")
    with pytest.raises(UserError, match=r"(?s)step-000002 is damaged.*step-000001 is damaged.*no other is whole"):
        newest_whole(tmp_path)
    assert newest_whole(tmp_path / "nothing").checkpoint is None


def test_the_one_just_written_stays_beside_a_damaged_later_one(tmp_path) -> None:
    """A run that goes on before a damaged checkpoint reaches its place only later."""
    write(tmp_path, 1)
    later = write(tmp_path, 3, safe_point=5)
    flip(later / "state.json")
    written = write(tmp_path, 2)
    checkpoint.prune(tmp_path, 1, written)
    assert newest_whole(tmp_path).checkpoint == written
    written = write(tmp_path, 4)
    checkpoint.prune(tmp_path, 1, written)
    assert checkpoint.list_checkpoints(tmp_path) == [written]


def test_a_cut_checkpoint_is_none_of_those_kept(tmp_path) -> None:
    first, broken, written = (write(tmp_path, n) for n in (1, 2, 3))
    cut(broken / "state.json")
    checkpoint.prune(tmp_path, 2, written)
    assert checkpoint.list_checkpoints(tmp_path) == [first, written]


def test_what_a_kill_leaves_is_cleared_up(tmp_path) -> None:
    kept, replaced = write(tmp_path, 1), write(tmp_path, 2)
    replaced.rename(replaced.with_name(f".old-{replaced.name}"))  # killed between the two renames
    shutil.copytree(kept, kept.with_name(f".old-{kept.name}"))  # killed after them
    (tmp_path / "checkpoints" / ".writing-step-000003").mkdir()
    (tmp_path / ".writing-actor").mkdir()
    clear_up(tmp_path)
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == [kept.name, replaced.name]
    assert damage(replaced) is None and not list(tmp_path.glob(".*"))


def test_a_replacement_is_whole_and_alone_or_leaves_the_older(tmp_path, monkeypatch) -> None:
    folder = write(tmp_path, 1, "older").parent
    target = write(tmp_path, 1, "newer")
    assert list(folder.iterdir()) == [target] and (target / "actor" / "notes.txt").read_text() == "newer"

    rename = Path.rename

    def refused(self: Path, to: Path) -> Path:
        if self.name.startswith(".writing"):
            raise OSError("no rename here")
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", refused)
    with pytest.raises(UserError, match="no rename here"):
        write(tmp_path, 1, "never")
    assert list(folder.iterdir()) == [target] and (target / "actor" / "notes.txt").read_text() == "newer"
    verify(target)


def test_an_empty_manifest_is_no_whole_checkpoint(tmp_path) -> None:
    whole, empty = write(tmp_path, 1), write(tmp_path, 2)
    (empty / "manifest.json").write_text("{}")
    choice = newest_whole(tmp_path)
    assert choice.checkpoint == whole and "names no file" in choice.warnings[0]


def test_of_a_checkpoint_that_lies_elsewhere_only_the_link_goes(tmp_path) -> None:
    elsewhere = tmp_path / "elsewhere"
    old, newest = write(tmp_path, 1), write(tmp_path, 2)
    old.rename(elsewhere)
    old.symlink_to(elsewhere)
    checkpoint.prune(tmp_path, 1, newest)
    assert checkpoint.list_checkpoints(tmp_path) == [newest] and (elsewhere / "state.json").is_file()
    link = newest.parent / f"{checkpoint.OLD}step-000002"
    link.symlink_to(elsewhere)
    checkpoint.clear_up(tmp_path)
    assert not link.is_symlink() and (elsewhere / "state.json").is_file()


def test_code_may_change_and_older_checkpoints_do_not_know_it() -> None:
    about: dict[str, Any] = {"format": FORMAT, "run": {"settings": {"train": {"lr": 1}}}}
    now = {"settings": {"train": {"lr": 1}}, "code": {"mine.py:f": "1", "g": "1"}}
    place = Path("run/checkpoints/step-000001")
    assert check_run(place, about, now) == ()
    about["run"]["code"] = {"mine.py:f": "0", "g": "1"}
    assert check_run(place, about, now) == ("mine.py:f",)
    with pytest.raises(UserError, match="settings.train.lr: saved 1, given 2.*Resume with"):
        check_run(place, about, now | {"settings": {"train": {"lr": 2}}})
