"""What generating ahead saves: seconds of an episode with and without `--max_staleness`, and with `--partial_rollout_tokens`.

    uv run python -m benchmarks.asynchronous --save      # some 15 minutes; writes benchmarks/results/asynchronous.json

The built-in model on Ray, with two rollout workers. So that the figures say something of the overlap, and nothing of the machine, times are made
up: a request takes as long as its longest response has tokens, however many responses it has (as on a GPU, whose memory's bandwidth
bounds decoding), and an update takes 2 s; both, as long as this is more than they really take. Two kinds of lengths:

- *equal*: generation takes twice as long as learning. Without overlap an episode is then 6 s and what else it does; with it, no less than 4.
- *long-tailed*: log-normal with a median of 3 tokens and a spread of 1, at most 24. In most requests of 8 there is a long response. (A token
  takes as long as some ten would, so that the machine has time for what it really does.)

Beside each stands what `benchmarks.pipeline` makes of the same lengths, given what an episode without overlap does beside generation
and update. (It leaves out what partial rollouts cost besides, a prefill of what there is of each response: with real models look at
`benchmarks.scaling_model --apart`.) The mean of the episodes between the filling of the pipeline and its emptying counts, the same ones for all
runs. Exits with 1 if an episode at `--max_staleness 1` takes more than 0.75 of one at 0, if partial rollouts gain less than a tenth, or if the
arithmetic is off by more than a tenth.
"""

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from benchmarks.machine import processor
from benchmarks.pipeline import Lengths, Pipeline
from benchmarks.pipeline import episode_seconds as expected

RESULT = Path(__file__).parent / "results" / "asynchronous.json"
UPDATE_S = 2.0
COUNT = slice(4, 10)
"""The episodes that count; after them as many follow as are generated ahead."""
OFF = 0.1
SETTINGS: dict[str, Any] = {
    "algo": {"estimator": "grpo", "kl_coef": 0.0},
    "rollout": {"num_generations": 4, "generation_batch_size": 8, "max_length": 240},
    "train": {"num_update_steps": 1, "num_collect_steps": 1, "num_threads": 1, "seed": 0},
    "reward": {"reward_functions": ["gsm8k_reward_fn"]},
    "data": {"max_samples": 400},
    "eval": {"eval_samples": 1},
    "log": {"progress": False},
    "ray": {"ray": True, "num_rollout_workers": 2},
}


@dataclass(frozen=True)
class Work:
    """Made-up times: of a token, and how many there are."""

    lengths: Lengths
    responses: int
    token_s: float

    def pipeline(self, staleness: int, partial_tokens: int) -> Pipeline:
        return Pipeline(
            self.lengths, self.responses, 8, 2, lambda before, new: float(new.max()) * self.token_s, UPDATE_S,
            staleness=staleness, partial_tokens=partial_tokens,
        )  # fmt: skip


WORKS = {
    "equal": Work(Lengths(16, 0.0, 16), 16, 0.25),
    "long-tailed": Work(Lengths(3, 1.0, 24), 64, 0.16),
}
RUNS: dict[str, Sequence[tuple[int, int]]] = {"equal": [(0, 0), (1, 0), (2, 0)], "long-tailed": [(0, 0), (2, 0), (2, 6)]}  # fmt: skip
"""(`--max_staleness`, `--partial_rollout_tokens`)."""


def main() -> int:
    found = {kind: table(WORKS[kind], RUNS[kind]) for kind in RUNS}
    result = {"processor": processor(), "update_s": UPDATE_S, "rollout_workers": 2, **found}
    text = json.dumps(result, indent=1)
    print(text)
    if "--save" in sys.argv:
        RESULT.write_text(f"{text}\n")
    of = {(kind, row["max_staleness"], row["partial_rollout_tokens"]): row for kind in found for row in found[kind]}
    late = of["equal", 1, 0]["episode_s"] > 0.75 * of["equal", 0, 0]["episode_s"]
    idle = of["long-tailed", 2, 6]["episode_s"] > 0.9 * of["long-tailed", 2, 0]["episode_s"]
    off = any(abs(row["foretold_s"] / row["episode_s"] - 1) > OFF for row in of.values())
    return int(late or idle or off)


