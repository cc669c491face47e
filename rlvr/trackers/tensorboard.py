"""TensorBoard: scalars, the settings and responses as text."""

from collections.abc import Mapping, Sequence

import yaml

from rlvr.trackers.about import About, starting
from rlvr.tracking import Sink, TrackedSample


class TensorBoardSink(Sink):
    """Writes event files into `log_dir`.

    It writes every two minutes, so a kill loses rows that others have: a resumed run has TensorBoard forget what lies
    behind the checkpoint, and writes it again.

    Raises:
        UserError: the folder can't be written.
    """

    name = "TensorBoard"

    def __init__(self, log_dir: str, about: About) -> None:
        from torch.utils.tensorboard import SummaryWriter

        purge = None if about.resumed_at is None else about.resumed_at + 1
        with starting(self, f"Give --log_dir a folder that can be written, not {log_dir}."):
            self.writer = SummaryWriter(log_dir, purge_step=purge)
        if about.config and about.resumed_at is None:
            self.writer.add_text("config", literal(yaml.safe_dump(dict(about.config), sort_keys=False)), 0)

    @property
    def failures(self) -> tuple[type[Exception], ...]:
        return (OSError,)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self.writer.add_scalar(name, value, step)

    def log_samples(self, step: int, samples: Sequence[TrackedSample]) -> None:
        self.writer.add_text("samples", "\n\n".join(map(_markdown, samples)), step)

    def close(self, failed: bool) -> None:
        self.writer.close()


def _markdown(sample: TrackedSample) -> str:
    reward = "-" if sample.reward is None else f"{sample.reward:.4g}"
    parts = {"prompt": sample.prompt, "think": sample.think, "answer": sample.answer}
    if not sample.think and not sample.answer:
        parts = {"prompt": sample.prompt, "response": sample.response}
    parts["gold"] = sample.gold
    told = [f"**{name}**\n\n{literal(text)}" for name, text in parts.items() if text]
    return "\n\n".join([f"**{sample.verdict}**, reward {reward}", *told, "---"])


def literal(text: str) -> str:
    """A block of Markdown that shows the text as it is, whatever it holds."""
    return "\n".join(f"    {line}" for line in text.splitlines())
