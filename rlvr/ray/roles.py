"""What runs in the processes of each role: plain classes, which `rlvr.ray.groups` makes Ray actors of.

Actor and critic learn under a Booster in a process group of their own; the models that only infer need none.
"""

import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rewards import Sample
from rewards.combine import Combined
from rlvr import build
from rlvr import checkpoint as files
from rlvr.boost import process as processes
from rlvr.boost.boosted import Boosted
from rlvr.boost.plugins import make_booster, resolve_precision
from rlvr.boost.use import memory_use
from rlvr.build_rewards import make_reward_model
from rlvr.checks.lora import lora_settings
from rlvr.checks.settings import plan_batches
from rlvr.config import Config
from rlvr.conversation import Conversation, choose_template
from rlvr.data.examples import Example
from rlvr.data.prompts import Prompt
from rlvr.evaluation.held_out import Asked
from rlvr.experience.experience import Experience
from rlvr.experience.maker import samples_of
from rlvr.experience.scoring import Columns, Reader, policy_reader, read_rollouts, reference_reader, value_reader
from rlvr.hand_on import equip
from rlvr.metrics import Meter
from rlvr.models.frozen import AdapterOff, Frozen
from rlvr.models.loading import load_tokenizer
from rlvr.models.lora import copy_sharing
from rlvr.ray.cluster import code_versions, work_in
from rlvr.ray.pieces import Piece, in_groups, rows_of
from rlvr.rollout.engine import Rollout, Sampling
from rlvr.rollout.make import make_engine
from rlvr.trainer.learning import (
    cut_into_micro_batches,
    positive_size,
    ptx_step,
    step_size,
    train_actor,
    train_critic,
)
from rlvr.trainer.role_files import load_role, write_role
from rlvr.trainer.settings import PPOSettings


class DistributedTorchRayActor:
    """One process of a role's process group.

    Args:
        world_size: processes of the group.
        rank: of this one.
        local_rank: of this one on its node.
        master_addr, master_port: where rank 0 listens; None in rank 0, which chooses.
        local_world_size: processes of the group on this node.
    """

    def __init__(
        self,
        world_size: int,
        rank: int,
        local_rank: int,
        master_addr: str | None,
        master_port: int | None,
        local_world_size: int = 1,
    ) -> None:
        self.world_size, self.rank, self.local_rank = world_size, rank, local_rank
        self.master_addr, self.master_port = master_addr or _own_address(), master_port or _free_port()
        os.environ.update(
            WORLD_SIZE=str(world_size),
            RANK=str(rank),
            LOCAL_RANK="0",  # Ray shows each process its own GPU only, which is then number 0
            LOCAL_WORLD_SIZE=str(local_world_size),
            MASTER_ADDR=self.master_addr,
            MASTER_PORT=str(self.master_port),
        )

    def address(self) -> tuple[str, int]:
        """Where rank 0 listens."""
        return self.master_addr, self.master_port

    def versions(self) -> dict[str, str]:
        """Of the code that runs here."""
        return code_versions()

    def identity(self) -> tuple[str, int]:
        """Node and process id."""
        return _own_address(), os.getpid()


def _own_address() -> str:
    import ray

    return str(ray.util.get_node_ip_address())


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def _join_group(config: Config) -> torch.device:
    """Join the role's process group. Returns this process's device."""
    t = config.train
    return processes.start(t.seed, t.num_threads, config.parallel.dist_timeout).device


class BasePPORole(DistributedTorchRayActor, ABC):
    """A role: its model, and what every role knows of the run."""

    config: Config
    device: torch.device

    def build(self, config: Config, folder: str, *parts: Any) -> None:
        """Load the model. Called in all ranks together.

        Args:
            folder: the driver's, which relative paths start from.
            parts: what else the role is made of.

        Raises:
            UserError: it can't be loaded.
        """
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()
        work_in(folder)
        self.config = config
        self._join()
        self.precision = resolve_precision(config.parallel.mixed_precision, self.device)
        m = config.model
        self.tokenizer = load_tokenizer(m.tokenizer_dir or m.pretrain, m.trust_remote_code)
        template = choose_template(config.template.conversation_template_config, self.tokenizer)
        self.conversation = Conversation(template, self.tokenizer)
        self._build(*parts)

    def _join(self) -> None:
        """Alone, a role that only infers has nobody to talk to, and is spared the process group."""
        if self.world_size > 1:
            self.device = _join_group(self.config)
        else:
            processes.set_threads(self.config.train.num_threads)
            self.device = processes.local_device()

    @abstractmethod
    def _build(self, *parts: Any) -> None: ...

    def _read(self, rollouts: Sequence[Rollout], readers: Sequence[Reader], packed: bool) -> Columns:
        """What the readers say of this rank's share of the rollouts, on the CPU."""
        columns = read_rollouts(
            rows_of(rollouts, self.rank, self.world_size),
            readers,
            packed=packed,
            batch_size=self.config.rollout.generation_batch_size,
            pad_id=self.tokenizer.pad_token_id or 0,
            device=self.device,
        )
        return {name: tensor.cpu() for name, tensor in columns.items()}


