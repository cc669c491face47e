"""Our side: `PPOTrainer` on the given work. Run by the benchmarks: python -m benchmarks.sides.rlvr_ppo JSON."""

import json
import sys
from functools import partial
from typing import Any

import torch

from benchmarks.sides.talk import Side
from benchmarks.sides.work import (
    GROUP,
    MINI_BATCHES,
    PROMPTS,
    Work,
    copy_of,
    make_backbone,
    make_model,
    prompts,
    special_ids,
)


class Tokenizer:
    """Ids in, ids out: the rule reads no text."""

    bos_token_id = 2

    def __init__(self, work: Work) -> None:
        ids = special_ids(work)
        self.pad_token_id, self.eos_token_id = ids.pad, ids.end

    def decode(self, ids: Any, skip_special_tokens: bool = False) -> str:
        return " ".join(map(str, ids))


def parity(response: str) -> float:
    """A rule that costs nothing: does the response begin with an even id?"""
    first = response.split(" ", 1)[0]
    return float(first.isdigit() and int(first) % 2 == 0)


def main() -> None:
    side, work = Side(), Work(**json.loads(sys.argv[1]))
    trainer, loader = make_trainer(work)

    from rlvr.trainer.callbacks import Callback

    class Report(Callback):
        def on_episode_start(self, trainer: Any, episode: int) -> None:
            side.wait()

        def on_episode_end(self, trainer: Any, episode: int, metrics: Any) -> None:
            side.phases = {k.removeprefix("time/"): metrics[k] for k in metrics if k in PHASES}
            side.done(tokens=metrics["response/length_tokens"] * PROMPTS)

    trainer.callbacks.append(Report())
    side.say(ready=True, versions={"torch": torch.__version__})
    trainer.fit(10_000, 1, 1, loader)


PHASES = ("time/rollout", "time/reward", "time/score", "time/update")


def make_trainer(work: Work, batch: int = PROMPTS, plugin: str = "ddp") -> tuple[Any, Any]:
    """A trainer on random models of the work's size, and this process's share of `batch` prompts an iteration."""
    from rlvr.boost.plugins import make_booster
    from rlvr.boost.process import start
    from rlvr.config import ParallelConfig
    from rlvr.models.actor import Actor
    from rlvr.models.backbone import prepare
    from rlvr.models.critic import Critic
    from rlvr.scorers.rules import RLVRRewardModel
    from rlvr.trainer.ppo import PPOTrainer

    process = start(0, torch.get_num_threads())
    parallel = ParallelConfig(plugin=plugin, mixed_precision=work.precision)  # type: ignore[arg-type]
    booster = partial(make_booster, parallel, process.device, 1.0)
    model, tokenizer = make_model(work), Tokenizer(work)
    grpo = work.recipe == "grpo"
    reference = None if grpo else Actor(prepare(copy_of(model), False))
    actor = Actor(prepare(model, False))
    critic = None if grpo else Critic(prepare(make_backbone(work), False))
    trainer = PPOTrainer(
        booster(), None if critic is None else booster(), actor, critic, RLVRRewardModel([parity], tokenizer), reference,
        _optimizer(actor), None if critic is None else _optimizer(critic), None, None, tokenizer,
        kl_coef=0.0 if grpo else 0.05, train_batch_size=batch // MINI_BATCHES, max_new_tokens=work.response_tokens,
        # TRL's PPO takes the logprobs of generation as the old ones; its GRPO computes them anew.
        settings={"mixed_precision": work.precision}
        | ({"estimator": "grpo", "num_generations": GROUP} if grpo else {"old_logprobs": "sampled"}),
    )  # fmt: skip
    return trainer, _Loader(work, slice(process.rank, batch, process.world_size))


def _optimizer(model: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-6, fused=True)


class _Loader:
    """Batches of prompts without end; of each, the `share`."""

    def __init__(self, work: Work, share: slice) -> None:
        self.work, self.share = work, share

    def __iter__(self) -> Any:
        from rlvr.data.problems import Problem
        from rlvr.data.prompts import Prompt

        for iteration in range(10_000):
            rows = prompts(self.work, iteration)[self.share]
            yield [Prompt(Problem(id=str(i), question="", answer="1"), tuple(ids)) for i, ids in enumerate(rows)]


if __name__ == "__main__":
    main()
