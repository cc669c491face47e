"""A small PPO run for tests: a random model, letters for tokens, a reward that counts a letter."""

import inspect
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from tiny_models import VOCAB, tiny_model

from rlvr.boost.optimizer import lr_schedule
from rlvr.boost.plugins import make_booster
from rlvr.config import Config, ParallelConfig, by_section, merge
from rlvr.core.advantages import get_estimator
from rlvr.data.problems import Problem
from rlvr.data.prompts import Prompt, PromptLoader
from rlvr.data.sampling import PromptSampler
from rlvr.experience.experience import Experience
from rlvr.models.actor import Actor, ActorWithValues
from rlvr.models.critic import Critic
from rlvr.models.lora import apply_lora, copy_sharing, quantize_base
from rlvr.models.lora_config import LoraSettings
from rlvr.rollout.engine import Engine, Rollout, Sampling
from rlvr.scorers.rules import RLVRRewardModel
from rlvr.tracking.tracker import JsonlSink, Tracker
from rlvr.trainer.callbacks import Callback
from rlvr.trainer.ppo import PPOTrainer

CPU = torch.device("cpu")


class LetterTokenizer:
    """Token i is the i-th of forty characters; 1 is EOS and PAD at once."""

    pad_token_id, eos_token_id, bos_token_id = 1, 1, 0
    letters = "".join(chr(ord("A") + i) for i in range(VOCAB))

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        return "".join(self.letters[i] for i in ids if not (skip_special_tokens and i < 2))

    def save_pretrained(self, folder: Path) -> None: ...


class StopAfter(Callback):
    """Asks for a stop, as a signal would, after so many safe points."""

    def __init__(self, count: int) -> None:
        self.left = count

    def _count(self, trainer: PPOTrainer) -> None:
        self.left -= 1
        if self.left == 0:
            trainer._interrupt.signum = 15

    def on_make_experience_end(self, trainer: PPOTrainer, collected: Any) -> None:
        self._count(trainer)

    def on_learn_batch_end(self, trainer: PPOTrainer, batch: Any) -> None:
        self._count(trainer)


class FixedEngine(Engine):
    """Returns given responses, in turn."""

    def __init__(self, responses: Sequence[Sequence[int]], stop_id: int = 1) -> None:
        self.responses, self.stop_id, self.calls = list(responses), stop_id, 0

    def stream(self, model: Any, prompts: Sequence[Prompt], sampling: Sampling, seed: Any) -> Iterator[list[Rollout]]:
        rollouts = []
        for prompt in prompts:
            ids = list(self.responses[self.calls % len(self.responses)])
            self.calls += 1
            reason = "stop" if ids and ids[-1] == self.stop_id else "length"
            rollouts.append(Rollout(torch.tensor(prompt.ids), torch.tensor(ids, dtype=torch.long), reason))
        yield rollouts


def share_of_f(response: str) -> float:
    """How much of the response is the letter F."""
    return response.count("F") / max(1, len(response))


def prompts(count: int = 40) -> list[Prompt]:
    return [
        Prompt(Problem(id=str(i), question=f"q{i}", answer="F"), (5 + i % 20, *range(6, 6 + i % 3)))
        for i in range(count)
    ]


def loader(per_step: int = 32, count: int = 40, seed: int = 0) -> PromptLoader:
    return PromptLoader(prompts(count), PromptSampler(count, per_step, seed), 0, 1)


