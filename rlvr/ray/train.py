"""`rlvr train --ray`: a whole run on a Ray cluster."""

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers.utils.logging import disable_progress_bar

from rlvr import build
from rlvr.boost import process as processes
from rlvr.boost.phases import board
from rlvr.boost.plugins import check_plugin, resolve_precision
from rlvr.boost.process import ProcessInfo
from rlvr.boost.replica import replica_of
from rlvr.checkpoint import list_checkpoints
from rlvr.checks.lora import lora_settings
from rlvr.checks.ray import check_shares
from rlvr.checks.settings import BatchPlan, plan_batches
from rlvr.config import Config
from rlvr.conversation import Conversation, choose_template
from rlvr.data.prompts import PromptLoader
from rlvr.data.sampling import PromptSampler
from rlvr.errors import UserError
from rlvr.models.loading import load_tokenizer, resolve_source
from rlvr.models.lora_settings import LoraSettings
from rlvr.ray.calls import ProcessDied
from rlvr.ray.cluster import Cluster, connect
from rlvr.ray.experience import Roles
from rlvr.ray.groups import (
    PPOActorRayActorGroup,
    PPOCriticRayActorGroup,
    PPOInitialRayActorGroup,
    PPORayActorGroup,
    PPORewardRayActorGroup,
    PPORolloutRayActorGroup,
    Size,
    sizes,
)
from rlvr.ray.rewards import RemoteRewardModel, RemoteRules, RemoteScorer, RewardWorkers, wants_whole_batches
from rlvr.ray.trainer import Learners, RayPPOTrainer
from rlvr.run import fit, make_ptx_loader, make_view, print_header
from rlvr.session import Session
from rlvr.trainer.watch import Watch

_KINDS: dict[str, Any] = {
    "actor": PPOActorRayActorGroup,
    "critic": PPOCriticRayActorGroup,
    "initial": PPOInitialRayActorGroup,
    "reward": PPORewardRayActorGroup,
    "rollout": PPORolloutRayActorGroup,
}


def train_on_ray(config: Config) -> Path:
    """Train as the settings say, with each role in processes of its own. Returns the run's folder.

    Raises:
        UserError: what the user gave can't be used, or a process of a role died; says where to go on.
        Interrupted: after SIGINT or SIGTERM, with a checkpoint saved.
    """
    disable_progress_bar()
    board.enter("start")
    processes.set_threads(config.train.num_threads)
    plan = plan_batches(config, 1)
    whole = wants_whole_batches(config)  # first of all: it finds mistakes in plugins
    lora = lora_settings(config.model)
    nodes = _nodes(config, lora)
    r = config.ray
    wanted = sum(nodes.values()) * r.num_cpus_per_node + (0 if "reward" in nodes else r.max_reward_workers)
    cluster = connect(r, wanted)
    with ExitStack() as stack:
        stack.callback(cluster.close)
        room = sizes(r, nodes, cluster)
        check_shares(config, {role: size.world_size for role, size in room.items()})
        device = torch.device("cuda" if room["actor"].gpu else "cpu")
        check_plugin(config.parallel, device)
        session = Session.open(config, ProcessInfo(rank=0, world_size=1, local_rank=0, device=torch.device("cpu")))
        print_header(session, config, plan, _where(config, room, cluster, device))
        try:
            _train(config, plan, lora, session, _Start(room, whole, stack))
        except ProcessDied as error:
            raise UserError(f"{error}, and training stopped. {_remedy(session.folder)}") from None
    return session.folder


def _nodes(config: Config, lora: LoraSettings | None) -> dict[str, int]:
    """The roles that this run has, with their nodes."""
    r = config.ray
    there = {
        "actor": True,
        "critic": build.has_critic(config),
        "initial": build.has_initial_model(config, lora),
        "reward": config.model.rm_checkpoint_path is not None,
        "rollout": r.one_step_off_policy,
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


@dataclass
class _Parts:
    """What of a run lies in the driver."""

    tokenizer: Any
    conversation: Conversation
    prompts: build.Prompts
    groups: dict[str, PPORayActorGroup]
    scorer: RemoteScorer


@dataclass(frozen=True)
class _Start:
    """What starting the processes takes.

    Attributes:
        room: the size of each role's group.
        whole: whether reward functions want all responses of a collect step at once.
        stack: ends them.
    """

    room: dict[str, Size]
    whole: bool
    stack: ExitStack


def _train(config: Config, plan: BatchPlan, lora: LoraSettings | None, session: Session, start: _Start) -> None:
    parts = _assemble(config, session, start)
    view = make_view(session, config)
    groups = parts.groups
    actor, critic = groups["actor"], groups.get("critic")
    copies = groups.get("rollout")
    learners = Learners(actor, critic, copies)  # type: ignore[arg-type]
    trainer = RayPPOTrainer(
        config,
        learners,
        Roles(actor, critic, groups.get("initial"), copies or actor),
        parts.scorer,
        parts.tokenizer,
        parts.conversation,
        lora,
        session.folder,
        build.describe_run(config, parts.prompts, lora),
        callbacks=[Watch(), view],
    )
    if parts.prompts.test:
        trainer.evaluator = trainer.evaluate
    sampler = PromptSampler(len(parts.prompts.train), plan.prompts_per_step, config.train.seed)
    ptx = make_ptx_loader(config, replica_of(), parts.tokenizer, parts.conversation)
    fit(config, session, plan, trainer, PromptLoader(parts.prompts.train, sampler), ptx, view)


def _assemble(config: Config, session: Session, start: _Start) -> _Parts:
    """Start the processes, which load their models while the driver reads the data."""
    resolve_source(config.model.pretrain)  # builds the built-in model with its own progress bar
    groups: dict[str, PPORayActorGroup] = {}
    for role, size in start.room.items():
        groups[role] = _KINDS[role](size)
        start.stack.callback(groups[role].close)
    workers = None
    if "reward" not in groups:
        workers = RewardWorkers(config, config.ray.min_reward_workers, config.ray.max_reward_workers)
        start.stack.callback(workers.close)
    for group in groups.values():
        group.check_versions()
    tokenizer = load_tokenizer(config.model.tokenizer_dir or config.model.pretrain, config.model.trust_remote_code)
    conversation = Conversation(choose_template(config.template.conversation_template_config, tokenizer), tokenizer)
    building = {role: group.build(config) for role, group in groups.items() if role != "actor"}
    prompts = build.make_prompts(config, conversation)
    for note in prompts.notes:
        session.note(note)
    building["actor"] = groups["actor"].build(config, prompts.test)
    for role, refs in building.items():
        groups[role].collect(refs)
    if config.model.ref_model and "initial" in groups:
        reference, actor = (groups[r].collect(groups[r].ask("vocabulary"))[0] for r in ("initial", "actor"))
        build.compare_vocabularies(reference, actor)
    scorer: RemoteScorer
    if workers is not None:
        workers.check_versions()
        scorer = RemoteRules(workers, start.whole)
    else:
        scorer = RemoteRewardModel(groups["reward"])  # type: ignore[arg-type]
    return _Parts(tokenizer, conversation, prompts, groups, scorer)
