"""`RayPPOTrainer`: the loop of PPO with its roles on a Ray cluster.

It runs in the driver, which holds experience and settings and no model. `OnlineTrainer` is the loop; `Learners` stands where the
local trainer has its `Learner`. Added is only what rollout workers need: weights, and prompts for `--max_staleness` K episodes ahead.

The contract of generation ahead: what episode i begins with was sampled by the weights after max(0, i - K) episodes, from prompts and
random numbers that its place in the run names. So the weights after each episode are the same whatever worker answers first,
dies, or is slow; and at K = 0 they are those of a run whose actor generates. With `--partial_rollout_tokens` N a response begins so, and
every N of its tokens the next weights take over (`rlvr.ray.ahead`).
"""

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
from rlvr.ray.groups import PPOActorRayActorGroup, PPOCriticRayActorGroup, TrainableModelRayActorGroup
from rlvr.ray.rollout import RolloutWorkers, Weights
from rlvr.tracking.meter import Meter
from rlvr.trainer.online import OnlineTrainer


@dataclass
class Learners:
    """The groups that learn, and the rollout workers that get the actor's weights, if there are any.

    All experience is in the driver, so the loop sees a single replica; each group divides a mini-batch among its own
    processes.
    """

    actor: PPOActorRayActorGroup
    critic: PPOCriticRayActorGroup | None
    workers: RolloutWorkers | None = None
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

    def publish(self, version: int) -> None:
        """Give the rollout workers the actor's weights after so many episodes, unless they have them."""
        if self.workers is not None and (self.workers.weights is None or self.workers.weights.version != version):
            # Rank 0's references: the weights don't pass through the driver.
            self.workers.publish(Weights(version, self.actor.collect(self.actor.ask("publish"))[0]))

    def evaluate(self) -> dict[str, float]:
        """Held-out metrics."""
        return dict(self.actor.collect(self.actor.ask("evaluate"))[0])


class RayPPOTrainer(OnlineTrainer):
    """PPO whose roles are Ray actor groups; `OnlineTrainer`, and what rollout workers need.

    Args:
        conversation: the policy's template.
        parts, options: arguments of `OnlineTrainer`.
    """

    learner: Learners
    maker: ExperienceMaker

    def __init__(self, *parts: Any, conversation: Conversation, **options: Any) -> None:
        super().__init__(*parts, **options)
        self.conversation = conversation
        # Responses that a loaded checkpoint had ahead. Their prompts are known only when `fit` gets its loader.
        self._ahead: Sequence[dict[str, Any]] = ()

    def _run_episode(self) -> None:
        if not self.progress.learning:
            self.learner.publish(self.progress.episode)
            self._ask_ahead()
        super()._run_episode()

    def _ask_ahead(self) -> None:
        """Ask for the collect steps of this and the next `max_staleness` episodes, as far as they were not asked for before, and have
        responses that were begun go on."""
        staleness, steps = self.config.ray.max_staleness, self.plan.num_collect_steps
        if not staleness:
            return
        self.maker.go_on()
        current, last = self.progress.episode, min(self.progress.episode + staleness, self.plan.num_episodes - 1)
        begun = current * steps + self.progress.collect_step
        for number in range(begun, (last + 1) * steps):
            place = self._place_of(*divmod(number, steps))
            if self.maker.prompts_ahead(*place) is None:
                self.maker.ask_ahead(self._draw_prompts(), *place)

    def _prompts_of(self, *place: int) -> Sequence[Any]:
        return self.maker.prompts_ahead(*place) or super()._prompts_of(*place)

    def _before_collecting(self) -> Callable[[], None]:
        undo = super()._before_collecting()
        ahead = dict(self.maker.ahead)

        def undo_all() -> None:
            undo()
            self.maker.ahead = ahead

        return undo_all

    def _evaluate(self, metrics: dict[str, float]) -> dict[str, float]:
        if self.evaluator is not None:
            self.learner.publish(self.progress.episode)
        return super()._evaluate(metrics)

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