def table(work: Work, runs: Sequence[tuple[int, int]]) -> list[dict[str, Any]]:
    """A row for each run; the first, without overlap, says what an episode does beside generation and update."""
    rows: list[dict[str, Any]] = []
    rest_s = 0.0
    for staleness, partial_tokens in runs:
        metrics = measured(work, staleness, partial_tokens)
        episode_s = mean(row["time/episode"] for row in metrics)
        if not rows:
            rest_s = episode_s - foretold_s(work, 0, 0)
        row = {
            "max_staleness": staleness,
            "partial_rollout_tokens": partial_tokens,
            "episode_s": round(episode_s, 2),
            "foretold_s": round(foretold_s(work, staleness, partial_tokens, rest_s), 2),
            "staleness_avg": round(mean(row.get("sampler/staleness_avg", 0.0) for row in metrics), 2),
        }
        print(f"  {row}", file=sys.stderr, flush=True)
        rows.append(row)
    return rows


def foretold_s(work: Work, staleness: int, partial_tokens: int, rest_s: float = 0.0) -> float:
    """The mean of the episodes that count, by the arithmetic.

    Args:
        rest_s: what an episode does beside generation and update.
    """
    p = replace(work.pipeline(staleness, partial_tokens), update_s=UPDATE_S + rest_s)
    return mean(expected(p, COUNT.stop + staleness)[COUNT])


def measured(work: Work, staleness: int, partial_tokens: int) -> list[dict[str, float]]:
    """Rows of metrics of the episodes that count."""
    import rlvr
    import rlvr.ray.rollout as rollout
    from rlvr.config import base_config, overlay
    from rlvr.ray.trainer import Learners

    slow, step = _slow_worker(work), Learners.step

    def slow_step(*arguments: Any, **options: Any) -> None:
        begin = time.monotonic()
        step(*arguments, **options)
        time.sleep(max(0.0, UPDATE_S - (time.monotonic() - begin)))

    kept = rollout.RayPPORollout
    with tempfile.TemporaryDirectory(prefix="rlvr") as folder:
        changes = {
            "rollout": {"experience_batch_size": work.responses, "max_new_tokens": work.lengths.longest},
            "train": {"num_episodes": COUNT.stop + staleness, "train_batch_size": work.responses},
            "ray": {"max_staleness": staleness, "partial_rollout_tokens": partial_tokens},
            "ckpt": {"save_path": f"{folder}/run"},
        }
        try:
            rollout.RayPPORollout, Learners.step = slow, slow_step  # type: ignore[misc,method-assign]
            done = rlvr.train(base_config(overlay(SETTINGS, changes)))
        finally:
            rollout.RayPPORollout, Learners.step = kept, step  # type: ignore[misc,method-assign]
        rows = [json.loads(line) for line in (Path(done) / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if row["step"] > 0][COUNT]


def _slow_worker(work: Work) -> Any:
    from rlvr.ray.roles import RayPPORollout
    from rlvr.rollout.engine import Engine

    class Cut(Engine):  # in here both are sent to their process whole
        """An engine whose responses have made-up lengths."""

        def __init__(self, engine: Any, new: Any) -> None:
            self.engine, self.new = engine, new

        def stream(self, model: Any, prompts: Any, sampling: Any, seed: Any, first: int = 0) -> Any:
            longest = int(min(self.new.max(), sampling.max_new_tokens))
            anyhow = replace(sampling, max_new_tokens=longest, stop_ids=(), stop_strings=())
            whole = self.engine.generate(model, prompts, anyhow, (*seed, first))
            yield [self.cut(rollout, int(n), sampling) for rollout, n in zip(whole, self.new, strict=True)]

        def cut(self, rollout: Any, count: int, sampling: Any) -> Any:
            ids = rollout.response_ids[:count].clone()
            for stop in sampling.stop_ids:
                ids[ids == stop] = max(sampling.stop_ids) + 1  # none ends by itself
            ended = count <= sampling.max_new_tokens
            logprobs = None if rollout.logprobs is None else rollout.logprobs[:count]
            return replace(rollout, response_ids=ids, logprobs=logprobs, stop_reason="stop" if ended else "length")

    class Slow(RayPPORollout):
        def answer(self, request: Any) -> Any:
            begin = time.monotonic()
            before = len(request.begun[0].response_ids) if request.begun else 0
            new = work.lengths.draw(len(request.prompts), before, *request.seed, request.first) - before
            engine, self.engine = self.engine, Cut(self.engine, new)
            try:
                piece = super().answer(request)
            finally:
                self.engine = engine
            tokens = np.minimum(new, request.sampling.max_new_tokens).max()
            time.sleep(max(0.0, float(tokens) * work.token_s - (time.monotonic() - begin)))
            return piece

    return Slow


if __name__ == "__main__":
    sys.exit(main())
