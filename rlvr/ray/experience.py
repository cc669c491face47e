"""Experience from roles that run elsewhere: references first, values when learning needs them."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rewards import Sample
from rlvr.conversation import Conversation
from rlvr.data.prompts import Prompt
from rlvr.experience.maker import BaseExperienceMaker, Responses, samples_of, timed
from rlvr.experience.scoring import Columns, ModelScores, model_scores
from rlvr.experience.settings import ExperienceSettings
from rlvr.ray.calls import collect
from rlvr.ray.cluster import import_ray
from rlvr.ray.groups import PPORayActorGroup
from rlvr.ray.pieces import Piece, merge_columns, split_prompts
from rlvr.ray.rewards import PieceScoring, RemoteScorer
from rlvr.rollout.engine import Rollout, Sampling


@dataclass(frozen=True)
class ExperienceCompositionRefs:
    """References to what each role says of some responses; the names are those of ColossalAI's script.

    Attributes:
        sequences_attention_mask_action_mask_ref: the responses with their prompts, without padding (their lengths are
            their masks).
        action_log_probs_ref: of each rank of the actor, its columns.
        base_action_log_probs_ref: of the reference model; empty without one.
        value_ref: of the critic; empty without one.
        r_ref: the scores, on their way since the responses were sampled; None where they are asked for elsewhere.
    """

    sequences_attention_mask_action_mask_ref: Any
    action_log_probs_ref: Sequence[Any]
    base_action_log_probs_ref: Sequence[Any] = ()
    value_ref: Sequence[Any] = ()
    r_ref: PieceScoring | None = None


@dataclass(frozen=True)
class Roles:
    """The groups that experience comes from.

    Attributes:
        generators: sample responses: the actor, or copies of it.
    """

    actor: PPORayActorGroup
    critic: PPORayActorGroup | None
    initial: PPORayActorGroup | None
    generators: PPORayActorGroup


@dataclass
class Generating:
    """Responses on their way.

    Attributes:
        prompts: one for each response, those of one prompt in a row.
        streams: (places of the responses, stream of references to pieces, process) of each rank.
    """

    prompts: Sequence[Prompt]
    streams: list[tuple[deque[int], Any, str]]

    def pieces(self) -> Any:
        """(places, reference) of each piece as soon as it is there."""
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
            yield [rows.popleft() for _ in piece.rollouts], ref, piece


@dataclass
class Generated:
    """Responses that are there already, of a run that was resumed."""

    prompts: Sequence[Prompt]
    piece: Piece

    def pieces(self) -> Any:
        yield list(range(len(self.prompts))), import_ray().put(self.piece), self.piece


class ExperienceMaker(BaseExperienceMaker):
    """Makes experience of what the groups say, by the mathematics of the local trainer.

    Args:
        roles: the groups.
        scorer: pays.
        sampling, settings: as `BaseExperienceMaker`'s.
    """

    def __init__(self, roles: Roles, scorer: RemoteScorer, sampling: Sampling, settings: ExperienceSettings) -> None:
        super().__init__(scorer, sampling, settings)
        self.roles, self.scorer = roles, scorer
        self.ahead: deque[Generating | Generated] = deque()
        """Responses of coming collect steps."""

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling, *seed: int | str) -> Generating:
        """Begin to sample one response to each prompt."""
        group = self.roles.generators
        streams = []
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
        """Take what was generated ahead, or sample now; each piece goes on to be scored as it comes."""
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
        order = range(len(prompts))
        return Responses([rollouts[row] for row in order], [samples[row] for row in order], scoring)

    def compose(self, rollouts: Sequence[Rollout]) -> ExperienceCompositionRefs:
        """Have all roles look at the responses, at once."""
        sequences = import_ray().put(list(rollouts))
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
        """What was generated ahead, for a checkpoint; waits for it, and keeps it."""
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
        """Put back what `ahead_state` gave. `prompts` are all there are."""
        by_id = {prompt.problem.id: prompt for prompt in prompts}
        for saved in state:
            mine = [by_id[id_] for id_ in saved["problems"]]
            rollouts = [Rollout(**fields) for fields in saved["responses"]]
            self.ahead.append(Generated(mine, Piece(rollouts, samples_of(tokenizer, conversation, mine, rollouts))))
