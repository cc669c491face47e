"""What generating ahead saves: the seconds of an episode with `--max_staleness` 0, 1 and 2, where generation takes twice as long as learning.

    uv run python -m benchmarks.asynchronous --save      # some minutes; writes benchmarks/results/asynchronous.json

The built-in model on Ray, with two rollout workers. So that the figures say something of the overlap, and nothing of the machine, both
times are made up: a worker answers each request 4 s after it was asked, and an update takes 2 s (as long as this is more than
they really take). Without overlap an episode is then 6 s and what else it does; with it, no less than 4. The median of the episodes after the
first counts. Exits with 1 if one at `--max_staleness 1` takes more than 0.75 of one at 0.
"""

import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.machine import processor

RESULT = Path(__file__).parent / "results" / "asynchronous.json"
UPDATE_S = 2.0
GENERATION_S = 2 * UPDATE_S
TARGET = 0.75
EPISODES = 7
SETTINGS: dict[str, Any] = {
    "algo": {"estimator": "grpo", "kl_coef": 0.0},
    "rollout": {"experience_batch_size": 16, "num_generations": 4, "generation_batch_size": 8, "max_new_tokens": 16},
    "train": {"num_episodes": EPISODES, "num_update_steps": 1, "train_batch_size": 16, "num_threads": 1},
    "reward": {"reward_functions": ["gsm8k_reward_fn"]},
    "data": {"max_samples": 200},
    "eval": {"eval_samples": 1},
    "log": {"progress": False},
    "ray": {"ray": True, "num_rollout_workers": 2},
}


def main() -> int:
    seconds = {staleness: episode_seconds(staleness) for staleness in (0, 1, 2)}
    ratio = seconds[1] / seconds[0]
    result = {
        "processor": processor(),
        "update_s": UPDATE_S,
        "generation_s": GENERATION_S,
        "rollout_workers": 2,
        "episode_s": {f"max_staleness {staleness}": round(s, 2) for staleness, s in seconds.items()},
        "ratio of 1 to 0": round(ratio, 3),
    }
    text = json.dumps(result, indent=1)
    print(text)
    if "--save" in sys.argv:
        RESULT.write_text(f"{text}\n")
    return int(ratio > TARGET)


def episode_seconds(staleness: int) -> float:
    """The median of a run's episodes after the first, in whose time the pipeline fills."""
    import rlvr
    import rlvr.ray.rollout as rollout
    from rlvr.config import base_config, overlay
    from rlvr.ray.trainer import Learners

    slow, step = _slow_worker(), Learners.step

    def slow_step(*arguments: Any, **options: Any) -> None:
        begin = time.monotonic()
        step(*arguments, **options)
        time.sleep(max(0.0, UPDATE_S - (time.monotonic() - begin)))

    kept = rollout.RayPPORollout
    with tempfile.TemporaryDirectory(prefix="rlvr") as folder:
        settings = overlay(SETTINGS, {"ray": {"max_staleness": staleness}, "ckpt": {"save_path": f"{folder}/run"}})
        try:
            rollout.RayPPORollout, Learners.step = slow, slow_step  # type: ignore[misc,method-assign]
            done = rlvr.train(base_config(settings))
        finally:
            rollout.RayPPORollout, Learners.step = kept, step  # type: ignore[misc,method-assign]
        rows = [json.loads(line) for line in (Path(done) / "metrics.jsonl").read_text().splitlines()]
    found = [row["time/episode"] for row in rows if row["step"] > 1]
    print(f"  max_staleness {staleness}: {', '.join(f'{s:.1f}' for s in found)} s", file=sys.stderr, flush=True)
    return median(found)


def _slow_worker() -> Any:
    from rlvr.ray.roles import RayPPORollout

    class Slow(RayPPORollout):  # in here it is sent to its process whole
        def answer(self, request: Any) -> Any:
            begin = time.monotonic()
            piece = super().answer(request)
            time.sleep(max(0.0, GENERATION_S - (time.monotonic() - begin)))
            return piece

    return Slow


if __name__ == "__main__":
    sys.exit(main())
