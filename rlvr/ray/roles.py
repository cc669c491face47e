"""The classes that run in the processes of each role; `rlvr.ray.groups` turns them into Ray actors.

In a step they do what the local trainer does in one process: generate, score, learn, save. They call the same functions for it
(`rlvr.experience.scoring`, `rlvr.trainer.ppo_update`, `rlvr.checkpoint.checkpointer`), each with its own role. Actor and critic
learn under a Booster, in a process group for each role; models that only infer need no group unless they have several
processes.
"""

import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from rewards import Sample
from rewards.combine import Combined
from rlvr.boost import process as processes
from rlvr.boost.boosted import Boosted
from rlvr.boost.frozen import AdapterOff
from rlvr.boost.host import set_threads
from rlvr.boost.optimizer import make_optimizer
from rlvr.boost.plugins import freeze, resolve_precision
from rlvr.checkpoint.checkpointer import FrozenPart, SavedRole
from rlvr.config import Config
from rlvr.config.conditions import estimator_of
from rlvr.data.examples import Example
from rlvr.data.prompts import Prompt
from rlvr.evaluation.prompts import EvalPrompt
from rlvr.experience.experience import Experience
from rlvr.experience.maker import samples_of
from rlvr.experience.scoring import Columns, Reader, policy_reader, read_rollouts, reference_reader, value_reader
from rlvr.memory.usage import memory_use
from rlvr.models.loading import load_tokenizer
from rlvr.models.lora import copy_sharing
from rlvr.prompting.conversation import Conversation, attach_chat_template, choose_template
from rlvr.ray.cluster import code_versions, work_in
from rlvr.ray.splitting import Piece, Request, in_groups, into_buckets, rows_of
from rlvr.rollout.engine import Rollout, Sampling, go_on
from rlvr.run import parts as build
from rlvr.scorers.build import make_reward_model
from rlvr.tracking.meter import Meter
from rlvr.trainer.ppo_update import Learner
from rlvr.validate.lora import lora_settings
from rlvr.validate.ppo import plan_batches


