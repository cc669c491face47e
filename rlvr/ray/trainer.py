"""`RayPPOTrainer`: the loop of PPO with its roles on a Ray cluster. Itself it holds experience, settings and no model."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlvr import build
from rlvr.config import Config
from rlvr.conversation import Conversation
from rlvr.core.advantages import get_estimator
from rlvr.errors import UserError
from rlvr.experience.buffer import ExperienceBuffer
from rlvr.experience.experience import Experience
from rlvr.experience.settings import ExperienceSettings
from rlvr.models.lora_settings import LoraSettings
from rlvr.ray.experience import ExperienceMaker, Roles
from rlvr.ray.groups import (
    PPOActorRayActorGroup,
    PPOCriticRayActorGroup,
    PPORolloutRayActorGroup,
    TrainableModelRayActorGroup,
)
from rlvr.ray.pieces import add_metrics
from rlvr.ray.rewards import RemoteScorer
from rlvr.ray.roles import LearnRequest
from rlvr.trainer.callbacks import Callback
from rlvr.trainer.ppo_loop import PPOLoop
from rlvr.trainer.settings import PPOSettings
from rlvr.trainer.weights import PPOCheckpointer

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Learners:
    """The groups that learn, and the copies of the actor that generate ahead, if there are any."""

    actor: PPOActorRayActorGroup
    critic: PPOCriticRayActorGroup | None
    copies: PPORolloutRayActorGroup | None = None


class RayPPOTrainer(PPOLoop):
    """PPO whose roles are Ray actor groups.

    Args:
        config: the run's settings.
        learners: the groups that learn.
        roles: those that experience comes from.
        scorer: pays.
        tokenizer, conversation: of the policy.
        lora: the settings of adapters; None where whole models learn.
        save_dir: the run's folder, which all nodes must see.
        run_state: what run this is.
        callbacks: hooks.
    """

    def __init__(
        self,
        config: Config,
        learners: Learners,
        roles: Roles,
        scorer: RemoteScorer,
        tokenizer: Any,
        conversation: Conversation,
        lora: LoraSettings | None,
        save_dir: Path,
        run_state: Mapping[str, Any],
        callbacks: Sequence[Callback] = (),
    ) -> None:
        super().__init__(
            callbacks=callbacks,
            save_interval=config.ckpt.save_interval,
            save_dir=save_dir,
            eval_interval=config.eval.eval_interval,
        )
        t, whiten = config.train, config.algo.whiten_advantages
        self.learners, self.lora, self.tokenizer, self.conversation = learners, lora, tokenizer, conversation
        self.train_batch_size, self.accumulation_steps = t.train_batch_size, t.accumulation_steps
        self.sample_buffer, self.buffer_cpu_offload, self.seed = t.sample_buffer, True, t.seed
        self.num_generations = config.rollout.num_generations
        self.whiten_advantages = get_estimator(config.algo.estimator).whiten if whiten is None else whiten
        self.settings = _ppo_settings(config, tokenizer)
        sampling = build.training_sampling(config, conversation)
        self.maker: ExperienceMaker = ExperienceMaker(roles, scorer, sampling, _experience_settings(config, tokenizer))
        self.buffer = ExperienceBuffer(t.buffer_limit)
        self._checkpointer = RayCheckpointer(
            self, dict(run_state), config.ckpt.keep_checkpoints, config.model.lora_merge
        )

    @property
    def has_critic(self) -> bool:
        return self.learners.critic is not None

    @property
    def has_adapter(self) -> bool:
        return self.lora is not None

    @property
    def replicas(self) -> int:
        """All experience is in this process."""
        return 1

    def _add_up(self, values: Tensor) -> Tensor:
        return values

    def _pool(self, items: Sequence[Experience]) -> Sequence[Experience]:
        return items

    def _training_step(self, batch: Sequence[Experience]) -> None:
        """One optimizer step of actor and critic on one mini-batch, both at once."""
        asked: list[tuple[TrainableModelRayActorGroup, list[Any]]] = []
        if self._actor_learns:
            ptx = next(self._ptx) if self.settings.ptx_coef else ()
            actor = self.learners.actor
            asked.append((actor, actor.learn(batch, LearnRequest(self.settings, self.train_batch_size, ptx))))
        if (critic := self.learners.critic) is not None:
            asked.append((critic, critic.learn(batch, LearnRequest(self.settings, self.train_batch_size))))
        for group, refs in asked:
            add_metrics(self.meter, group.collect(refs))

    def _next_prompts(self) -> Sequence[Any]:
        if self.maker.ahead:
            return self.maker.ahead[0].prompts[:: self.num_generations]
        self._share_weights()
        return super()._next_prompts()

    def _before_collecting(self) -> Callable[[], None]:
        undo = super()._before_collecting()
        if not self.maker.ahead:
            return undo
        self.maker.ahead_state()  # from here on it can be taken twice
        ahead = list(self.maker.ahead)

        def undo_all() -> None:
            undo()
            self.maker.ahead = deque(ahead)

        return undo_all

    def _begin_learning(self) -> None:
        """Also begin to generate for the next episode, with the weights that are there now."""
        super()._begin_learning()
        episode = self.progress.episode + 1
        if self.learners.copies is None or episode >= self.plan.num_episodes:
            return
        self._share_weights()
        for step in range(self.plan.num_collect_steps):
            prompts = [p for p in super()._next_prompts() for _ in range(self.num_generations)]
            self.maker.ahead.append(self.maker.generate(prompts, self.maker.sampling, self.seed, episode, step))

    def _share_weights(self) -> None:
        """The copies that generate become the actor as it is now."""
        if self.learners.copies is None:
            return
        weights, *_ = self.learners.actor.ask("weights")
        self.learners.copies.collect(self.learners.copies.ask("take_weights", weights))

    def evaluate(self) -> dict[str, float]:
        """Held-out metrics."""
        group = self.learners.actor
        return dict(group.collect(group.ask("evaluate"))[0])

    def _device(self) -> torch.device:
        return CPU


def _ppo_settings(config: Config, tokenizer: Any) -> PPOSettings:
    a = config.algo
    return PPOSettings(
        temperature=config.rollout.temperature,
        eps_clip=a.eps_clip,
        vf_coef=a.vf_coef,
        value_clip=a.value_clip,
        ptx_coef=a.ptx_coef,
        kl_coef=a.kl_coef,
        constant_tokens=config.rollout.max_new_tokens,
        pad_id=tokenizer.pad_token_id or 0,
        pin_memory=True,
        **build.ppo_settings(config),
    )


def _experience_settings(config: Config, tokenizer: Any) -> ExperienceSettings:
    a = config.algo
    return ExperienceSettings(
        temperature=config.rollout.temperature,
        num_generations=config.rollout.num_generations,
        keep_positive=a.positive_lm_coef > 0,
        kl_coef=a.kl_coef,
        kl_in=a.kl_in,
        kl_estimator=a.kl_estimator,
        pad_id=tokenizer.pad_token_id or 0,
        **build.experience_settings(config),
    )


class RayCheckpointer(PPOCheckpointer):
    """The checkpoints of one process, whose models others write: a run goes on from them with Ray and without."""

    trainer: RayPPOTrainer

    def _group(self, name: str) -> Any:
        return getattr(self.trainer.learners, name)

    def _training_states(self) -> dict[str, Any]:
        return dict.fromkeys(self.roles)

    @contextmanager
    def _exact(self) -> Iterator[dict[str, Any]]:
        yield {name: self._group(name) for name in self.roles}

    def _save_role(self, name: str, module: Any, folder: Path, state: Any) -> None:
        module.collect(module.ask("save", folder.absolute()))
        _check_seen(folder / "training.pt")

    def _write(self, name: str, module: Any, folder: Path, whole: bool) -> None:
        module.collect(module.ask("write", folder.absolute(), whole))
        _check_seen(folder)

    def _load_role(self, name: str, folder: Path) -> None:
        group = self._group(name)
        group.collect(group.ask("load", folder.absolute()))

    def _own_state(self) -> dict[str, Any]:
        return super()._own_state() | {"ahead": self.trainer.maker.ahead_state()}

    def _load_own_state(self, own: dict[str, Any]) -> None:
        super()._load_own_state(own)
        self._ahead = own.get("ahead", [])

    _ahead: Sequence[dict[str, Any]] = ()

    def restore_loaders(self) -> None:
        """Also hand out what was generated ahead: its prompts are the loader's."""
        super().restore_loaders()
        t = self.trainer
        if self._ahead:
            t.maker.load_ahead_state(self._ahead, t.prompt_loader.items, t.tokenizer, t.conversation)
        self._ahead = ()


def _check_seen(path: Path) -> None:
    if not path.exists():
        raise UserError(
            f"a process on another node wrote {path}, and this node does not see it: --save_path must lie on storage that all "
            "nodes share"
        )
