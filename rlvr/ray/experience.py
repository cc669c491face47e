"""The experience maker of a run on Ray: it asks groups of actors and has no model of its own.

`respond` gets responses from the processes that generate, in pieces, and passes references to the pieces on to the scorer;
`run_models` has all roles read the responses at once. Judging, rewards and advantages are `BaseExperienceMaker`'s, in the
driver. What was asked of rollout workers for coming collect steps waits in `ahead`, under the place in the run that it is for.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from rewards import Sample
from rewards.combine import Combined
from rlvr.checkpoint.checkpointer import SavedPart
from rlvr.config import Config
from rlvr.data.prompts import Prompt
from rlvr.errors import UserError
from rlvr.experience.maker import GREEDY, BaseExperienceMaker, Responses, samples_of, timed
from rlvr.experience.metrics import record_staleness
from rlvr.experience.scoring import Columns, ModelScores, model_scores
from rlvr.experience.verdicts import Verdicts
from rlvr.prompting.conversation import Conversation
from rlvr.ray.ahead import FromWorkers, PartialRollouts, answered
from rlvr.ray.cluster import collect, import_ray
from rlvr.ray.groups import PPOInitialRayActorGroup, PPORayActorGroup
from rlvr.ray.rewards import RemoteScorer
from rlvr.ray.rollout import RolloutWorkers
from rlvr.ray.splitting import Piece, merge_columns, split_prompts
from rlvr.rollout.engine import Rollout, Sampling
from rlvr.tracking.meter import Meter

RANK = 0
"""Ends the seeds of rollout workers, which have no rank: what a run of one process adds to its own."""


@dataclass(frozen=True)
class ExperienceCompositionRefs:
    """References to each role's columns for some responses; the names are those of ColossalAI's script.

    Attributes:
        sequences_attention_mask_action_mask_ref: the responses with their prompts, without padding: their lengths give the
            masks.
        action_log_probs_ref: columns of each rank of the actor.
        base_action_log_probs_ref: those of the reference model; empty without one.
        value_ref: those of the critic; empty without one.
        r_ref: refused: scores are none of the models' columns, and may still be in the making when these are read.

    Raises:
        UserError: `r_ref` is given; says where scores are.
    """

    sequences_attention_mask_action_mask_ref: Any
    action_log_probs_ref: Sequence[Any]
    base_action_log_probs_ref: Sequence[Any] = ()
    value_ref: Sequence[Any] = ()
    r_ref: Any = None

    def __post_init__(self) -> None:
        if self.r_ref is not None:
            raise UserError(
                "ExperienceCompositionRefs(r_ref=...): leave it out. Scores come from the scorer that ExperienceMaker is made with, which is "
                "asked when the models have read the responses"
            )


@dataclass(frozen=True)
class Roles:
    """The groups of actors that make experience.

    Attributes:
        actor, critic, initial: read the responses; None for a role that the run does not have.
        workers: sample responses; None where the actor does.
    """

    actor: PPORayActorGroup
    critic: PPORayActorGroup | None
    initial: PPOInitialRayActorGroup | None
    workers: RolloutWorkers | None = None


class Generating(Protocol):
    """Responses that are being sampled."""

    def pieces(self) -> Iterator[tuple[list[int], Any, Piece]]:
        """(places of its responses, reference, piece) of each piece as soon as one is ready."""
        ...


@dataclass
class FromActor:
    """Responses that the actor's processes sample; they can be taken once.

    Attributes:
        streams: of each rank, the places of its responses among all, the stream of references to its pieces, and its name.
    """

    streams: list[tuple[deque[int], Any, str]]

    def pieces(self) -> Iterator[tuple[list[int], Any, Piece]]:
        ray = import_ray()
        open_streams = {stream: (rows, name) for rows, stream, name in self.streams}
        while open_streams:
            [stream], _ = ray.wait(list(open_streams), num_returns=1)
            rows, name = open_streams[stream]
            try:
                ref = next(stream)
            except StopIteration:
                del open_streams[stream]
                continue
            [piece] = collect([ref], [name])
            # A rank's pieces come in the order of its rows. The reference is for the scorer, the piece for the driver.
            yield [rows.popleft() for _ in piece.rollouts], ref, piece


class ExperienceMaker(BaseExperienceMaker):
    """Makes experience from the groups' outputs, by the mathematics of the local trainer.

    Args:
        roles: the groups.
        scorer: scores responses by reference.
        sampling, config: as `BaseExperienceMaker`'s.

    Raises:
        UserError: called as that of ColossalAI's script, `ExperienceMaker(kl_coef)`; says where that goes.
    """

    def __new__(cls, *args: Any, **given: Any) -> "ExperienceMaker":
        """Only here to refuse the script's call, whose maker knows no models and forms rewards alone."""
        if "kl_coef" in given or (args and isinstance(args[0], int | float)):
            raise UserError(
                "ExperienceMaker(kl_coef): it is made by the driver, with groups, scorer and settings. kl_coef is a setting: "
                "rlvr.train(ray=True, kl_coef=0.1, ...), or --kl_coef 0.1 to scripts/train_rlvr_on_ray.py"
            )
        return super().__new__(cls)

    def __init__(self, roles: Roles, scorer: RemoteScorer, sampling: Sampling, config: Config) -> None:
        super().__init__(scorer, sampling, config)
        self.roles, self.scorer = roles, scorer
        self.ahead: dict[tuple[int | str, ...], FromWorkers] = {}
        """Responses of coming collect steps by the seed that `respond` will give, the next one first."""

    def ask_ahead(self, prompts: Sequence[Prompt], *seed: int | str) -> None:
        """Have the rollout workers sample for a coming collect step, with the weights of now: all that `make_experience` will ask for
        at its beginning, given the same arguments."""
        if self.estimator.greedy:
            self._ask(*self.greedy_request(prompts), *seed, GREEDY)
        self._ask(prompts, self.sampling, *seed)

    def _ask(self, prompts: Sequence[Prompt], sampling: Sampling, *seed: int | str) -> None:
        workers = self.roles.workers
        assert workers is not None and workers.weights is not None
        if not self.config.ray.partial_rollout_tokens:
            self.ahead[seed] = FromWorkers(prompts, workers.ask(prompts, sampling, (*seed, RANK), ahead=True))
            return
        asked = self.ahead[seed] = self._partial(prompts, *seed)
        asked.take(workers.weights)

    def _partial(self, prompts: Sequence[Prompt], *seed: int | str) -> PartialRollouts:
        """Of a collect step that is to come: its responses, of which nothing was asked yet."""
        workers, (_, episode, *_) = self.roles.workers, seed
        assert workers is not None
        sampling = replace(self.sampling, temperature=0.0) if seed[-1] == GREEDY else self.sampling
        return PartialRollouts(
            workers, prompts, sampling, (*seed, RANK), self.config.ray.partial_rollout_tokens, int(episode)
        )

    def go_on(self) -> None:
        """New weights were published: responses that were begun ahead and are not finished go on with them."""
        workers = self.roles.workers
        assert workers is not None and workers.weights is not None
        for asked in self.ahead.values():
            if isinstance(asked, PartialRollouts):
                asked.take(workers.weights)

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling, *seed: int | str) -> Generating:
        """Begin to sample one response to each prompt, and return at once."""
        if self.roles.workers is not None:
            return FromWorkers(prompts, self.roles.workers.ask(prompts, sampling, (*seed, RANK)))
        group = self.roles.actor
        streams = []
        # All responses to a prompt go to one process: some rewards compare them (pitfall A28).
        for rows, process, name in zip(
            split_prompts(prompts, group.world_size), group.processes, group.names, strict=True
        ):
            mine = [prompts[row] for row in rows]
            stream = process.generate.options(num_returns="streaming").remote(mine, sampling, seed)
            streams.append((deque(rows), stream, name))
        return FromActor(streams)

    def prompts_ahead(self, *seed: int | str) -> Sequence[Prompt] | None:
        """The prompts that were asked ahead for this place in the run, each as often as it is sampled; None if none were."""
        asked = self.ahead.get(seed)
        return None if asked is None else asked.prompts

    def respond(
        self, prompts: Sequence[Prompt], sampling: Sampling, seconds: dict[str, float], *seed: int | str
    ) -> Responses:
        """Take responses that were generated ahead, or sample now; each piece is scored as soon as it comes."""
        scoring = self.scorer.begin()
        rollouts: dict[int, Rollout] = {}
        samples: dict[int, Sample] = {}
        with timed(seconds, "rollout"):
            generating = self.ahead.pop(seed, None) or self.generate(prompts, sampling, *seed)
            for rows, ref, piece in generating.pieces():
                scoring.add_piece(ref, rows)
                rollouts |= dict(zip(rows, piece.rollouts, strict=True))
                samples |= dict(zip(rows, piece.samples, strict=True))
            scoring.complete()
        order = range(len(prompts))  # pieces come in any order
        return Responses([rollouts[row] for row in order], [samples[row] for row in order], scoring)

    def judge(
        self, rollouts: Sequence[Rollout], results: Sequence[Combined], meter: Meter, greedy: Responses | None = None
    ) -> Verdicts:
        if self.config.ray.max_staleness:
            assert self.roles.workers is not None and self.roles.workers.weights is not None
            record_staleness(meter, rollouts, self.roles.workers.weights.version)
        return super().judge(rollouts, results, meter, greedy)

    def move_reference(self, share: float) -> None:
        assert self.roles.initial is not None
        # Rank 0's reference: the weights don't pass through the driver. All ranks help to gather them.
        weights, *_ = self.roles.actor.ask("weights")
        self.roles.initial.collect(self.roles.initial.ask("follow", weights, share))

    @property
    def saved_reference(self) -> SavedPart | None:
        return self.roles.initial

    def compose(self, rollouts: Sequence[Rollout]) -> ExperienceCompositionRefs:
        """Have all roles read the responses; returns before they have."""
        sequences = import_ray().put(list(rollouts))  # put once, for all processes of all roles
        asked = [group.ask("score", sequences) if group else [] for group in self._readers()]
        return ExperienceCompositionRefs(sequences, asked[0], asked[1], asked[2])

    def run_models(self, rollouts: Sequence[Rollout], seconds: dict[str, float]) -> ModelScores:
        with timed(seconds, "score"):
            refs = self.compose(rollouts)
            asked = (refs.action_log_probs_ref, refs.base_action_log_probs_ref, refs.value_ref)
            columns: Columns = {}
            for group, of_group in zip(self._readers(), asked, strict=True):
                if group is not None:
                    columns |= merge_columns(group.collect(of_group), len(rollouts))
        return model_scores(columns)

    def _readers(self) -> tuple[PPORayActorGroup, PPORayActorGroup | None, PPORayActorGroup | None]:
        return self.roles.actor, self.roles.initial, self.roles.critic

    def ahead_state(self) -> list[dict[str, Any]]:
        """The responses that were asked for ahead, for a checkpoint: all that the weights of now and before sample of them, for which
        it waits."""
        return [
            {
                "place": list(seed),
                "problems": [prompt.problem.id for prompt in asked.prompts],
                "responses": [vars(rollout) for rollout in asked.rollouts()],
            }
            for seed, asked in self.ahead.items()
        ]

    def load_ahead_state(
        self, state: Sequence[dict[str, Any]], prompts: Sequence[Prompt], tokenizer: Any, conversation: Conversation
    ) -> None:
        """Restore what `ahead_state` gave.

        Args:
            prompts: all prompts of the run, in which the saved ones are found by their ids.
        """
        by_id = {prompt.problem.id: prompt for prompt in prompts}
        for saved in state:
            mine = [by_id[id_] for id_ in saved["problems"]]
            rollouts = [Rollout(**fields) for fields in saved["responses"]]
            piece, place = Piece(rollouts, samples_of(tokenizer, conversation, mine, rollouts)), tuple(saved["place"])
            if self.config.ray.partial_rollout_tokens:
                asked = self.ahead[place] = self._partial(mine, *place)
                asked.restore(piece)
            else:
                self.ahead[place] = FromWorkers(mine, [answered(piece)])
