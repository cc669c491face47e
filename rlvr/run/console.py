"""A run on the console: a live bar with the phase and the time left, a line for each row of metrics, samples, warnings.

`ConsoleView` shows runs of PPO and its relatives, `SupervisedView` those of SFT and reward models. Both are callbacks, so trainers
know nothing of them.
"""

import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from rewards import Sample
from rlvr.boost.health import Work, present_work, report_progress
from rlvr.memory.usage import readable
from rlvr.tracking.samples import tracked_samples
from rlvr.tracking.tracker import Tracker, append_json
from rlvr.trainer.callbacks import Callback

if TYPE_CHECKING:
    from rlvr.experience.experience import Experience
    from rlvr.experience.maker import Collected

SAMPLES_SHOWN = 2
"""Samples of an episode that are printed."""
SAMPLES_WRITTEN = 8
"""Samples of an episode that are written to file and trackers."""


def make_bar(console: Console, live: bool) -> Progress:
    """A bar with the time passed and the time left; it shows nothing unless `live` and the console is a terminal."""
    return Progress(
        TextColumn("{task.description:<14}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("elapsed"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(elapsed_when_finished=False),
        console=console,
        disable=not live or not console.is_terminal,
    )


LINE_EVERY_S = 30.0
"""Seconds between two lines that say how far a phase is, where there is no bar."""


def print_line(console: Console, text: str) -> None:
    """Print text that wraps between words on a terminal, and is a line of any length elsewhere."""
    console.print(text, highlight=False, soft_wrap=not console.is_terminal)


class Heartbeat:
    """Says every `LINE_EVERY_S` seconds what is going on, where no bar can: the output is no terminal.

    In a thread of its own, so that it speaks in the middle of one long generation, pass or step too.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Begin, unless the console shows bars, or nothing at all."""
        if not self.console.is_terminal and not self.console.quiet:
            self._thread.start()

    def stop(self) -> None:
        """No line comes after this."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _beat(self) -> None:
        while not self._stopped.wait(LINE_EVERY_S):
            print_line(self.console, work_line(present_work(), time.time()))


def work_line(work: Work, now_s: float) -> str:
    """A phase in one line: how far it is, at which rate, and the time left of what is counted."""
    line = f"    {work.phase}"
    spent = now_s - work.counted_since_s
    if work.done and spent > 0:
        rate = work.done / spent
        line += f" {work.done}/{work.total}, {rate:.3g} a second, about {(work.total - work.done) / rate:.0f} s left"
    return f"{line} ({now_s - work.since_s:.0f} s so far)"


# PPO and its relatives.


class ConsoleView(Callback):
    """Prints a run for rank 0. On a terminal a live bar stays at the bottom, and lines wrap between words; elsewhere there are only
    lines, of any length.

    Args:
        console: where to print.
        live: whether to show the bar on a terminal.
        sample_every: episodes between printed samples; 0 = never.
        samples_path: JSONL file that samples are also written to.
    """

    def __init__(
        self, console: Console, live: bool = True, sample_every: int = 0, samples_path: Path | None = None
    ) -> None:
        self.console = console
        self.sample_every, self.samples_path = sample_every, samples_path
        self._told_of_failure = False
        self._collected: Collected | None = None
        self._name = "evaluating"
        self._progress = make_bar(console, live)
        self._task = self._progress.add_task("starting", total=None)
        self._heartbeat = Heartbeat(console)

    def on_fit_start(self, trainer: Any) -> None:
        self._progress.start()
        self._heartbeat.start()
        steps = trainer.plan.num_episodes
        self._progress.update(self._task, total=steps, completed=trainer.progress.episode, description="evaluating")

    def on_fit_end(self, trainer: Any) -> None:
        self.close()

    def close(self) -> None:
        """Take the bar away; also when the run ends by an error."""
        self._progress.stop()
        self._heartbeat.stop()

    def on_episode_start(self, trainer: Any, episode: int) -> None:
        self._phase("rollout")

    def on_make_experience_start(self, trainer: Any) -> None:
        self._phase("rollout")

    def on_make_experience_end(self, trainer: Any, collected: "Collected") -> None:
        self._collected = collected
        failures = (sample.columns.get("environment_failure") for sample in collected.samples)
        if not self._told_of_failure and (failure := next(filter(None, failures), None)):
            self._told_of_failure = True
            self.on_warning(
                trainer,
                f"the environment failed ({failure}), and its episode is left out; environment/ended_failed counts further ones",
            )

    def on_learn_epoch_start(self, trainer: Any, epoch: int) -> None:
        self._phase("update")

    def on_learn_batch_end(self, trainer: Any, batch: "Sequence[Experience]") -> None:
        self._phase(f"update {trainer.progress.mini_batch}")

    def on_evaluate_start(self, trainer: Any) -> None:
        self._phase("evaluating")

    def on_evaluate_end(self, trainer: Any, metrics: Mapping[str, float]) -> None:
        for line in evaluation_lines(metrics, trainer.progress.episode, trainer.config.eval.eval_temperature):
            print_line(self.console, line)

    def on_episode_end(self, trainer: Any, episode: int, metrics: Mapping[str, float]) -> None:
        self._progress.update(self._task, completed=episode + 1)
        total = trainer.plan.num_episodes
        print_line(self.console, f"{episode + 1:>{len(str(total))}}/{total}  {episode_line(metrics)}")
        if self._collected is None or not self.sample_every:
            return
        if episode % self.sample_every == 0 or episode + 1 == total:
            self._show_samples(trainer.tracker, self._collected, episode + 1)

    def on_warning(self, trainer: Any, message: str) -> None:
        self.console.print(f"[bold yellow]warning:[/] {escape(message)}")

    def on_generated(self, finished: int, total: int, tokens: int) -> None:
        """Show the progress of a generation; the engine calls it now and then."""
        report_progress(finished, total)
        self._progress.update(self._task, description=f"{self._name} {finished}/{total}, {tokens:,} tokens")

    def _phase(self, name: str) -> None:
        self._name = name
        self._progress.update(self._task, description=name)

    def _show_samples(self, tracker: Tracker, collected: "Collected", episode: int) -> None:
        told = collected.samples[:SAMPLES_WRITTEN], collected.results[:SAMPLES_WRITTEN]
        tracker.log_samples(episode, tracked_samples(*told))
        for index, (sample, result) in enumerate(zip(*told, strict=True)):
            verdict = result.outcome.status if result.outcome else "-"
            row: dict[str, Any] = {
                **in_json(sample.columns),  # which `rlvr score` gives to a function that asks for them
                "step": episode,
                "question": sample.question,
                "prompt": sample.prompt,
                "response": _text_of(sample),
                "gold": sample.gold,
                "score": result.total,
                "verdict": verdict,
            }
            if self.samples_path is not None:
                append_json(self.samples_path, row)
            if index < SAMPLES_SHOWN:
                print_line(
                    self.console,
                    f"    [dim]{escape(_short(sample.question or sample.prompt))}[/] {escape(_short(_text_of(sample)))} "
                    f"[dim]gold[/] {escape(str(sample.gold))} [dim]score[/] {_number(result.total)} [dim]{verdict}[/]",
                )


def _text_of(sample: Sample) -> str:
    """The response; of an episode with an environment, all turns."""
    return "\n".join(sample.columns.get("environment_turns") or [sample.response])


def in_json(columns: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that JSON can hold; Parquet files and the hub have others (dates, pictures)."""
    return {name: value for name, value in columns.items() if _is_json(value)}


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _short(text: str, limit: int = 300) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[: limit // 2]} ... {text[-limit // 2 :]}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def evaluation_lines(metrics: Mapping[str, float], episodes: int, temperature: float) -> Iterator[str]:
    """Held-out accuracy over all data sets, then of each by itself if there are several, and how it was sampled."""
    prefixes = [name.removesuffix("/accuracy") for name in metrics if name.endswith("/accuracy")]
    for prefix in sorted(prefixes, key=len):
        of_it = {name.removeprefix(f"{prefix}/"): v for name, v in metrics.items() if name.startswith(f"{prefix}/")}
        name = escape(prefix.removeprefix("eval/"))
        what = (
            f"[bold]held-out accuracy {of_it['accuracy']:.1%}[/]"
            if prefix == "eval"
            else f"    {name} {of_it['accuracy']:.1%}"
        )
        parts = [f"temperature {temperature:g}" if temperature else "greedy"]
        parts += (
            [f"95 %: {of_it['accuracy_low']:.1%} to {of_it['accuracy_high']:.1%}"] if "accuracy_low" in of_it else []
        )
        parts += [f"{k.replace('_at_', '@')} {of_it[k]:.1%}" for k in _largest_k(of_it)]
        parts += [f"{of_it['length_tokens']:.0f} tokens a response"] if "length_tokens" in of_it else []
        parts += [f"{of_it['format']:.0%} in format"] if "format" in of_it else []
        parts += [f"score {of_it['environment']:.3f} in {of_it['turns']:.1f} turns"] if "turns" in of_it else []
        yield f"{what} after {episodes} episodes ({', '.join(parts)})"


def _largest_k(of_it: Mapping[str, float]) -> list[str]:
    """Names of pass@k and maj@k for the largest k, the number of responses to a problem."""
    ks = [int(name.removeprefix("pass_at_")) for name in of_it if name.startswith("pass_at_")]
    return [f"{kind}_at_{max(ks)}" for kind in ("pass", "maj")] if ks else []


def episode_line(metrics: Mapping[str, float]) -> str:
    """An episode in one line: the reward, how far the policy moved, and the share of time of each phase."""
    parts = [f"reward {metrics.get('objective/scores', float('nan')):.3f}"]
    if "outcome/correct" in metrics:
        parts.append(f"correct {metrics['outcome/correct']:.1%}")
    parts += [
        f"KL {metrics.get('objective/kl', 0):.3f}",
        f"length {metrics.get('response/length_tokens', 0):.0f}",
        f"cut {metrics.get('response/truncated', 0):.0%}",
    ]
    phases = [name for name in ("rollout", "reward", "score", "update") if f"time/{name}" in metrics]
    total = sum(metrics[f"time/{name}"] for name in phases) or 1.0
    shares = " ".join(f"{name} {metrics[f'time/{name}'] / total:.0%}" for name in phases)
    used = metrics.get("memory/device_peak_bytes", metrics.get("memory/rss_peak_bytes"))
    memory = "" if used is None else f"  {readable(used)}"
    return "  ".join(parts) + f"  | {metrics.get('time/episode', 0):.1f}s: {shares}{memory}"


# Supervised training.


_SHOWN = (
    ("train/loss", "loss {:.4f}"),
    ("train/accuracy", "accuracy {:.1%}"),
    ("train/score_difference", "difference {:.3f}"),
    ("grad_norm", "gradient {:.2f}"),
    ("lr", "lr {:.2e}"),
)
_HELD_OUT = (
    ("eval/loss", "loss {:.4f}"),
    ("eval/perplexity", "perplexity {:.4g}"),
    ("eval/accuracy", "accuracy {:.1%}"),
    ("eval/calibration_error", "calibration error {:.3f}"),
    ("eval/brier", "Brier {:.3f}"),
)


class SupervisedView(Callback):
    """Prints a supervised run for rank 0. On a terminal a live bar stays at the bottom; elsewhere there are only lines.

    Args:
        console: where to print.
        live: whether to show the bar on a terminal.
    """

    def __init__(self, console: Console, live: bool = True) -> None:
        self.console = console
        self._bar = make_bar(console, live)
        self._task = self._bar.add_task("evaluating", total=None)
        self._heartbeat = Heartbeat(console)

    def on_fit_start(self, trainer: Any) -> None:
        self._bar.start()
        self._heartbeat.start()
        self._bar.update(self._task, total=trainer.total_steps, completed=trainer.progress.optimizer_steps)

    def on_fit_end(self, trainer: Any) -> None:
        self.close()

    def close(self) -> None:
        """Take the bar away; also when the run ends by an error."""
        self._bar.stop()
        self._heartbeat.stop()

    def on_step_end(self, trainer: Any) -> None:
        self._bar.update(self._task, completed=trainer.progress.optimizer_steps, description="learning")

    def on_log(self, trainer: Any, metrics: Mapping[str, float]) -> None:
        total = trainer.total_steps
        self._print(f"{trainer.progress.optimizer_steps:>{len(str(total))}}/{total}  {_line(_SHOWN, metrics)}")

    def on_evaluate_pass(self, trainer: Any, done: int, passes: int) -> None:
        self._bar.update(self._task, description=f"evaluating {done}/{passes}")
        report_progress(done, passes)

    def on_evaluate_end(self, trainer: Any, metrics: Mapping[str, float]) -> None:
        self._print(f"[bold]held out:[/] {_line(_HELD_OUT, metrics)} after {trainer.progress.optimizer_steps} steps")

    def on_warning(self, trainer: Any, message: str) -> None:
        self._print(f"[bold yellow]warning:[/] {escape(message)}")

    def _print(self, text: str) -> None:
        print_line(self.console, text)


def _line(shown: tuple[tuple[str, str], ...], metrics: Mapping[str, float]) -> str:
    return "  ".join(form.format(metrics[name]) for name, form in shown if name in metrics)
