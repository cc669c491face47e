"""The experience maker of a run on Ray: it asks groups of actors and has no model of its own.

`respond` streams responses from the processes that generate, in pieces, and passes references to the pieces on to the scorer;
`run_models` has all roles read the responses at once. Judging, rewards and advantages are `BaseExperienceMaker`'s, in the
driver. With generation one step ahead, responses of coming collect steps wait in `ahead`.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rewards import Sample
from rlvr.checkpoint.checkpointer import SavedPart
from rlvr.config import Config
from rlvr.data.prompts import Prompt
from rlvr.experience.maker import BaseExperienceMaker, Responses, samples_of, timed
from rlvr.experience.scoring import Columns, ModelScores, model_scores
from rlvr.prompting.conversation import Conversation
from rlvr.ray.cluster import collect, import_ray
from rlvr.ray.groups import PPOInitialRayActorGroup, PPORayActorGroup
from rlvr.ray.rewards import PieceScoring, RemoteScorer
from rlvr.ray.splitting import Piece, merge_columns, split_prompts
from rlvr.rollout.engine import Rollout, Sampling


@dataclass(frozen=True)
class ExperienceCompositionRefs:
    """References to each role's columns for some responses; the names are those of ColossalAI's script.

    Attributes:
        sequences_attention_mask_action_mask_ref: the responses with their prompts, without padding: their lengths give the
            masks.
        action_log_probs_ref: columns of each rank of the actor.
        base_action_log_probs_ref: those of the reference model; empty without one.
        value_ref: those of the critic; empty without one.
        r_ref: the scores, in the making since the responses were sampled; None where they are kept elsewhere.
    """

    sequences_attention_mask_action_mask_ref: Any
    action_log_probs_ref: Sequence[Any]
    base_action_log_probs_ref: Sequence[Any] = ()
    value_ref: Sequence[Any] = ()
    r_ref: PieceScoring | None = None


@dataclass(frozen=True)
class Roles:
    """The groups of actors that make experience.

    Attributes:
        actor, critic, initial: read the responses; None for a role that the run does not have.
        generators: sample responses: the actor, or copies of it.
    """

    actor: PPORayActorGroup
    critic: PPORayActorGroup | None
    initial: PPOInitialRayActorGroup | None
    generators: PPORayActorGroup


@dataclass
class Generating:
    """Responses that are being sampled.

    Attributes:
        prompts: one for each response; the responses to one prompt in a row.
        streams: of each rank, the places of its responses among all, the stream of references to its pieces, and its name.
    """

    prompts: Sequence[Prompt]
    streams: list[tuple[deque[int], Any, str]]

    def pieces(self) -> Any:
        """(places of its responses, reference, piece) of each piece as soon as any rank has one ready."""
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


@dataclass
class Generated:
    """Responses that were sampled already, from a checkpoint; the same interface as `Generating`."""

    prompts: Sequence[Prompt]
    piece: Piece

    def pieces(self) -> Any:
        yield list(range(len(self.prompts))), import_ray().put(self.piece), self.piece


class ExperienceMaker(BaseExperienceMaker):
    """Makes experience from the groups' outputs, by the mathematics of the local trainer.

    Args:
        roles: the groups.
        scorer: scores responses by reference.
        sampling, config: as `BaseExperienceMaker`'s.
    """

    def __init__(self, roles: Roles, scorer: RemoteScorer, sampling: Sampling, config: Config) -> None:
        super().__init__(scorer, sampling, config)
        self.roles, self.scorer = roles, scorer
        self.ahead: deque[Generating | Generated] = deque()
        """Responses of coming collect steps, the next one first; empty unless generation runs one step ahead."""

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling, *seed: int | str) -> Generating:
        """Begin to sample one response to each prompt, and return at once."""
        group = self.roles.generators
        streams = []
        # All responses to a prompt go to one process: some rewards compare them (pitfall A28).
        for rows, process, name in zip(
            split_prompts(prompts, group.world_size), group.processes, group.names, strict=True
        ):
            mine = [prompts[row] for row in rows]
            stream = process.generate.options(num_returns="streaming").remote(mine, sampling, seed)
            streams.append((deque(rows), stream, name))
        return Generating(prompts, streams)

    def respond(
        self, prompts: Sequence[Prompt], sampling: Sampling, seconds: dict[str, float], *seed: int | str
    ) -> Responses:
        """Take responses that were generated ahead, or sample now; each piece is scored as soon as it comes."""
        scoring = self.scorer.begin()
        rollouts: dict[int, Rollout] = {}
        samples: dict[int, Sample] = {}
        with timed(seconds, "rollout"):
            generating = self.ahead.popleft() if self.ahead else self.generate(prompts, sampling, *seed)
            for rows, ref, piece in generating.pieces():
                scoring.add_piece(ref, rows)
                rollouts |= dict(zip(rows, piece.rollouts, strict=True))
                samples |= dict(zip(rows, piece.samples, strict=True))
            scoring.complete()
        order = range(len(prompts))  # pieces come in any order
        return Responses([rollouts[row] for row in order], [samples[row] for row in order], scoring)

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
        """The responses that were generated ahead, for a checkpoint. Waits until they are complete, and keeps them.

        A stream can be read only once, so each is replaced by its result.
        """
        state = []
        for index, generating in enumerate(self.ahead):
            found: dict[int, tuple[Any, Any]] = {}
            for rows, _, piece in generating.pieces():
                found |= {
                    row: pair for row, pair in zip(rows, zip(piece.rollouts, piece.samples, strict=True), strict=True)
                }
            pairs = [found[row] for row in range(len(generating.prompts))]
            self.ahead[index] = Generated(generating.prompts, Piece([r for r, _ in pairs], [s for _, s in pairs]))
            state.append(
                {
                    "problems": [prompt.problem.id for prompt in generating.prompts],
                    "responses": [vars(rollout) for rollout, _ in pairs],
                }
            )
        return state

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
            self.ahead.append(Generated(mine, Piece(rollouts, samples_of(tokenizer, conversation, mine, rollouts))))