class DistributedTorchRayActor:
    """One process of a role's process group.

    Args:
        world_size: processes of the group.
        rank: of this one.
        local_rank: its number on its node.
        master_addr, master_port: the address of rank 0; None in rank 0 itself, which chooses them.
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
        """Address and port of rank 0, for the other ranks."""
        return self.master_addr, self.master_port

    def versions(self) -> dict[str, str]:
        """Versions of the code that runs here."""
        return code_versions()

    def identity(self) -> tuple[str, int]:
        """The node's address and the process id."""
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
    """A role: its model, and the settings, tokenizer and template that every role has."""

    config: Config
    device: torch.device

    def build(self, config: Config, folder: str, *parts: Any) -> None:
        """Load the model. Called in all ranks together.

        Args:
            config: the run's settings.
            folder: the driver's working folder, from which relative paths start.
            parts: further arguments of the role's `_build`.

        Raises:
            UserError: the model can't be loaded.
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
        """Choose the device; join a process group only if there are several processes: inference in one needs none."""
        if self.world_size > 1:
            self.device = _join_group(self.config)
        else:
            set_threads(self.config.train.num_threads)
            self.device = processes.local_device()

    @abstractmethod
    def _build(self, *parts: Any) -> None: ...

    def _read(self, rollouts: Sequence[Rollout], readers: Sequence[Reader], packed: bool) -> Columns:
        """The readers' columns for this rank's share of the rollouts, on the CPU, on which the driver works."""
        columns = read_rollouts(
            rows_of(rollouts, self.rank, self.world_size),
            readers,
            packed=packed,
            batch_size=self.config.rollout.generation_batch_size,
            pad_id=self.tokenizer.pad_token_id or 0,
            device=self.device,
        )
        return {name: tensor.cpu() for name, tensor in columns.items()}


class TrainablePPORole(BasePPORole):
    """A role that learns under a Booster of its own, by the step of the local trainer.

    Attributes:
        boosted: the model with its optimizer.
        learner: takes the optimizer steps; it has this role only.
    """

    role: ClassVar[str]
    boosted: Boosted
    learner: Learner

    def _join(self) -> None:
        self.device = _join_group(self.config)

    def _boost(self, model: torch.nn.Module, lr: float, steps: int) -> None:
        """Put the model under a Booster, with a schedule over this many optimizer steps."""
        model = model.to(self.device)
        optimizer, schedule = make_optimizer(model, self.config.train, lr, steps, self.precision)
        self.boosted = build.boost(self.config, model, optimizer, schedule, self.device)
        actor, critic = (self.boosted if self.role == name else None for name in ("actor", "critic"))
        self.learner = Learner(self.config, actor, critic, self.tokenizer)

    @torch.no_grad()
    def score(self, rollouts: Sequence[Rollout]) -> Columns:
        """This role's columns for its rank's share of the responses. Collective."""
        with ExitStack() as stack:
            return self._read(rollouts, self._readers(stack), self.learner.packs)

    @abstractmethod
    def _readers(self, stack: ExitStack) -> list[Reader]:
        """The role's readers, which may be called until `stack` is closed. Collective."""

    def learn(self, share: Sequence[Experience], kl_coef: float, ptx: Sequence[Example] = ()) -> dict[str, Any]:
        """One optimizer step on this rank's share of a mini-batch. Collective. Returns its metrics, and as `skipped` the steps
        in a row that were skipped.

        Args:
            kl_coef: present weight of the divergence.
            ptx: this rank's rows of the ptx data.
        """
        meter = Meter()
        self.learner.step(share, meter, kl_coef=kl_coef, ptx=ptx)
        meter.add_peaks(memory_use())
        return meter.state_dict() | {"skipped": self.learner.skipped}

    def save(self, folder: Path) -> None:
        """Write the role into a checkpoint's folder, for `load`. Collective; rank 0 writes.

        Raises:
            OSError: it can't be written.
        """
        with self._saved.saving() as write:
            if self.rank == 0:
                write(folder)

    def export(self, folder: Path, merge: bool) -> None:
        """Write the trained model; with `merge` a whole one, even if only an adapter learns. Collective; rank 0 writes."""
        with self._saved.exporting(merge) as write:
            if self.rank == 0:
                write(folder)

    def load(self, folder: Path) -> None:
        """Restore what `save` wrote. Collective."""
        self._saved.load(folder)

    def digest(self) -> str:
        """Of the role's weights. Collective."""
        return self._saved.digest()

    @property
    def _saved(self) -> SavedRole:
        return self.learner.saved_roles[self.role]