@dataclass(frozen=True)
class LearnRequest:
    """What one optimizer step depends on beside the experience.

    Attributes:
        train_batch_size: most samples in one forward and backward pass, over all ranks.
        ptx: rows of the ptx data, over all ranks; empty without a ptx loss.
    """

    settings: PPOSettings
    train_batch_size: int
    ptx: Sequence[Example] = ()


class TrainablePPORole(BasePPORole):
    """A role that learns, under a Booster of its own."""

    boosted: Boosted

    def _join(self) -> None:
        self.device = _join_group(self.config)

    def _boost(self, model: torch.nn.Module, lr: float, steps: int) -> None:
        model = model.to(self.device)
        optimizer, schedule = build.make_optimizer(self.config, model, lr, steps, self.device)
        clip = self.config.train.grad_clip
        booster = make_booster(self.config.parallel, self.device, clip)
        self.boosted = Boosted(booster, model, optimizer, schedule, grad_clip=clip, precision=self.precision)

    @property
    def packed(self) -> bool:
        return bool(self.boosted.unwrapped.packs)

    @torch.no_grad()
    def score(self, rollouts: Sequence[Rollout]) -> Columns:
        """What this role says of its share of the responses. Collective."""
        with ExitStack() as stack:
            return self._read(rollouts, self._readers(stack), self.packed)

    @abstractmethod
    def _readers(self, stack: ExitStack) -> list[Reader]:
        """They read until `stack` is closed. Collective."""

    def learn(self, share: Sequence[Experience], request: LearnRequest) -> dict[str, Any]:
        """One optimizer step on this rank's share of a mini-batch. Collective. Returns its metrics."""
        meter = Meter()
        self._learn(share, request, max(1, request.train_batch_size // self.world_size), meter)
        meter.add_peaks(memory_use())
        return meter.state_dict()

    @abstractmethod
    def _learn(self, share: Sequence[Experience], request: LearnRequest, rows: int, meter: Meter) -> None: ...

    def save(self, folder: Path) -> None:
        """Write what `load` reads. Collective; rank 0 writes.

        Raises:
            OSError: it can't be written.
        """
        state = self.boosted.training_state()
        self.write(folder, whole=False)
        if self.rank == 0:
            files.save_tensors(state, folder / "training.pt")

    def write(self, folder: Path, whole: bool) -> None:
        """Write the model or its adapter, as `write_role` does. Collective; rank 0 writes."""
        with self.boosted.exact() as module:
            if self.rank == 0:
                write_role(module, folder, whole, self._saved_with())

    def _saved_with(self) -> Any:
        """The tokenizer, where it is saved with the model."""
        return None

    def load(self, folder: Path) -> None:
        """Put back what `save` wrote. Collective."""
        load_role(self.boosted, folder)


class Generates(BasePPORole):
    """A role that samples responses from a policy."""

    @abstractmethod
    def _policy(self) -> AbstractContextManager[Any]:
        """Within the block: the `Actor` with whole weights. Collective to enter."""

    def _build_engine(self) -> None:
        self.engine = make_engine(self.config.rollout.engine, self.tokenizer)
        self.engine.autocast = self.precision == "bf16"

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling, seed: Sequence[int | str]) -> Iterator[Piece]:
        """One response to each prompt of this rank, in pieces as they are ready; the responses to a prompt stay together.
        Collective."""
        waiting: list[Rollout] = []
        begun = 0
        with self._policy() as actor:
            for batch in self.engine.stream(actor.model, prompts, sampling, (*seed, self.rank)):
                waiting += batch
                whole = in_groups(prompts, begun, len(waiting))
                if whole:
                    yield self._piece(prompts[begun : begun + whole], waiting[:whole])
                    waiting, begun = waiting[whole:], begun + whole

    def _piece(self, prompts: Sequence[Prompt], rollouts: list[Rollout]) -> Piece:
        return Piece(rollouts, samples_of(self.tokenizer, self.conversation, prompts, rollouts))


class RayPPOActor(TrainablePPORole, Generates):
    """The policy: samples, gives logprobs, learns; with LoRA and no reference model of its own also the divergence's origin."""

    def _build(self, held_out: Sequence[Asked]) -> None:
        config = self.config
        lora = lora_settings(config.model)
        plan = plan_batches(config, 1)
        actor = build.make_actor(config, build.load_base(config), lora)
        r = config.rollout
        equip(
            actor.model, self.tokenizer, self.conversation, max_new_tokens=r.max_new_tokens, temperature=r.temperature
        )
        self._boost(actor, config.train.lr, plan.actor_steps)
        self._build_engine()
        self.initial = None
        if config.algo.kl_coef and not build.has_initial_model(config, lora):
            self.initial = AdapterOff(self.boosted.unwrapped, self.boosted.forward)
        self.evaluator = build.make_evaluator(config, held_out, self.engine, self.tokenizer, self.conversation)

    def _policy(self) -> AbstractContextManager[Any]:
        return self.boosted.whole()

    def _readers(self, stack: ExitStack) -> list[Reader]:
        c = self.config
        readers = [policy_reader(self.boosted, c.rollout.temperature, stack, c.algo.old_logprobs == "sampled")]
        return [*readers, reference_reader(self.initial, c.rollout.temperature)] if self.initial else readers

    def _learn(self, share: Sequence[Experience], request: LearnRequest, rows: int, meter: Meter) -> None:
        s = request.settings
        size = step_size(share, self.device)
        batches = cut_into_micro_batches(share, rows, self.packed, self.device, s)
        positives = positive_size(share, self.device) if s.positive_lm_coef else None
        rows_of_ptx = rows_of(request.ptx, self.rank, self.world_size)
        ptx, ptx_size = ptx_step(rows_of_ptx, self.device, s) if request.ptx else ([], None)
        meter.add("lr", self.boosted.lr)
        train_actor(self.boosted, batches, size, s, meter, ptx, ptx_size, positives)

    def evaluate(self) -> dict[str, float]:
        """Held-out metrics over all ranks. Collective."""
        if self.evaluator is None:
            return {}
        with self._policy() as actor:
            return self.evaluator(actor.model) or {}

    def weights(self) -> dict[str, Tensor]:
        """The policy's weights, on the CPU; in rank 0. Collective."""
        with self.boosted.exact() as actor:
            return {name: tensor.cpu() for name, tensor in actor.state_dict().items()} if self.rank == 0 else {}

    def vocabulary(self) -> int:
        """Tokens that the model knows. Collective."""
        with self._policy() as actor:
            return int(actor.model.get_input_embeddings().num_embeddings)

    def _saved_with(self) -> Any:
        return self.tokenizer


class RayPPOCritic(TrainablePPORole):
    """V(s_t): gives values, learns them."""

    def _build(self) -> None:
        config = self.config
        lora, plan = lora_settings(config.model), plan_batches(config, 1)
        trunk = copy_sharing(build.load_base(config).base_model) if lora is not None else None
        self._boost(build.make_critic(config, trunk, lora), config.train.critic_lr, plan.total_steps)

    def _readers(self, stack: ExitStack) -> list[Reader]:
        return [value_reader(self.boosted, stack)]

    def _learn(self, share: Sequence[Experience], request: LearnRequest, rows: int, meter: Meter) -> None:
        size = step_size(share, self.device)
        batches = cut_into_micro_batches(share, rows, self.packed, self.device, request.settings)
        meter.add("train/lr_critic", self.boosted.lr)
        train_critic(self.boosted, batches, size, request.settings, meter)


class RayPPOInitialModel(BasePPORole):
    """The frozen policy that the divergence is measured from."""

    def _build(self) -> None:
        self.model = Frozen(build.make_initial_model(self.config), self.precision, self.device)

    @torch.no_grad()
    def score(self, rollouts: Sequence[Rollout]) -> Columns:
        """Reference logprobs of this rank's share of the responses."""
        readers = [reference_reader(self.model, self.config.rollout.temperature)]
        return self._read(rollouts, readers, bool(self.model.model.packs))

    def vocabulary(self) -> int:
        """Tokens that the model knows."""
        return int(self.model.model.model.get_input_embeddings().num_embeddings)  # type: ignore[union-attr,operator]


class RayPPORewardModel(BasePPORole):
    """A neural reward model, with rules beside it where there are both."""

    def _build(self) -> None:
        self.scorer = make_reward_model(self.config, self.conversation, self.tokenizer, self.device)

    def score(self, rows: Sequence[int], *pieces: Piece) -> tuple[list[int], list[Combined]]:
        """The verdicts on this rank's share of the responses, whole prompts at a time. Collective.

        Args:
            rows: the place of each response of all pieces among all responses.
        """
        everything = [sample for piece in pieces for sample in piece.samples]
        ordered = sorted(zip(rows, everything, strict=True), key=lambda pair: pair[0])
        mine = _whole_prompts(ordered)[self.rank :: self.world_size]
        flat = [pair for group in mine for pair in group]
        return [row for row, _ in flat], self.scorer.score([sample for _, sample in flat])

    def state_dict(self) -> dict[str, Any]:
        """What scores depend on; the same in all ranks."""
        return self.scorer.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.scorer.load_state_dict(state)

    def close(self) -> None:
        """End worker processes of rules."""
        self.scorer.close()


def _whole_prompts(pairs: Sequence[tuple[int, Sample]]) -> list[list[tuple[int, Sample]]]:
    groups: list[list[tuple[int, Sample]]] = []
    for pair in pairs:
        if groups and groups[-1][-1][1].prompt_ids == pair[1].prompt_ids:
            groups[-1].append(pair)
        else:
            groups.append([pair])
    return groups


class RayPPORollout(Generates):
    """A copy of the policy that generates while the actor learns."""

    def _build(self) -> None:
        lora = lora_settings(self.config.model)
        actor = build.make_actor(self.config, build.load_base(self.config), lora)
        self.actor = actor.eval().requires_grad_(False).to(self.device)
        self._build_engine()

    def _policy(self) -> AbstractContextManager[Any]:
        return nullcontext(self.actor)

    def take_weights(self, weights: dict[str, Tensor]) -> None:
        """Become the policy with these weights."""
        self.actor.load_state_dict(weights)
