"""`EpisodeEngine`: episodes of several turns, played with any engine that generates and an environment (`rewards.environment`).

It is an engine itself: a prompt goes in, and the response that comes out is the whole episode, with a mask of the policy's tokens. So
collecting, evaluation and Ray know nothing of turns.

The open episodes take a turn together: while the engine generates, workers answer the turns that have ended. The next turn begins
when all are answered, so that what is drawn does not depend on who answers first. (Tried on paper and left out: rows that join the
batch as soon as they are answered. Every draw would depend on the time that a worker took, and no run could be repeated.)
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from transformers import PreTrainedModel

from rewards import Outcome, RewardFunction, Sample
from rewards.environment import Answer, read_answer
from rewards.pool import Pending, RewardPool
from rlvr.core.seeding import derive_seed
from rlvr.data.prompts import Prompt
from rlvr.prompting.conversation import Conversation
from rlvr.rollout.engine import Ended, Engine, EpisodeEnd, ReorderBuffer, Rollout, Sampling
from rlvr.rollout.kv_cache import Prefixes

MAX_TURNS = 8
"""Of the policy, unless somebody says otherwise."""


@dataclass
class _Episode:
    """An episode on its way.

    Attributes:
        prompt: what it began with.
        seed: of the environment.
        room: tokens that may still come.
        ids, mask, logprobs: of the response so far, as of `Rollout`; `logprobs` is None once a turn has none.
        turn: the policy's last.
        state, scores: of the environment; `state` is bytes that only workers read.
        ended: why it is over; None while it goes on.
    """

    prompt: Prompt
    seed: int
    room: int
    ids: list[int] = field(default_factory=list)
    mask: list[bool] = field(default_factory=list)
    logprobs: list[torch.Tensor] | None = field(default_factory=list)
    turns: int = 0
    state: bytes = b""
    scores: dict[str, float] = field(default_factory=dict)
    ended: Ended | None = None
    failure: str = ""
    turn: list[int] = field(default_factory=list)

    @property
    def next_prompt(self) -> Prompt:
        return self.prompt if not self.ids else replace(self.prompt, ids=(*self.prompt.ids, *self.ids))

    def _append(self, ids: Sequence[int], own: bool) -> None:
        self.ids += ids
        self.mask += [own] * len(ids)
        self.room -= len(ids)

    def take_turn(self, rollout: Rollout) -> None:
        """Append a turn of the policy, cut to the tokens that are left."""
        self.turn = rollout.response_ids.tolist()[: self.room]
        if rollout.logprobs is None:
            self.logprobs = None
        elif self.logprobs is not None:
            self.logprobs.append(rollout.logprobs[: len(self.turn)])
        if not rollout.finished or len(self.turn) < len(rollout.response_ids):
            self.ended = "length"
        self.turns += 1
        self._append(self.turn, True)

    def take_answer(self, answer: Answer | Outcome, conversation: Conversation, last: bool) -> None:
        """Append what the environment says, if the episode goes on."""
        if isinstance(answer, Outcome):
            self.ended, self.failure = "failed", f"{answer.status}: {answer.message}"
            return
        self.state = answer.state
        for name, score in answer.scores.items():
            self.scores[name] = self.scores.get(name, 0.0) + score
        if answer.done or last:
            self.ended = "done" if answer.done else "turns"
            return
        ids = conversation.encode_observation(answer.observation, self.turn)
        if len(ids) >= self.room:  # the policy needs a token at least
            self.ended = "context"
            return
        self._append(ids, False)

    def rollout(self) -> Rollout:
        assert self.ended is not None
        return Rollout(
            torch.tensor(self.prompt.ids),
            torch.tensor(self.ids, dtype=torch.long),
            "length" if self.ended in ("length", "context") else "stop",
            None if self.logprobs is None else torch.cat([torch.zeros(0), *self.logprobs]),
            torch.tensor(self.mask, dtype=torch.bool),
            EpisodeEnd(self.ended, self.turns, dict(self.scores), self.failure),
        )


class EpisodeEngine(Engine):
    """Plays episodes: another engine generates the policy's turns, and an environment answers them.

    Args:
        engine: generates.
        pool: worker processes with the environment, and nothing else; closed with this engine.
        conversation: puts an environment's text into a turn of the template.
        max_turns: of the policy; after the last, the environment is asked for scores alone.

    Raises:
        UserError: the template can't render several turns.
    """

    def __init__(self, engine: Engine, pool: RewardPool, conversation: Conversation, max_turns: int) -> None:
        self.engine, self.pool, self.conversation, self.max_turns = engine, pool, conversation, max_turns
        conversation.check_turns()

    def close(self) -> None:
        self.pool.close()
        self.engine.close()

    def stream(
        self,
        model: PreTrainedModel,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        seed: Sequence[int | str],
        first: int = 0,
    ) -> Iterator[list[Rollout]]:
        """One episode from each prompt. `sampling.max_new_tokens` counts all that follows the prompt, the environment's tokens too.

        A turn that the limit cuts ends its episode unanswered; so does an observation that leaves no room for another turn.

        Raises:
            UserError: the environment fails too often.
        """
        # A turn begins where the one before has ended: what is known of its tokens is not computed again.
        self.engine.autocast, self.engine.prefixes = self.autocast, Prefixes(sampling.batch_size)
        try:
            yield from self._play(model, prompts, sampling, seed, first, self.engine.prefixes)
        finally:
            self.engine.prefixes = None

    def _play(
        self,
        model: PreTrainedModel,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        seed: Sequence[int | str],
        first: int,
        prefixes: Prefixes,
    ) -> Iterator[list[Rollout]]:
        # By problem: the responses to one, which are compared, begin alike.
        seeds = (derive_seed("environment", *seed, prompt.problem.id) for prompt in prompts)
        episodes = [_Episode(*begun, sampling.max_new_tokens) for begun in zip(prompts, seeds, strict=True)]
        collected, tokens = ReorderBuffer(len(prompts)), 0
        for turn in range(self.max_turns):
            places = [i for i, episode in enumerate(episodes) if episode.ended is None]
            if not places:
                break
            open_ = [episodes[i] for i in places]
            prefixes.begin_turn()
            self.engine.on_progress = self._progress(len(prompts), len(prompts) - len(places), tokens)
            # One limit for all: a longer row is cut to its own, and no token depends on those after it.
            limit = replace(sampling, max_new_tokens=max(episode.room for episode in open_))
            named = (*seed, "turn", turn) if turn else seed
            answering: list[tuple[list[_Episode], Pending]] = []
            begun = 0
            for batch in self.engine.stream(model, [episode.next_prompt for episode in open_], limit, named, first):
                some = open_[begun : begun + len(batch)]
                for episode, rollout in zip(some, batch, strict=True):
                    episode.take_turn(rollout)
                begun += len(batch)
                speaking = [episode for episode in some if episode.ended is None]
                answering.append((speaking, self.pool.submit([self._sample(episode) for episode in speaking])))
            for speaking, pending in answering:
                for episode, score in zip(speaking, pending.result()[0], strict=True):
                    episode.take_answer(read_answer(score), self.conversation, last=turn == self.max_turns - 1)
            for i in places:
                tokens += len(episodes[i].turn)
                if episodes[i].ended is not None:
                    collected.add(i, episodes[i].rollout())
            if ready := collected.take():
                yield ready
        self.report(len(prompts), len(prompts), tokens)

    def _sample(self, episode: _Episode) -> Sample:
        problem = episode.prompt.problem
        said = {**problem.columns, "question": problem.question, "gold": problem.answer, "seed": episode.seed}
        said["tags"] = self.conversation.tags
        text = self.conversation.decode_response(episode.turn)
        return Sample(text, problem.answer, columns={"problem": said, "state": episode.state})

    def _progress(self, total: int, ended: int, before: int) -> Callable[[int, int, int], None] | None:
        if self.on_progress is None:
            return None
        return lambda finished, _, tokens: self.report(ended, total, before + tokens)


def play(
    engine: Engine,
    conversation: Conversation,
    environment: RewardFunction | None,
    max_turns: int = MAX_TURNS,
    **pool_options: Any,
) -> Engine:
    """The engine, playing episodes with an environment in worker processes; as it is without one.

    Args:
        environment: of `rewards.resolve_environment`.
        max_turns: as `EpisodeEngine`'s.
        pool_options: of the `RewardPool`; its `timeout_s` is for one turn.

    Raises:
        UserError: an environment that can't be sent to a worker, or a template that can't render several turns.
    """
    if environment is None:
        return engine
    return EpisodeEngine(engine, RewardPool([environment], cache_size=0, **pool_options), conversation, max_turns)