class Generates(BasePPORole):
    """A role that samples responses from a policy."""

    @abstractmethod
    def _policy(self) -> AbstractContextManager[Any]:
        """Gives the `Actor` with whole weights within the block. Collective to enter."""

    def _build_engine(self) -> None:
        self.engine = build.make_rollout_engine(self.config, self.tokenizer, self.conversation, self.precision)

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling, seed: Sequence[int | str]) -> Iterator[Piece]:
        """One response to each prompt of this rank, in pieces as they become ready. Collective.

        The responses to one prompt are in one piece, which one worker scores: some rewards compare them (pitfall A28).
        """
        waiting: list[Rollout] = []  # from place `begun` on; held back until a prompt's last response is there
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
    """The policy: samples, gives logprobs, learns. With LoRA it is the reference too, with its adapter off."""

    role = "actor"

    def _build(self, held_out: Sequence[EvalPrompt]) -> None:
        config = self.config
        lora = lora_settings(config.model)
        plan = plan_batches(config, 1)  # as the driver has it: optimizer steps don't depend on the number of processes
        actor = build.make_actor(config, build.load_base(config), lora)
        r = config.rollout
        attach_chat_template(
            actor.model, self.tokenizer, self.conversation, max_new_tokens=r.max_new_tokens, temperature=r.temperature
        )
        # Rollout workers load the same start: they are sent what learns, and what the plugin keeps in another precision.
        self._start = {name: None if p.requires_grad else p.dtype for name, p in actor.named_parameters()}
        self._boost(actor, config.train.lr, plan.actor_steps)
        self.initial = None
        if config.algo.kl_coef and not build.has_initial_model(config, lora):
            self.initial = AdapterOff(self.boosted.unwrapped, self.boosted.forward)
        self.evaluator = None
        if not config.ray.num_rollout_workers:
            self._build_engine()
            self.evaluator = build.make_evaluator(config, held_out, self.engine, self.tokenizer, self.conversation)

    def _policy(self) -> AbstractContextManager[Any]:
        return self.boosted.full_weights()

    def _readers(self, stack: ExitStack) -> list[Reader]:
        c = self.config
        sampled, squared_probs = c.algo.old_logprobs == "sampled", estimator_of(c).score_norms
        readers = [policy_reader(self.boosted, c.rollout.temperature, stack, sampled, squared_probs)]
        return [*readers, reference_reader(self.initial, c.rollout.temperature)] if self.initial else readers

    def evaluate(self) -> dict[str, float]:
        """Held-out metrics over all ranks. Collective."""
        if self.evaluator is None:
            return {}
        with self._policy() as actor:
            return self.evaluator(actor.model) or {}

    def forget_moments(self) -> None:
        """Let the optimizer begin anew."""
        self.learner.forget_moments()

    def weights(self) -> dict[str, Tensor]:
        """The policy's weights on the CPU, from rank 0; the other ranks only help to gather them. Collective."""
        with self.boosted.full_precision_weights() as actor:
            return {name: tensor.cpu() for name, tensor in actor.state_dict().items()} if self.rank == 0 else {}

    @torch.no_grad()
    def publish(self) -> list[Any]:
        """Put the weights that sample into Ray's object store, for `RayPPORollout.take_weights`. Returns references to the buckets,
        from rank 0; the other ranks only help to gather them. Collective."""
        import ray

        with self._policy() as actor:
            sent = ((n, p) for n, p in actor.named_parameters() if p.dtype != self._start[n])
            return [ray.put(bucket) for bucket in into_buckets(sent)] if self.rank == 0 else []

    def vocabulary(self) -> int:
        """Size of the model's vocabulary. Collective."""
        with self._policy() as actor:
            return int(actor.model.get_input_embeddings().num_embeddings)


class RayPPOCritic(TrainablePPORole):
    """The critic: gives values V(s_t), and learns them."""

    role = "critic"

    def _build(self) -> None:
        config = self.config
        lora, plan = lora_settings(config.model), plan_batches(config, 1)
        trunk = copy_sharing(build.load_base(config).base_model) if lora is not None else None
        self._boost(build.make_critic(config, trunk, lora), config.train.critic_lr, plan.critic_steps)

    def _readers(self, stack: ExitStack) -> list[Reader]:
        return [value_reader(self.boosted, stack)]


class RayPPOInitialModel(BasePPORole):
    """The frozen initial policy, from which the divergence is measured."""

    def _build(self) -> None:
        self.model = freeze(build.make_initial_model(self.config), self.config.parallel, self.device)
        shapes = {
            name: p.shape for name, p in self.model.model.named_parameters()
        }  # those of the actor, whose copy it is
        self.model.check_follows(shapes, self.config.algo.reference_mix)

    @torch.no_grad()
    def score(self, rollouts: Sequence[Rollout]) -> Columns:
        """Reference logprobs of this rank's share of the responses."""
        readers = [reference_reader(self.model, self.config.rollout.temperature)]
        return self._read(rollouts, readers, bool(self.model.model.packs))

    def follow(self, weights: dict[str, Tensor], share: float) -> None:
        """Move towards the actor's weights, by this share."""
        self.model.follow(weights, share)

    def save(self, folder: Path) -> None:
        """Write the weights into a checkpoint's folder, for `load`; rank 0 writes."""
        with FrozenPart(self.model).saving() as write:
            if self.rank == 0:
                write(folder)

    def load(self, folder: Path) -> None:
        """Restore what `save` wrote."""
        FrozenPart(self.model).load(folder)

    def vocabulary(self) -> int:
        """Size of the model's vocabulary."""
        return int(self.model.model.model.get_input_embeddings().num_embeddings)  # type: ignore[union-attr,operator]


