"""Does a run that is struck again and again learn as much as one that is left alone? The embedded default in bf16, with random faults.

    uv run python -m benchmarks.soak                                      # zero2 and fsdp, 200 episodes, clean and struck: hours
    uv run python -m benchmarks.soak --plugins zero2 --episodes 10 --out runs/soak
    uv run python -m benchmarks.soak --markdown benchmarks/results/soak.md

Two processes. In each episode each kind of fault strikes with a probability of `--rate`, drawn from `--seed`, always in one
process alone (`FAULTS`):
- gradient: the loss of one optimizer step of actor or critic is infinite;
- nan: a response is paid NaN, past all checks of reward functions;
- empty: a quarter of the responses are empty;
- equal: all responses are paid the same.
The struck run passes if it ends, and its held-out accuracy lies within the 95 % interval of the clean run's. Runs that have ended
are not done again: after a stop, call it once more.
"""

import argparse
import importlib.metadata
import json
import math
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.machine import processor

ROOT = Path(__file__).parents[1]
FAULTS = ("gradient", "nan", "empty", "equal")
COLUMNS = ("plugin", "clean", "struck", "within", "skipped steps", *FAULTS)


class Striker:
    """Decides what is struck when, alike in every process, and patches the trainer's parts in this one.

    Attributes:
        struck: how often each kind has struck this process.
    """

    def __init__(self, rank: int, world_size: int, rate: float, seed: int) -> None:
        self.rank, self.world_size, self.rate, self.seed = rank, world_size, rate, seed
        self.episode, self.step = 0, 0
        self.struck: Counter[str] = Counter()

    def _draw(self, kind: str) -> random.Random | None:
        """A source of random numbers if this kind strikes this process in this episode."""
        rng = random.Random(f"{self.seed} {kind} {self.episode}")
        return rng if rng.random() < self.rate and rng.randrange(self.world_size) == self.rank else None

    def install(self) -> None:
        from rlvr.experience.maker import BaseExperienceMaker
        from rlvr.rollout.hf import HFEngine
        from rlvr.trainer import ppo_update
        from rlvr.trainer.online import OnlineTrainer

        self._before(OnlineTrainer, "_make_experience", self._begin_episode)
        self._before(OnlineTrainer, "_training_step", self._begin_step)
        for name in ("actor_loss", "critic_loss"):
            setattr(ppo_update, name, self._breaking(name, getattr(ppo_update, name)))
        engine: Any = HFEngine
        engine.stream = self._emptying(HFEngine.stream)
        maker: Any = BaseExperienceMaker
        maker.judge = self._paying(BaseExperienceMaker.judge)

    def _before(self, owner: type, name: str, note: Callable[[Any], None]) -> None:
        method = getattr(owner, name)

        def call(trainer: Any, *arguments: Any) -> Any:
            note(trainer)
            return method(trainer, *arguments)

        setattr(owner, name, call)

    def _begin_episode(self, trainer: Any) -> None:
        self.episode, self.step = trainer.progress.episode, 0

    def _begin_step(self, trainer: Any) -> None:
        self.step += 1

    def _breaking(self, name: str, loss: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def broken(*arguments: Any) -> torch.Tensor:
            rng = self._draw("gradient")
            if rng is None or (rng.choice(("actor_loss", "critic_loss")), rng.randint(1, 2)) != (name, self.step):
                return loss(*arguments)
            self.struck["gradient"] += 1
            return loss(*arguments) * math.inf

        return broken

    def _emptying(self, stream: Callable[..., Iterator[list[Any]]]) -> Callable[..., Iterator[list[Any]]]:
        def emptied(engine: Any, model: Any, prompts: Any, sampling: Any, seed: Any) -> Iterator[list[Any]]:
            # Evaluations are left alone: their seed is no place in training.
            rng = self._draw("empty") if seed[1:2] == (self.episode,) else None
            self.struck["empty"] += rng is not None
            for batch in stream(engine, model, prompts, sampling, seed):
                yield [_without_tokens(r) if rng is not None and rng.random() < 0.25 else r for r in batch]

        return emptied

    def _paying(self, judge: Callable[..., Any]) -> Callable[..., Any]:
        def paid(maker: Any, rollouts: Any, results: Sequence[Any], *rest: Any) -> Any:
            if self._draw("nan") is not None:
                self.struck["nan"] += 1
                results = [replace(results[0], total=math.nan), *results[1:]]
            if self._draw("equal") is not None:
                self.struck["equal"] += 1
                results = [replace(result, total=0.5) for result in results]
            return judge(maker, rollouts, results, *rest)

        return paid


def _without_tokens(rollout: Any) -> Any:
    logprobs = None if rollout.logprobs is None else rollout.logprobs[:0]
    return replace(rollout, response_ids=rollout.response_ids[:0], logprobs=logprobs)


def work(plugin: str, folder: Path, a: argparse.Namespace, *, strike: bool) -> None:
    """One run, in one of its processes."""
    from rlvr.api import train

    striker = Striker(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), a.rate if strike else 0.0, a.seed)
    striker.install()
    train(
        pretrain="tiny",
        reward_functions=["gsm8k_reward_fn"],
        plugin=plugin,
        mixed_precision="bf16",
        num_episodes=a.episodes,
        seed=a.seed,
        progress=False,
        save_path=str(folder),
        resume=True,
    )
    (folder / f"struck-{striker.rank}.json").write_text(json.dumps(striker.struck))


