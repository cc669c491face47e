"""Run by `test_multi_node.py`: pairs of processes that stand for two machines, with a current folder each.

`main` forks every case from its process (see `tests/faults/forking.py`) and writes FOLDER/said.json: case -> for each rank [exit
status, what it printed].
"""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from saved_models import save_micro_model

from tests.faults.forking import Launch

FLAGS = (
    "--pretrain model --prompt_dataset data.jsonl --question_column question --reward_functions reward.py:pays "
    "--reward_workers 0 --num_episodes 2 --experience_batch_size 8 --train_batch_size 8 --num_update_steps 1 "
    "--num_collect_steps 1 --max_new_tokens 4 --max_length 64 --save_interval 1 --kl_coef 0.01 --num_threads 1 "
    "--mixed_precision fp32 --no-progress --num_sample_generations 0 --lr 1e-3"
)
Hook = Callable[[], None]


class Machines:
    """Two folders with the same files, until a case changes one."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folders = [root / "a", root / "b"]
        for folder in self.folders:
            save_micro_model(folder / "model")
            self.write_data(folder, 2)
            (folder / "reward.py").write_text("def pays(response):\n    return response.count('e') / 9\n")

    @staticmethod
    def write_data(folder: Path, number: int) -> None:
        rows = [{"question": f"{i}+{number}=?", "answer": str(i + number)} for i in range(16)]
        (folder / "data.jsonl").write_text("\n".join(map(json.dumps, rows)))

    def run(
        self, *flags: str, of_second: str = "", second: Hook = lambda: None, timeout_s: float = 30.0
    ) -> list[tuple[int | None, str]]:
        """Both processes; `second` and the flags `of_second` are for rank 1 only."""

        def hook(rank: int) -> None:
            os.chdir(self.folders[rank])
            if rank:
                second()

        common = ["train", *FLAGS.split(), *flags, "--dist_timeout", str(timeout_s)]
        ended = Launch([common, [*common, *of_second.split()]], hook).run(60.0)
        return [(e.status, e.said) for e in ended]


def other_versions() -> None:
    from rlvr.boost import consistency as agreement

    plain = agreement.version
    agreement.version = lambda name: "4.0.0" if name == "transformers" else plain(name)  # type: ignore[assignment]
    agreement.code_digest = lambda: "f00d"  # type: ignore[assignment]


def in_scoring(act: Hook) -> Hook:
    """In the second episode, as it begins to score."""

    def hook() -> None:
        from rlvr.boost.health import StatusReporter

        plain, seen = StatusReporter.enter, []

        def enter(reporter: StatusReporter, phase: str) -> None:
            plain(reporter, phase)
            seen.append(phase)
            if phase == "score" and seen.count("rollout") == 2:
                act()

        StatusReporter.enter = enter  # type: ignore[method-assign]

    return hook


def fail() -> None:
    from rlvr.errors import UserError

    raise UserError("the second machine has run out of luck")


def main(folder: str) -> None:
    root = Path(folder)
    m = Machines(root)
    said = {
        "other settings": m.run("--save_path", "x", of_second="--lr 2e-3 --save_interval 2"),
        "other versions": m.run("--save_path", "x", second=other_versions),
        "asleep": m.run("--save_path", "asleep", second=in_scoring(lambda: time.sleep(40)), timeout_s=10.0),
        "failed": m.run("--save_path", "failed", second=in_scoring(fail)),
        "own disks": m.run("--save_path", "own"),
        "own disks, resumed": m.run("--save_path", "own", "--resume"),
        "one disk": m.run("--save_path", str(root / "one")),
    }
    newest = sorted((root / "one" / "checkpoints").iterdir())[-1]
    (newest / "rank-1.safetensors").write_bytes(b"")
    said["one disk, damaged"] = m.run("--save_path", str(root / "one"), "--resume")
    m.write_data(m.folders[1], 3)
    said["other data"] = m.run("--save_path", "y")
    m.write_data(m.folders[1], 2)
    (m.folders[1] / "reward.py").write_text("def pays(response):\n    return response.count('f') / 9\n")
    said["other rewards"] = m.run("--save_path", "y")
    (m.folders[1] / "reward.py").write_bytes((m.folders[0] / "reward.py").read_bytes())
    save_micro_model(m.folders[1] / "model", seed=1)
    said["other weights"] = m.run("--save_path", "y")
    (root / "said.json").write_text(json.dumps(said))
