"""One run at a time writes to a folder; whoever comes second is told who is there."""

import os
import shutil
import signal
import subprocess
import sys

import pytest

from rlvr.errors import UserError
from rlvr.run import folder as folders
from rlvr.run.folder import OpenedFolder, RunLock, prepare_folder

HOLDS = "import sys; from pathlib import Path; from rlvr.run.folder import RunLock; lock = RunLock(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"  # fmt: skip


@pytest.fixture
def holder(tmp_path, clean_env):
    command = [sys.executable, "-c", HOLDS, str(tmp_path)]
    process = subprocess.Popen(command, env=clean_env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()


def test_the_second_is_told_who_is_there_and_a_kill_gives_it_free(tmp_path, holder, monkeypatch) -> None:
    monkeypatch.setattr(folders, "PREDECESSOR_S", 0.1)
    for resume in (False, True):
        with pytest.raises(UserError, match=rf"in use by process {holder.pid} on \S+ since 20.*two runs would"):
            prepare_folder(tmp_path, resume)
    (tmp_path / ".holder.json").write_text("[")
    with pytest.raises(UserError, match="in use by another process"):
        prepare_folder(tmp_path, False)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    lock = prepare_folder(tmp_path, False).lock
    assert f'"pid": {os.getpid()}' in (tmp_path / ".holder.json").read_text()
    lock.release()
    RunLock(tmp_path).release()


def test_a_resumed_run_waits_for_one_that_is_ending(tmp_path, holder) -> None:
    holder.stdin.close()  # and so it ends, some time after
    prepare_folder(tmp_path, True).lock.release()


def test_a_folder_that_is_refused_is_free_again(tmp_path) -> None:
    (tmp_path / "metrics.jsonl").touch()
    with pytest.raises(UserError, match="holds another run"):
        prepare_folder(tmp_path, False)
    RunLock(tmp_path).release()


def test_a_run_that_fails_at_its_start_leaves_no_new_folder(tmp_path) -> None:
    for has_run, failed, stays in ((False, True, False), (True, True, True), (False, False, True)):
        folder = tmp_path / "runs" / "mine"
        prepared = prepare_folder(folder, False)
        assert prepared.made == (folder, tmp_path / "runs")
        (folder / "config.yaml").touch()
        if has_run:
            (folder / "metrics.jsonl").touch()
        OpenedFolder(folder, None, prepared.lock, prepared.made).close(failed)
        assert (tmp_path / "runs").exists() == stays
        shutil.rmtree(tmp_path / "runs", ignore_errors=True)
    old = tmp_path / "old"  # the user's own
    old.mkdir()
    prepared = prepare_folder(old, False)
    OpenedFolder(old, None, prepared.lock, prepared.made).close(failed=True)
    assert old.exists()
