"""A30: whoever is stopped anywhere and goes on ends where he would have ended anyway, bit for bit."""

import errno
import gc
import json
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from tiny_models import tiny_model
from trainer_harness import LetterTokenizer, StopAfter, loader, make_trainer, share_of_f, weights

from rlvr.checkpoint import storage as checkpoint
from rlvr.checkpoint import storage as checkpoint_check
from rlvr.errors import UserError
from rlvr.scorers.rules import RLVRRewardModel
from rlvr.tracking.tracker import JsonlSink, Tracker
from rlvr.trainer.base import Interrupted

pytestmark = pytest.mark.usefixtures("process")
PLAN = (4, 2, 2)  # episodes, collect steps, passes: 4 optimizer steps of 16 in each pass


def rows(folder: Path) -> list[dict]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if not k.startswith(("time/", "memory/"))} for line in lines]


@pytest.fixture(scope="module")
def whole(process, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    trainer = make_trainer(folder)
    trainer.fit(*PLAN, loader())
    return weights(trainer), rows(folder)


@pytest.mark.parametrize("stop", [1, 2, 3, 5, 10, 11, 13, 29])
def test_a30_a_stopped_run_goes_on_as_if_nothing_had_happened(stop, whole, tmp_path) -> None:
    with pytest.raises(Interrupted) as interrupted:
        make_trainer(tmp_path, callbacks=[StopAfter(stop)]).fit(*PLAN, loader())
    assert interrupted.value.checkpoint is not None
    torch.rand(5)
    again = make_trainer(tmp_path)
    again.load_checkpoint(interrupted.value.checkpoint)
    again.fit(*PLAN, loader())
    assert torch.equal(weights(again), whole[0])
    assert rows(tmp_path) == whole[1]


def test_a30_random_numbers_go_on_where_they_were(tmp_path) -> None:
    """Responses have seeds of their own; a user's callback, and dropout, draw from the process's state."""
    torch.manual_seed(7)
    make_trainer(tmp_path, save_interval=1).fit(1, 1, 1, loader())
    (saved,) = checkpoint.list_checkpoints(tmp_path)
    want = torch.rand(5)
    again = make_trainer(tmp_path)
    torch.manual_seed(8)
    again.load_checkpoint(saved)
    assert torch.equal(torch.rand(5), want)


@pytest.mark.parametrize("stop", [0, 1, 2, 4])
def test_a30_a_run_stopped_in_an_evaluation_does_it_again(stop, whole, tmp_path) -> None:
    """After any episode, the last one included, and before the first."""

    def evaluating(folder: Path, stop: int | None):
        trainer = make_trainer(folder, eval_interval=1, tracker=Tracker([JsonlSink(folder / "metrics.jsonl")]))

        def evaluator():
            if trainer.progress.episode == stop:
                trainer._interrupt.signum = 15
            return None if trainer.stop_asked() else {"eval/weights": weights(trainer).sum().item()}

        trainer.evaluator = evaluator
        return trainer

    with pytest.raises(Interrupted) as interrupted:
        evaluating(tmp_path, stop).fit(*PLAN, loader())
    assert (
        [row["step"] for row in rows(tmp_path)] == list(range(stop))
        if stop
        else not (tmp_path / "metrics.jsonl").exists()
    )
    again = evaluating(tmp_path, None)
    again.load_checkpoint(interrupted.value.checkpoint)
    again.fit(*PLAN, loader())
    assert torch.equal(weights(again), whole[0])
    written = rows(tmp_path)
    assert [row["step"] for row in written] == [0, 1, 2, 3, 4] and all("eval/weights" in row for row in written)
    assert [{k: v for k, v in row.items() if k != "eval/weights"} for row in written[1:]] == whole[1]


class FailsOnce(RLVRRewardModel):
    """Scores twice, then fails."""

    begun = 0

    def begin(self):
        self.begun += 1
        if self.begun == 3:
            raise UserError("mend me")
        return super().begin()


def test_a30_what_is_saved_when_a_reward_function_fails_is_the_state_before(whole, tmp_path) -> None:
    """The batch that failed is drawn again."""
    with pytest.raises(UserError, match=r"mend me\nWhat was learned is saved in \S*step-000001; go on") as failed:
        make_trainer(tmp_path, reward_model=FailsOnce([share_of_f], LetterTokenizer())).fit(*PLAN, loader())
    again = make_trainer(tmp_path)
    again.load_checkpoint(str(failed.value).split("saved in ")[1].split(";")[0])
    again.fit(*PLAN, loader())
    assert torch.equal(weights(again), whole[0])
    assert rows(tmp_path) == whole[1]


@pytest.mark.parametrize(
    ("plugin", "precision"), [("zero1", "fp32"), ("zero2", "fp32"), ("zero2", "bf16"), ("ddp", "bf16")]
)
def test_a30_under_other_plugins_and_precisions(plugin, precision, tmp_path) -> None:
    """ZeRO under bf16 keeps master weights that the saved model does not hold; they must come back too."""
    results = []
    for stop in (None, 7):
        folder = tmp_path / str(stop)
        folder.mkdir()
        arguments = {"plugin": plugin, "precision": precision}
        trainer = make_trainer(folder, callbacks=[StopAfter(stop)] if stop else [], **arguments)
        try:
            trainer.fit(*PLAN, loader())
        except Interrupted as interrupted:
            trainer = make_trainer(folder, **arguments)
            trainer.load_checkpoint(interrupted.checkpoint)
            trainer.fit(*PLAN, loader())
        results.append(weights(trainer))
    assert torch.equal(*results)


def test_checkpoints_come_at_the_interval_and_old_ones_go(tmp_path) -> None:
    make_trainer(tmp_path, save_interval=1, keep_checkpoints=2).fit(*PLAN, loader())
    assert [c.name for c in checkpoint.list_checkpoints(tmp_path)] == ["step-000003", "step-000004"]
    assert not list((tmp_path / "checkpoints").glob(".*"))


def test_the_result_loads_in_transformers(tmp_path) -> None:
    from transformers import AutoModel, AutoModelForCausalLM

    trainer = make_trainer(tmp_path)
    trainer.fit(1, 1, 1, loader())
    actor = AutoModelForCausalLM.from_pretrained(tmp_path / "actor" / "modeling")
    for saved, own in zip(actor.parameters(), trainer.actor.unwrapped.model.parameters(), strict=True):
        assert torch.equal(saved, own)
    AutoModel.from_pretrained(tmp_path / "critic" / "modeling")


def test_a35_resuming_does_not_touch_the_reference(tmp_path) -> None:
    trainer = make_trainer(tmp_path)
    trainer.fit(1, 1, 1, loader())
    again = make_trainer(tmp_path)
    again.load_checkpoint(checkpoint.list_checkpoints(tmp_path)[-1])
    for own, initial in zip(again.maker.reference.model.model.parameters(), tiny_model().parameters(), strict=True):
        assert torch.equal(own, initial)


@pytest.fixture
def saved(tmp_path) -> Path:
    make_trainer(tmp_path, save_interval=1).fit(2, 1, 1, loader())
    return checkpoint.list_checkpoints(tmp_path)[-1]


@pytest.mark.parametrize(
    "name", ["actor/training.safetensors", "rank-0.safetensors", "state.json", "actor/modeling/model.safetensors"]
)
def test_a_truncated_checkpoint_is_refused_and_a_whole_one_named(saved, name) -> None:
    path = saved / name
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(UserError, match=rf"{name} has \d+ bytes instead of") as refused:
        make_trainer().load_checkpoint(saved)
    assert "step-000001" in str(refused.value)


def test_a_changed_or_missing_file_is_noticed(saved) -> None:
    path = saved / "critic" / "training.safetensors"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(UserError, match="critic/training.safetensors has changed"):
        make_trainer().load_checkpoint(saved)
    (saved / "manifest.json").unlink()
    with pytest.raises(UserError, match="manifest.json is missing"):
        make_trainer().load_checkpoint(saved)


def test_a_checkpoint_of_another_model_or_another_configuration_is_refused(saved) -> None:
    with pytest.raises(UserError, match="another model"):
        make_trainer(family="gpt2").load_checkpoint(saved)
    with pytest.raises(UserError, match="other settings.*lr"):
        make_trainer(run_state={"train": {"lr": 1}}).load_checkpoint(saved)


def test_a_full_disk_while_saving_loses_nothing(tmp_path, monkeypatch) -> None:
    trainer = make_trainer(tmp_path, save_interval=1)
    trainer.fit(1, 1, 1, loader())
    before = checkpoint.list_checkpoints(tmp_path)
    checkpoint_check.verify(before[-1])

    def full(state, path) -> None:
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint, "save_tensors", full)
    again = make_trainer(tmp_path, save_interval=1)
    with pytest.raises(UserError, match="No space left on device"):
        again.fit(2, 1, 1, loader())
    assert checkpoint.list_checkpoints(tmp_path) == before
    checkpoint_check.verify(before[-1])
    assert not list((tmp_path / "checkpoints").glob(".*"))


@pytest.mark.skipif(shutil.which("mount") is None, reason="needs mount")
def test_a_disk_that_is_really_full(tmp_path) -> None:
    """A file system of 64 KiB, which no checkpoint fits into."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("may not mount a file system here")
    try:
        with pytest.raises(UserError, match="can't write"):
            make_trainer(disk).fit(1, 1, 1, loader())
        assert checkpoint.list_checkpoints(disk) == []
        assert not list(disk.glob("checkpoints/.*"))
    finally:
        gc.collect()  # the error's frames hold the file that could not be written
        subprocess.run(["umount", str(disk)], check=True)
