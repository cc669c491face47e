"""`SampleTable`: what the policy now answers to a few held-out prompts, with its scores."""

from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rlvr.data.prompts import Prompt
from rlvr.metrics import Meter
from rlvr.trackers.samples import tracked_samples
from rlvr.tracking import append_json
from rlvr.trainer.ppo import PPOTrainer

SHOWN, SENT = 5, 8


class SampleTable:
    """Answers the prompts greedily, prints some of the answers, and writes all to `samples.jsonl` in the run's folder.

    Args:
        trainer: whose policy answers, and whose reward model scores.
        prompts: the same each time; split over ranks here.
        console: where to print.
    """

    def __init__(self, trainer: PPOTrainer, prompts: Sequence[Prompt], console: Console) -> None:
        self.trainer, self.console = trainer, console
        # Every rank answers something: they meet where a reward model normalises its scores.
        self.prompts = list(prompts)[trainer.rank :: trainer.world_size] or list(prompts)[:1]

    def __call__(self) -> dict[str, float]:
        """`eval/scores`, `eval/length_tokens` over the prompts of all processes. Collective."""
        trainer, maker, meter = self.trainer, self.trainer.maker, Meter()
        sampling = replace(maker.sampling, temperature=0.0)
        responses = maker.respond(self.prompts, sampling, {}, "samples", trainer.rank)
        results = responses.scoring.result()
        told = responses.samples[:SENT], results[:SENT]
        trainer.tracker.log_samples(trainer.progress.episode, tracked_samples(*told))
        table = Table("query", "model response", "score", title=f"after {trainer.progress.episode} updates")
        for sample, result, rollout in zip(responses.samples, results, responses.rollouts, strict=True):
            if result.total is not None:
                meter.add("eval/scores", result.total)
            meter.add("eval/length_tokens", len(rollout.response_ids))
            row = {"step": trainer.progress.episode, "query": sample.prompt, "response": sample.response}
            if trainer.save_dir is not None and trainer.is_main:
                append_json(trainer.save_dir / "samples.jsonl", {**row, "score": result.total})
            if table.row_count < SHOWN:
                table.add_row(escape(sample.prompt), escape(sample.response), f"{result.total}")
        self.console.print(table)
        return meter.means()
