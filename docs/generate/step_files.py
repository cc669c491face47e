"""The files that one step of PPO passes through, in the order in which it runs: `python docs/generate/step_files.py`.

A step of the built-in model is run under a tracer, from the moment at which the loop begins. CONTRIBUTING.md lists the files
with a line each; `tests/docs/test_contributing.py` compares. Files that only give types or names to others (a `__init__`, a
dataclass that is only read) are not run, and not listed.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))


def traced(run: Callable[[], Any], begins: Any, name: str) -> list[str]:
    """Run it; the project's files whose functions were called within `begins.name`, in the order of their first calls."""
    files: dict[str, None] = {}

    def trace(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            files.setdefault(frame.f_code.co_filename)

    plain = getattr(begins, name)

    def watched(*args: Any, **kwargs: Any) -> Any:
        sys.setprofile(trace)
        try:
            return plain(*args, **kwargs)
        finally:
            sys.setprofile(None)

    setattr(begins, name, watched)
    try:
        run()
    finally:
        setattr(begins, name, plain)
    # Runs whatever a library was imported with; whether it does in a step hangs on what was imported before.
    files.pop(str(ROOT / "rlvr" / "boost" / "lean_import.py"), None)
    own = [Path(file) for file in files if file.startswith((str(ROOT / "rlvr"), str(ROOT / "rewards")))]
    return [str(path.relative_to(ROOT)) for path in own if path.name != "__init__.py"]


def files_of_a_step(pretrain: str = "tiny") -> list[str]:
    """Of one episode with one optimizer step, by PPO with a critic and a rule reward."""
    from rewards.maths.literals import parse_number
    from rewards.maths.normalise import canonical, normalise
    from rlvr import train
    from rlvr.trainer.online import OnlineTrainer

    for remembers in (normalise, canonical, parse_number):  # what it remembers is not run again
        remembers.cache_clear()

    with TemporaryDirectory() as folder:
        settings: dict[str, Any] = {
            "pretrain": pretrain, "reward_functions": ["gsm8k_reward_fn"], "save_path": f"{folder}/run", "num_episodes": 1,
            "num_collect_steps": 1, "num_update_steps": 1, "experience_batch_size": 8, "train_batch_size": 8, "eval_samples": 1,
            "max_new_tokens": 16, "max_samples": 16, "progress": False, "num_threads": 1,
        }  # fmt: skip
        return traced(lambda: train(**settings), OnlineTrainer, "_run_episode")


if __name__ == "__main__":
    for file in files_of_a_step(*sys.argv[1:]):
        print(f"{sum(1 for _ in (ROOT / file).open()):5}  {file}")
