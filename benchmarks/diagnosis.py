"""How often do the signs of a run going wrong tell the truth? Runs of the embedded default, clean and with a planted fault.

    uv run python -m benchmarks.diagnosis --out runs/diagnosis                 # 41 runs of 24 episodes: 45 minutes on two cores
    uv run python -m benchmarks.diagnosis --clean 1 --seeds 0 --faults "stale weights"
    uv run python -m benchmarks.diagnosis --markdown benchmarks/results/diagnosis.md

A fault is planted in the parts of a running trainer when episode `--at` begins, and stays (`FAULTS`). What `rlvr.tracking.diagnosis`
says of the metrics, episode by episode, is compared with what was done:

- recall: the share of runs with a fault in which some sign speaks after it; and after how many episodes, the median.
- lead: episodes from the sign to the harm, the median; harm is the first of three episodes in a row in which the share of right responses
  lies `HARM` below the mean of the clean runs.
- precision of a sign: of the runs in which it speaks, the share with a fault (in those, only after it).

Thresholds were chosen on seeds 0 and 1, and the runs here have others (`--seeds`, `--first_clean`). Runs that have ended are not made again.
"""

import argparse
import copy
import importlib.metadata
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch

from benchmarks.machine import processor
from rewards.outcome import Outcome, Score
from rlvr.tracking.diagnosis import CHECKS, History

ROOT = Path(__file__).parents[1]
HARM = 0.1
NOISE = 0.3
BROKEN = 0.05
CLEAN = "clean"


# The faults. Each changes the parts of a trainer that runs, as a mistake in the code or in the settings would.


def _ten_times_the_rate(trainer: Any) -> None:
    """Both learning rates times ten."""
    for role in trainer.learner.roles.values():
        role.lr_scheduler.base_lrs = [10 * lr for lr in role.lr_scheduler.base_lrs]


def _wrong_mask(trainer: Any) -> None:
    """Each response is learned as far as another one of the batch is long."""

    def masked(item: Any, other: Any) -> Any:
        keep = torch.arange(len(item.mask)) < len(other.mask)
        return replace(item, mask=item.mask & keep)

    _change_experience(trainer, lambda items: [masked(a, b) for a, b in zip(items, items[1:] + items[:1], strict=True)])


def _shifted_logprobs(trainer: Any) -> None:
    """The old logprobs are those of the tokens before."""
    _change_experience(trainer, lambda items: [replace(item, logprobs=item.logprobs.roll(1)) for item in items])


def _change_experience(trainer: Any, change: Callable[[list[Any]], list[Any]]) -> None:
    assemble = trainer.maker.assemble
    trainer.maker.assemble = lambda *given, **options: change(assemble(*given, **options))


def _stale_weights(trainer: Any) -> None:
    """The engine samples from the weights of this moment for ever."""
    engine, stale = trainer.maker.engine, copy.deepcopy(trainer.maker.actor.unwrapped.model)
    stream = engine.stream
    engine.stream = lambda model, *given, **options: stream(stale, *given, **options)


def _noisy_verifier(trainer: Any) -> None:
    """Nearly a third of the verdicts are turned round, and paid so."""

    def turned(result: Any) -> Any:
        if result.outcome is None or lots.random() >= NOISE:
            return result
        correct = not result.outcome.correct
        (name,) = result.scores
        score = replace(result.scores[name], value=float(correct))
        return replace(
            result, total=float(correct), outcome=Outcome("correct" if correct else "wrong"), scores={name: score}
        )

    lots = random.Random("noise")
    _change_results(trainer, turned)


def _broken_tool(trainer: Any) -> None:
    """A few calls of the reward function fail."""

    def broken(result: Any) -> Any:
        if lots.random() >= BROKEN:
            return result
        failed = {name: Score(None, Outcome("error", message="broken")) for name in result.scores}
        return replace(result, total=None, outcome=Outcome("error"), scores=failed)

    lots = random.Random("broken")
    _change_results(trainer, broken)


def _change_results(trainer: Any, change: Callable[[Any], Any]) -> None:
    judge = trainer.maker.judge
    trainer.maker.judge = lambda rollouts, results, *rest: judge(rollouts, [change(r) for r in results], *rest)


def _curriculum_stuck(trainer: Any) -> None:
    """Only problems that are never solved come."""
    loader = trainer.prompt_loader
    out_of_reach = [replace(p, problem=replace(p.problem, answer="123456")) for p in loader.items]
    draw = trainer._draw_prompts
    place = {prompt.problem.id: index for index, prompt in enumerate(loader.items)}
    trainer._draw_prompts = lambda: [out_of_reach[place[prompt.problem.id]] for prompt in draw()]


FAULTS: dict[str, Callable[[Any], None]] = {
    "learning rate x 10": _ten_times_the_rate,
    "wrong mask": _wrong_mask,
    "shifted logprobs": _shifted_logprobs,
    "stale weights": _stale_weights,
    "noisy verifier": _noisy_verifier,
    "broken tool": _broken_tool,
    "curriculum stuck": _curriculum_stuck,
}


def work(fault: str, seed: int, folder: Path, a: argparse.Namespace) -> None:
    """One run, in this process."""
    from rlvr.api import train
    from rlvr.trainer.online import OnlineTrainer

    if fault != CLEAN:
        episode_start = OnlineTrainer._run_episode

        def struck(trainer: OnlineTrainer) -> None:
            if trainer.progress.episode == a.at:
                FAULTS[fault](trainer)
            episode_start(trainer)

        OnlineTrainer._run_episode = struck  # type: ignore[method-assign]
    train(
        pretrain="tiny",
        reward_functions=["gsm8k_reward_fn"],
        num_episodes=a.episodes,
        eval_interval=a.episodes,
        eval_samples=64,
        save_interval=0,
        seed=seed,
        progress=False,
        save_path=str(folder),
    )


