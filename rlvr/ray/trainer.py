"""`RayPPOTrainer`: the loop of PPO with its roles on a Ray cluster.

It runs in the driver, which holds experience and settings and no model. `OnlineTrainer` is the loop; `Learners` stands where the
local trainer has its `Learner`. Added is only generation one step ahead of learning (`--one_step_off_policy`).
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rlvr.checkpoint.checkpointer import Loaded, SavedRole
from rlvr.data.examples import Example
from rlvr.experience.experience import Experience
from rlvr.prompting.conversation import Conversation
from rlvr.ray.experience import ExperienceMaker
from rlvr.ray.groups import (
    PPOActorRayActorGroup,
    PPOCriticRayActorGroup,
    PPORolloutRayActorGroup,
    TrainableModelRayActorGroup,
)
from rlvr.tracking.meter import Meter
from rlvr.trainer.online import OnlineTrainer


@dataclass
class Learners:
    """The groups that learn, and the copies of the actor that generate ahead, if there are any.

    All experience is in the driver, so the loop sees a single replica; each group divides a mini-batch among its own
    processes.
    """

    actor: PPOActorRayActorGroup
    critic: PPOCriticRayActorGroup | None
    copies: PPORolloutRayActorGroup | None = None
    has_adapter: bool = False
    skipped: int = 0

    device = torch.device("cpu")
    replicas = 1

    @property
    def has_critic(self) -> bool:
        return self.critic is not None

    @property
    def saved_roles(self) -> Mapping[str, SavedRole]:
        return {"actor": self.actor} if self.critic is None else {"actor": self.actor, "critic": self.critic}

    def add_up(self, values: Tensor) -> Tensor:
        return values

    def pool(self, items: Sequence[Experience]) -> Sequence[Experience]:
        return items

    def step(
        self, batch: Sequence[Experience], meter: Meter, *, kl_coef: float, actor_learns: bool, ptx: Sequence[Example]
    ) -> None:
        """One optimizer step of actor and critic on one mini-batch, both at the same time."""
        asked: list[tuple[TrainableModelRayActorGroup, list[Any]]] = []
        if actor_learns:
            asked.append((self.actor, self.actor.learn(batch, kl_coef, ptx)))
        if self.critic is not None:
            asked.append((self.critic, self.critic.learn(batch, kl_coef)))
        answers = [group.collect(refs) for group, refs in asked]  # waited for only after both have begun
        self.skipped = max(state["skipped"] for states in answers for state in states)
        for states in answers:
            for state in states:
                meter.merge(state)

    def forget_moments(self) -> None:
        self.actor.collect(self.actor.ask("forget_moments"))

    def share_weights(self) -> None:
        """Give the copies that generate the actor's present weights."""
        if self.copies is None:
            return
        weights, *_ = self.actor.ask("weights")  # rank 0's reference: the weights don't pass through the driver
        self.copies.collect(self.copies.ask("take_weights", weights))

    def evaluate(self) -> dict[str, float]:
        """Held-out metrics."""
        return dict(self.actor.collect(self.actor.ask("evaluate"))[0])


class RayPPOTrainer(OnlineTrainer):
    """PPO whose roles are Ray actor groups; `OnlineTrainer`, and generation one step ahead of learning.

    Args:
        conversation: the policy's template.
        parts, options: arguments of `OnlineTrainer`.
    """

    learner: Learners
    maker: ExperienceMaker

    def __init__(self, *parts: Any, conversation: Conversation, **options: Any) -> None:
        super().__init__(*parts, **options)
        self.conversation = conversation
        # Responses that a loaded checkpoint had generated ahead. Their prompts are known only when `fit` gets its loader.
        self._ahead: Sequence[dict[str, Any]] = ()

    def _next_prompts(self) -> Sequence[Any]:
        if self.maker.ahead:
            # Each prompt once, of the responses that are sampled already.
            return self.maker.ahead[0].prompts[:: self.config.rollout.num_generations]
        self.learner.share_weights()
        return super()._next_prompts()

    def _before_collecting(self) -> Callable[[], None]:
        undo = super()._before_collecting()
        if not self.maker.ahead:
            return undo
        self.maker.ahead_state()  # turns streams, which can be read once, into responses that can be taken again
        ahead = list(self.maker.ahead)

        def undo_all() -> None:
            undo()
            self.maker.ahead = deque(ahead)

        return undo_all

    def _begin_learning(self) -> None:
        """Also begin to generate for the next episode, with the weights from before this episode's updates."""
        super()._begin_learning()
        episode = self.progress.episode + 1
        if self.learner.copies is None or episode >= self.plan.num_episodes:
            return
        self.learner.share_weights()
        for step in range(self.plan.num_collect_steps):
            prompts = [p for p in super()._next_prompts() for _ in range(self.config.rollout.num_generations)]
            seed = self.config.train.seed
            self.maker.ahead.append(self.maker.generate(prompts, self.maker.sampling, seed, episode, step))

    def own_state_dict(self) -> dict[str, Any]:
        return super().own_state_dict() | {"ahead": self.maker.ahead_state()}

    def _take_up(self, loaded: Loaded) -> None:
        super()._take_up(loaded)
        # A checkpoint of a run without Ray has none.
        self._ahead = loaded.own.get("ahead", ()) if loaded.own is not None else ()

    def _take_loaders(self, prompt_dataloader: Any, pretrain_dataloader: Any) -> None:
        super()._take_loaders(prompt_dataloader, pretrain_dataloader)
        if self._ahead:
            self.maker.load_ahead_state(self._ahead, prompt_dataloader.items, self.tokenizer, self.conversation)
        self._ahead = ()
