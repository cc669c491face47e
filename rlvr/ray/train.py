"""`rlvr train --ray`: a whole run on a Ray cluster.

`on_ray` checks that the cluster has room; `RayHost` starts the groups of actors and puts a `RayPPOTrainer` over them, for
`rlvr.run.assembly`.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase
from transformers.utils.logging import disable_progress_bar

from rlvr.boost.health import enter_phase
from rlvr.boost.host import set_threads
from rlvr.boost.plugins import check_plugin, resolve_precision
from rlvr.boost.process import ProcessInfo, replica_of
from rlvr.checkpoint.storage import list_checkpoints
from rlvr.config import Config
from rlvr.errors import UserError
from rlvr.models.lora_config import LoraSettings
from rlvr.prompting.conversation import Conversation
from rlvr.ray.cluster import Cluster, ProcessDied, connect
from rlvr.ray.experience import ExperienceMaker, Roles
from rlvr.ray.groups import (
    PPOActorRayActorGroup,
    PPOCriticRayActorGroup,
    PPOInitialRayActorGroup,
    PPORewardRayActorGroup,
    Size,
    sizes,
)
from rlvr.ray.rewards import RemoteRewardModel, RemoteRules, RemoteScorer, RewardWorkers, wants_whole_batches
from rlvr.ray.rollout import RolloutEngine, RolloutWorkers
from rlvr.ray.trainer import Learners, RayPPOTrainer
from rlvr.run import assembly
from rlvr.run import parts as build
from rlvr.run.session import Session
from rlvr.validate.lora import lora_settings
from rlvr.validate.ppo import BatchPlan, plan_batches
from rlvr.validate.ray import check_shares

_KINDS: dict[str, Any] = {
    "actor": PPOActorRayActorGroup,
    "critic": PPOCriticRayActorGroup,
    "initial": PPOInitialRayActorGroup,
    "reward": PPORewardRayActorGroup,
    "rollout": RolloutWorkers,
}


@contextmanager
def on_ray(config: Config) -> Iterator[tuple[Session, BatchPlan, "RayHost"]]:
    """The session of a run whose roles are in processes of their own, its batch arithmetic, and their host.

    Raises:
        UserError: settings or cluster can't be used, or a process of a role died; says where to go on.
    """
    disable_progress_bar()
    enter_phase("start")
    set_threads(config.train.num_threads)
    plan = plan_batches(config, 1)
    whole = wants_whole_batches(config)  # loads reward plugins: their mistakes show before a cluster is started
    lora = lora_settings(config.model)
    nodes = _nodes(config, lora)
    r = config.ray
    wanted = sum(nodes.values()) * r.num_cpus_per_node + r.num_rollout_workers
    wanted += 0 if "reward" in nodes else r.max_reward_workers
    cluster = connect(r, wanted)
    with ExitStack() as stack:
        stack.callback(cluster.close)
        room = sizes(r, nodes, cluster)
        check_shares(config, {role: size.world_size for role, size in room.items()})
        device = torch.device("cuda" if room["actor"].gpu else "cpu")
        check_plugin(config.parallel, device)
        driver = ProcessInfo(rank=0, world_size=1, local_rank=0, device=torch.device("cpu"))
        session = stack.enter_context(Session.open(config, driver))
        host = RayHost(config, session, lora, _where(config, room, cluster, device), room, whole, stack)
        try:
            yield session, plan, host
        except ProcessDied as error:
            raise UserError(f"{error}, and training stopped. {_remedy(session.folder)}") from None


def _nodes(config: Config, lora: LoraSettings | None) -> dict[str, int]:
    """The roles that this run has, with their numbers of nodes."""
    r = config.ray
    there = {
        "actor": True,
        "critic": build.has_critic(config),
        "initial": build.has_initial_model(config, lora),
        "reward": config.model.rm_checkpoint_path is not None,
    }
    return {role: getattr(r, f"num_{role}_nodes") for role, is_there in there.items() if is_there}


def _where(config: Config, room: dict[str, Size], cluster: Cluster, device: torch.device) -> str:
    each = ", ".join(f"{role} {size.world_size}" for role, size in room.items())
    rules = "" if "reward" in room else f", reward workers {config.ray.min_reward_workers}"
    rules += "" if "reward" in room else f" to {config.ray.max_reward_workers}"
    precision = resolve_precision(config.parallel.mixed_precision, device)
    return f"on Ray, {cluster.nodes} node(s), {device.type}: {each}{rules}; {config.parallel.plugin}, {precision}"


def _remedy(folder: Path) -> str:
    found = list_checkpoints(folder)
    if not found:
        return "There is no checkpoint yet (--save_interval): start again with another --save_path"
    return f"Go on from {found[-1]} with the same command and --resume"


class RayHost:
    """The roles in actor groups on a cluster; this process, the driver, has none of them.

    Args:
        config: the run's settings.
        session: of the run.
        lora: settings of the adapters; None if whole models learn.
        where: machines, processes and precision, in words.
        room: the size of each role's group.
        whole: true if a reward function wants all responses of a collect step at once.
        stack: ends the processes when it is closed.
    """

    # The driver alone draws prompts and ptx rows; each group divides them among its processes.
    replica = replica_of()
    share = (0, 1)

    def __init__(
        self,
        config: Config,
        session: Session,
        lora: LoraSettings | None,
        where: str,
        room: dict[str, Size],
        whole: bool,
        stack: ExitStack,
    ) -> None:
        self.config, self.session, self.lora, self.where = config, session, lora, where
        self.room, self.whole, self.stack = room, whole, stack
        self.groups: dict[str, Any] = {}
        self.workers: RewardWorkers | None = None

    def begin(self, tokenizer: PreTrainedTokenizerBase, conversation: Conversation) -> None:
        """Start the processes, which load their models while the driver reads the data."""
        for role, size in self.room.items():
            self.groups[role] = _KINDS[role](size)
            self.stack.callback(self.groups[role].close)
        r = self.config.ray
        if "reward" not in self.groups:
            self.workers = RewardWorkers(self.config, r.min_reward_workers, r.max_reward_workers)
            self.stack.callback(self.workers.close)
        for group in self.groups.values():
            group.check_versions()
        # All but the actor, which needs the held-out problems to evaluate on.
        self.building = {role: group.build(self.config) for role, group in self.groups.items() if role != "actor"}

    def make_trainer(self, parts: assembly.Parts) -> RayPPOTrainer:
        config, groups = self.config, self.groups
        workers: RolloutWorkers | None = groups.get("rollout")
        self.building["actor"] = groups["actor"].build(config, () if workers else parts.prompts.test)
        for role, refs in self.building.items():
            groups[role].collect(refs)
        if config.model.ref_model and "initial" in groups:
            build.compare_vocabularies(groups["initial"].first("vocabulary"), self._vocabulary_of_the_actor())
        actor, critic = groups["actor"], groups.get("critic")
        sampling = build.training_sampling(config, parts.conversation)
        roles = Roles(actor, critic, groups.get("initial"), workers)
        learners = Learners(actor, critic, workers, has_adapter=self.lora is not None)
        trainer = RayPPOTrainer(
            config,
            ExperienceMaker(roles, self._scorer(), sampling, config),
            learners,
            parts.tokenizer,
            conversation=parts.conversation,
            callbacks=parts.callbacks,
            save_dir=self.session.folder,
            run_state=build.describe_run(config, parts.prompts, self.lora),
        )
        if parts.prompts.test:
            trainer.evaluator = learners.evaluate
        if workers is not None:
            workers.begin(self.session.note)
            engine = RolloutEngine(workers)
            evaluator = build.make_evaluator(config, parts.prompts.test, engine, parts.tokenizer, parts.conversation)
            if evaluator is not None:
                trainer.evaluator = lambda: evaluator(None, trainer.stop_asked)
        return trainer

    def _vocabulary_of_the_actor(self) -> int:
        actor = self.groups["actor"]
        return int(actor.collect(actor.ask("vocabulary"))[0])  # all ranks are asked: they gather the weights for it

    def _scorer(self) -> RemoteScorer:
        if self.workers is None:
            return RemoteRewardModel(self.groups["reward"])
        self.workers.check_versions()
        return RemoteRules(self.workers, self.whole)
