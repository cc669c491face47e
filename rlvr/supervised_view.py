"""What a person sees of a supervised run: a live bar with the time left, and a line for each row of metrics."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape

from rlvr.console import make_bar
from rlvr.trainer.supervised import SupervisedCallback, SupervisedTrainer

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


class SupervisedView(SupervisedCallback):
    """Prints for rank 0. On a terminal a live bar stays at the bottom; elsewhere there are only lines.

    Args:
        console: where to print.
        live: whether to show the bar on a terminal.
    """

    def __init__(self, console: Console, live: bool = True) -> None:
        self.console = console
        self._bar = make_bar(console, live)
        self._task = self._bar.add_task("evaluating", total=None)

    def on_fit_start(self, trainer: SupervisedTrainer[Any]) -> None:
        self._bar.start()
        self._bar.update(self._task, total=trainer.settings.total_steps, completed=trainer.progress.step)

    def on_fit_end(self, trainer: SupervisedTrainer[Any]) -> None:
        self.close()

    def close(self) -> None:
        """Take the bar away; also when the run ends by an error."""
        self._bar.stop()

    def on_step_end(self, trainer: SupervisedTrainer[Any]) -> None:
        self._bar.update(self._task, completed=trainer.progress.step, description="learning")

    def on_log(self, trainer: SupervisedTrainer[Any], metrics: Mapping[str, float]) -> None:
        total = trainer.settings.total_steps
        self._print(f"{trainer.progress.step:>{len(str(total))}}/{total}  {_line(_SHOWN, metrics)}")

    def on_evaluate_pass(self, trainer: SupervisedTrainer[Any], done: int, passes: int) -> None:
        self._bar.update(self._task, description=f"evaluating {done}/{passes}")

    def on_evaluate_end(self, trainer: SupervisedTrainer[Any], metrics: Mapping[str, float]) -> None:
        self._print(f"[bold]held out:[/] {_line(_HELD_OUT, metrics)} after {trainer.progress.step} steps")

    def on_warning(self, trainer: SupervisedTrainer[Any], message: str) -> None:
        self._print(f"[bold yellow]warning:[/] {escape(message)}")

    def _print(self, text: str) -> None:
        self.console.print(text, highlight=False, soft_wrap=True)


def _line(shown: tuple[tuple[str, str], ...], metrics: Mapping[str, float]) -> str:
    return "  ".join(form.format(metrics[name]) for name, form in shown if name in metrics)