def make_trainer(folder: Path | None = None, **changes: Any) -> PPOTrainer:
    """A trainer over fresh models that are the same each time. `changes` are its arguments, settings by their flags, or
    plugin, family, lr, steps, precision, lora (settings: the models get adapters, and there is no initial model), in_4bit (their
    base), shared (no critic: the actor gives values), sizes (of 3d: tp, pp, ...)."""
    known = {*inspect.signature(PPOTrainer).parameters, *Sampling.__dataclass_fields__}
    settings = changes.pop("settings", {})
    c = SimpleNamespace(
        plugin="ddp",
        family="llama",
        lr=1e-2,
        steps=48,
        precision="fp32",
        lora=None,
        in_4bit=False,
        shared=False,
        sizes={},
    )
    for name in list(vars(c)):
        setattr(c, name, changes.pop(name, getattr(c, name)))
    settings |= {name: changes.pop(name) for name in list(changes) if name not in known}
    actor, critic = make_roles(c.family, c.lora, c.shared, c.in_4bit)
    has_critic = get_estimator(settings.get("estimator", "gae")).critic and not c.shared
    learned = [[p for p in role.parameters() if p.requires_grad] for role in (actor, critic)]
    optims = [torch.optim.AdamW(parameters, lr=c.lr, fused=True) for parameters in learned]
    parallel = ParallelConfig(plugin=c.plugin, mixed_precision=c.precision, **c.sizes)
    clip = settings.get("grad_clip", 1.0)
    arguments: dict[str, Any] = {
        "kl_coef": 0.01,
        "train_batch_size": 16,
        "save_dir": folder,
        "max_new_tokens": 10,
        "tracker": Tracker([JsonlSink(folder / "metrics.jsonl")] if folder else []),
        "reward_model": RLVRRewardModel([share_of_f], LetterTokenizer()),
        "initial_model": None if c.lora else tiny_model(c.family),
    } | changes
    return PPOTrainer(
        make_booster(parallel, CPU, clip),
        make_booster(parallel, CPU, clip) if has_critic else None,
        actor,
        critic if has_critic else None,
        actor_optim=optims[0],
        critic_optim=optims[1] if has_critic else None,
        actor_lr_scheduler=lr_schedule(optims[0], c.steps),
        critic_lr_scheduler=lr_schedule(optims[1], c.steps) if has_critic else None,
        tokenizer=LetterTokenizer(),
        settings={"mixed_precision": c.precision, **settings},
        **arguments,
    )


def settings_of(**flat: Any) -> Config:
    """The defaults with these settings, named by their flags."""
    return merge(Config(), by_section(flat))


def make_roles(family: str, lora: LoraSettings | None, shared: bool, in_4bit: bool = False) -> tuple[Actor, Critic]:
    """Actor and critic; with LoRA over one base."""
    kind = ActorWithValues if shared else Actor
    base = tiny_model(family)
    if lora is None:
        return kind(base), Critic(tiny_model(family).base_model)
    if in_4bit:
        quantize_base(base)
    trunk = copy_sharing(base.base_model)
    return kind(apply_lora(base, lora)), Critic(apply_lora(trunk, lora))


def weights(trainer: PPOTrainer) -> torch.Tensor:
    """Every weight of actor and critic (if there is one) in one vector; only in rank 0 if they are sharded. Collective."""
    parts = []
    for role in (trainer.actor, trainer.critic):
        if role is not None:
            with role.full_precision_weights() as module:
                parts += [p.detach().flatten() for p in module.parameters()]
    return torch.cat(parts)


def experience(count: int = 8, seed: int = 0, masked: int | None = None) -> list[Experience]:
    """Random experience; the sample `masked` is not trained on at all."""
    g = torch.Generator().manual_seed(seed)
    items = []
    for index in range(count):
        prompt, length = (int(torch.randint(1, 6, (1,), generator=g)) for _ in range(2))
        draw = [torch.randn(length, generator=g) for _ in range(5)]
        items.append(
            Experience(
                prompt_ids=torch.randint(VOCAB, (prompt,), generator=g),
                response_ids=torch.randint(VOCAB, (length,), generator=g),
                logprobs=-3.7 + 0.3 * draw[0],
                ref_logprobs=-3.7 + 0.3 * draw[1],
                values=0.2 * draw[2],
                advantages=draw[3],
                returns=draw[4],
                mask=torch.full((length,), index != masked),
            )
        )
    return items