def run(plugin: str, strike: bool, a: argparse.Namespace) -> Path:
    """A run in processes of its own, unless it has ended before. Returns its folder."""
    folder: Path = a.out.absolute() / f"{plugin}-{'struck' if strike else 'clean'}"
    if not (folder / "struck-0.json").is_file():
        folder.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={a.processes}"]
        command += ["-m", "benchmarks.soak", "--worker", str(folder), "--plugins", plugin, "--rate", str(a.rate)]
        command += ["--episodes", str(a.episodes), "--seed", str(a.seed), *(["--strike"] if strike else [])]
        print(f"{folder.name}: {a.episodes} episodes", flush=True)
        with folder.with_suffix(".log").open("w") as log:
            environment = os.environ | {"OMP_NUM_THREADS": "1"}
            done = subprocess.run(command, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT)
        if done.returncode:
            sys.exit(f"error: {folder.name} failed; see {folder.with_suffix('.log')}")
    return folder


def rows_of(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def compare(plugin: str, clean: Path, struck: Path) -> list[str]:
    """A row of the table."""
    last = [[row for row in rows_of(folder) if "eval/accuracy" in row][-1] for folder in (clean, struck)]
    shown = [f"{r['eval/accuracy']:.1%} ({r['eval/accuracy_low']:.1%} to {r['eval/accuracy_high']:.1%})" for r in last]
    within = last[0]["eval/accuracy_low"] <= last[1]["eval/accuracy"] <= last[0]["eval/accuracy_high"]
    skipped = sum(v for row in rows_of(struck) for name, v in row.items() if name.startswith("skipped_steps/"))
    counts: Counter[str] = Counter()
    for path in struck.glob("struck-*.json"):
        counts.update(json.loads(path.read_text()))
    return [plugin, *shown, "yes" if within else "NO", f"{skipped:.0f}", *(str(counts[kind]) for kind in FAULTS)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plugins", nargs="+", default=["zero2", "fsdp"])
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rate", type=float, default=0.1, help="probability of each kind of fault in an episode")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/soak"), help="folder of the runs")
    parser.add_argument("--markdown", type=Path, help="file for the table")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--strike", action="store_true", help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.worker is not None:
        work(a.plugins[0], a.worker, a, strike=a.strike)
        return 0
    rows = [compare(plugin, run(plugin, False, a), run(plugin, True, a)) for plugin in a.plugins]
    lines = [list(COLUMNS), ["---"] * len(COLUMNS), *rows]
    versions = ", ".join(
        f"{name} {importlib.metadata.version(name)}" for name in ("torch", "transformers", "colossalai")
    )
    text = f"{a.episodes} episodes in bf16, {a.processes} processes, rate {a.rate}, seed {a.seed}; {processor()}, {versions}\n\n"
    text += "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
    print(text)
    if a.markdown is not None:
        a.markdown.write_text(text)
    return int(any(row[3] != "yes" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