@dataclass(frozen=True)
class Run:
    """What was seen of one run.

    Attributes:
        fault: its name, or `CLEAN`.
        right: the share of right responses, by episode.
        signs: the first episode from `at` on in which each sign speaks.
    """

    fault: str
    seed: int
    right: Sequence[float]
    signs: Mapping[str, int]

    def harmed(self, usual: Sequence[float], at: int) -> int | None:
        """The first of three episodes that are worse than usual by `HARM`."""
        worse = [right < clean - HARM for right, clean in zip(self.right, usual, strict=True)]
        return next((i for i in range(at, len(worse) - 2) if all(worse[i : i + 3])), None)


def read(fault: str, seed: int, folder: Path, at: int) -> Run:
    """The run from its metrics; of a clean one all signs count, as it has no fault to wait for."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    rows = [row for row in rows if "outcome/correct" in row]
    history, signs = History(), dict[str, int]()
    for episode, row in enumerate(rows):
        for finding in history.add({name: value for name, value in row.items() if isinstance(value, (int, float))}):
            if fault == CLEAN or episode >= at:
                signs.setdefault(finding.name, episode)
    return Run(fault, seed, [row["outcome/correct"] for row in rows], signs)


def make(fault: str, seed: int, folder: Path, a: argparse.Namespace) -> None:
    """A run in a process of its own, unless it has ended before."""
    done = folder.with_suffix(".done")
    if done.is_file():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder, ignore_errors=True)  # of a run that was stopped
    command = [
        sys.executable,
        "-m",
        "benchmarks.diagnosis",
        "--worker",
        str(folder),
        "--faults",
        fault,
        "--seeds",
        str(seed),
    ]
    command += ["--episodes", str(a.episodes), "--at", str(a.at)]
    with folder.with_suffix(".log").open("w") as log:
        ended = subprocess.run(command, cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}, stdout=log, stderr=log)
    if ended.returncode:
        raise SystemExit(f"error: {folder.name} failed; see {folder.with_suffix('.log')}")
    done.touch()
    print(folder.name, flush=True)


def rows_by_fault(runs: Sequence[Run], at: int) -> Iterator[list[str]]:
    """Recall and lead time of each fault."""
    clean = [run.right for run in runs if run.fault == CLEAN]
    usual = [fmean(column) for column in zip(*clean, strict=True)]
    for fault in dict.fromkeys(run.fault for run in runs if run.fault != CLEAN):
        found = [run for run in runs if run.fault == fault]
        told = [min(run.signs.values()) for run in found if run.signs]
        harmed = [h for run in found if (h := run.harmed(usual, at)) is not None]
        leads = [h - min(r.signs.values()) for r in found if r.signs and (h := r.harmed(usual, at)) is not None]
        first = dict.fromkeys(
            name for run in found for name, when in run.signs.items() if when == min(run.signs.values())
        )
        yield [
            fault,
            f"{len(told)} of {len(found)}",
            f"{median(told) - at:g}" if told else "",
            f"{len(harmed)} of {len(found)}",
            f"{median(leads):+g}" if leads else "",
            ", ".join(first) or "none",
        ]


def rows_by_sign(runs: Sequence[Run]) -> Iterator[list[str]]:
    """How often each sign spoke, and how often there was a fault."""
    clean = [run for run in runs if run.fault == CLEAN]
    for name in sorted({name for run in runs for name in run.signs}):
        speaks = [run for run in runs if name in run.signs]
        false = sum(run.fault == CLEAN for run in speaks)
        faults = dict.fromkeys(run.fault for run in speaks if run.fault != CLEAN)
        yield [name, f"{false} of {len(clean)}", f"{1 - false / len(speaks):.0%}", ", ".join(faults)]


def table(head: Sequence[str], rows: Iterator[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in [list(head), ["---"] * len(head), *rows]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=24)
    parser.add_argument("--at", type=int, default=8, help="episode in which a fault begins")
    parser.add_argument("--clean", type=int, default=20, help="clean runs")
    parser.add_argument("--first_clean", type=int, default=100, help="seed of the first of them")
    parser.add_argument("--faults", nargs="+", choices=[*FAULTS, CLEAN], default=list(FAULTS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[2, 3, 4], help="of the runs with each fault")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    parser.add_argument("--out", type=Path, default=Path("runs/diagnosis"), help="folder of the runs")
    parser.add_argument("--markdown", type=Path, help="file for the tables")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.worker is not None:
        work(a.faults[0], a.seeds[0], a.worker, a)
        return
    wanted = [(fault, seed) for seed in a.seeds for fault in a.faults]
    wanted += [(CLEAN, a.first_clean + number) for number in range(a.clean)]
    folders = {(fault, seed): a.out.absolute() / f"{fault.replace(' ', '_')}-{seed}" for fault, seed in wanted}
    with ThreadPoolExecutor(a.jobs) as pool:
        for future in [pool.submit(make, *run, folder, a) for run, folder in folders.items()]:
            future.result()
    runs = [read(*run, folder, a.at) for run, folder in folders.items()]
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("torch", "transformers"))
    text = (
        f"{a.clean} clean runs and {len(a.seeds)} with each fault, {a.episodes} episodes, the fault from episode {a.at} on; "
        f"{len(CHECKS)} signs. {processor()}, {versions}\n\n"
        + table(("fault", "told", "after", "harmed", "lead", "first signs"), rows_by_fault(runs, a.at))
        + "\n"
        + table(("sign", "in clean runs", "precision", "with faults"), rows_by_sign(runs))
    )
    print(text)
    if a.markdown is not None:
        a.markdown.write_text(text)


if __name__ == "__main__":
    main()