class RayPPORewardModel(BasePPORole):
    """A neural reward model, together with the rules if the run has both."""

    def _build(self) -> None:
        self.scorer = make_reward_model(self.config, self.conversation, self.tokenizer, self.device)

    def score(self, rows: Sequence[int], *pieces: Piece) -> tuple[list[int], list[Combined]]:
        """Scores of this rank's share of the responses, and their places. Collective.

        Prompts are dealt to the ranks in turn, each with all of its responses.

        Args:
            rows: the place of each response of all pieces among all responses.
        """
        everything = [sample for piece in pieces for sample in piece.samples]
        # Pieces come in the order in which they were ready; scores must not depend on it.
        ordered = sorted(zip(rows, everything, strict=True), key=lambda pair: pair[0])
        mine = _whole_prompts(ordered)[self.rank :: self.world_size]
        flat = [pair for group in mine for pair in group]
        return [row for row, _ in flat], self.scorer.score([sample for _, sample in flat])

    def state_dict(self) -> dict[str, Any]:
        """State that scores depend on, such as running normalisation; the same in all ranks."""
        return self.scorer.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.scorer.load_state_dict(state)

    def close(self) -> None:
        """End the worker processes of rules."""
        self.scorer.close()


def _whole_prompts(pairs: Sequence[tuple[int, Sample]]) -> list[list[tuple[int, Sample]]]:
    """Neighbours with the same prompt, as groups."""
    groups: list[list[tuple[int, Sample]]] = []
    for pair in pairs:
        if groups and groups[-1][-1][1].prompt_ids == pair[1].prompt_ids:
            groups[-1].append(pair)
        else:
            groups.append([pair])
    return groups


class RayPPORollout(Generates):
    """A copy of the policy that generates, in a process that belongs to no group: any number of them, which come and go.

    Attributes:
        version: of its weights: the number of episodes that they have learned from; -1 before it has been given any, and where some did
            not arrive. What it samples then is refused.
    """

    version: int

    def _build(self) -> None:
        lora = lora_settings(self.config.model)
        actor = build.make_actor(self.config, build.load_base(self.config), lora)
        self.actor = actor.eval().to(self.device)
        self.version = -1
        self._build_engine()

    def _policy(self) -> AbstractContextManager[Any]:
        return nullcontext(self.actor)

    def take_weights(self, version: int, buckets: Sequence[Any]) -> None:
        """Load weights that the actor has published: references to buckets, which are read one after the other."""
        import ray

        self.version = -1
        own = dict(self.actor.named_parameters())
        for bucket in buckets:
            for name, weight in ray.get(bucket).items():
                weight.load_into(own[name])
        self.version = version

    def answer(self, request: Request) -> Piece:
        """All of a request's responses, in one piece; each token says which weights have sampled it."""
        prompts, begun, sampling = request.prompts, request.begun, request.sampling
        if begun:  # by their tokens: nothing is decoded and encoded again
            ids = ((*p.ids, *r.response_ids.tolist()) for p, r in zip(prompts, begun, strict=True))
            prompts = [replace(p, ids=longer) for p, longer in zip(prompts, ids, strict=True)]
        found = self.engine.stream(self.actor.model, prompts, sampling, request.seed, request.first)
        rollouts = [replace(r, versions=torch.full_like(r.action_ids, self.version)) for batch in found for r in batch]
        if begun:
            decode = partial(self.tokenizer.decode, skip_special_tokens=False)
            rollouts = [go_on(*pair, sampling, decode) for pair in zip(begun, rollouts, strict=True)]
        return self._piece(request.prompts, rollouts)
