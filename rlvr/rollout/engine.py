"""The interface of generation engines: `Sampling` in, `Rollout`s out, and where a response ends."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from rewards.environment import paid

if TYPE_CHECKING:  # settings are checked with this room, and transformers takes seconds to import
    from transformers import PreTrainedModel

    from rlvr.data.prompts import Prompt
    from rlvr.rollout.kv_cache import Prefixes

INSTEAD = "or take --engine hf, which needs nothing else"
"""The end of a message about an engine that can't be used."""


@dataclass(frozen=True)
class Sampling:
    """The way tokens are drawn, and when a response ends.

    Attributes:
        max_new_tokens: most tokens of a response.
        temperature: 0 = greedy.
        top_k: 0 = all tokens.
        top_p: 1 = all tokens.
        stop_ids: tokens that end a response; the one that does is part of it.
        stop_strings: texts that end a response, up to the token that completes one.
        batch_size: most sequences generated at once.
    """

    max_new_tokens: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    stop_ids: tuple[int, ...] = ()
    stop_strings: tuple[str, ...] = ()
    batch_size: int = 256


Ended = Literal["done", "turns", "length", "context", "failed"]
"""Why an episode was over: the environment said so; the turns were used up; the length limit cut a turn; an observation left no room
for another; the environment failed."""


@dataclass(frozen=True)
class EpisodeEnd:
    """How an episode with an environment ended.

    Attributes:
        ended: why.
        turns: of the policy.
        scores: that the environment gave, added up over the turns by name.
        failure: what was wrong with the environment, in words; "" where nothing was.
    """

    ended: Ended
    turns: int
    scores: Mapping[str, float]
    failure: str = ""

    @property
    def score(self) -> float:
        """What the reward function `environment` pays."""
        return paid(self.scores)


@dataclass(frozen=True)
class Rollout:
    """One response, without padding: the turns of the policy, and between them those of an environment, if there is one.

        [M M M E E M M]     response_ids; the policy chose M, an environment E (R = 7, A = 5)
        [1 1 1 0 0 1 1]     action_mask
        [0 0 1 . . 0 1]     turn_ends, [A]

    Tokens are those that were sampled and those that the model read: nothing is decoded and encoded again.

    Attributes:
        prompt_ids: [P] the prompt.
        response_ids: [R] the response, stop tokens included; R may be 0 only if the engine replays an empty response.
        stop_reason: "stop" if it ended by itself (or with its turns used up), "length" if the limit of tokens cut it.
        logprobs: [A] float32, the logprob of each token that the policy chose at the sampling temperature, over the whole
            vocabulary, as the engine's arithmetic had it; None where the engine doesn't know it or was greedy.
        action_mask: [R] true on the A tokens that the policy chose; None if it chose all of them.
        end: how the episode ended; None without an environment.
        versions: [A] of the weights that sampled each token, the number of episodes that they had learned from; None where the process
            that learns samples for itself, with the weights that it has.
    """

    prompt_ids: Tensor
    response_ids: Tensor
    stop_reason: Literal["stop", "length"]
    logprobs: Tensor | None = None
    action_mask: Tensor | None = None
    end: EpisodeEnd | None = None
    versions: Tensor | None = None

    @property
    def finished(self) -> bool:
        return self.stop_reason == "stop"

    @property
    def action_ids(self) -> Tensor:
        """[A] the tokens that the policy chose."""
        return self.response_ids if self.action_mask is None else self.response_ids[self.action_mask]

    @property
    def last_turn_ids(self) -> Tensor:
        """The tokens of the policy's last turn; all of them where there is one turn only."""
        ends = self.turn_ends[:-1].nonzero()
        return self.action_ids[int(ends[-1]) + 1 :] if len(ends) else self.action_ids

    @property
    def turns(self) -> list[Tensor]:
        """The tokens of each turn, the policy's and an environment's in alternation."""
        if self.action_mask is None:
            return [self.response_ids]
        changes = (self.action_mask[1:] != self.action_mask[:-1]).nonzero().squeeze(1) + 1
        return list(self.response_ids.tensor_split(changes))

    @property
    def turn_ends(self) -> Tensor:
        """[A] true on the last token of each of the policy's turns."""
        mask = torch.ones_like(self.response_ids).bool() if self.action_mask is None else self.action_mask
        # The next token is not the policy's, or there is none.
        return ~torch.nn.functional.pad(mask[1:], (0, min(1, len(mask))))[mask]


class Engine(ABC):
    """A way to get responses from the current policy.

    Attributes:
        on_progress: called now and then while responses are generated, with the number of finished responses, of
            all responses, and of tokens generated so far.
        on_tokens: called with the newest token of each response in work, by the prompt's place, as soon as it is drawn; some
            after the response's end may come, too. Engines that don't know (all but `hf`, and it of models that it leaves
            to `generate`) never call it.
        autocast: sample in bfloat16 autocast where the model itself is in float32.
        prefixes: while it is set and the weights stay as they are, keys and values of responses are kept in it, for prompts that begin
            with them (by `hf`).
    """

    on_progress: Callable[[int, int, int], None] | None = None
    on_tokens: Callable[[dict[int, int]], None] | None = None
    autocast: bool = False
    prefixes: "Prefixes | None" = None

    @abstractmethod
    def stream(
        self,
        model: "PreTrainedModel",
        prompts: Sequence["Prompt"],
        sampling: Sampling,
        seed: Sequence[int | str],
        first: int = 0,
    ) -> Iterator[list[Rollout]]:
        """One response to each prompt, in order, in batches as they are finished.

        Args:
            seed: names the place in the run that the randomness belongs to.
            first: where these prompts are one of several parts (`cut_into_parts`), the number of prompts in those before it; a
                part then has the random numbers that it would have had among the others.
        """

    def generate(
        self, model: "PreTrainedModel", prompts: Sequence["Prompt"], sampling: Sampling, seed: Sequence[int | str]
    ) -> list[Rollout]:
        """All that `stream` gives."""
        return [rollout for batch in self.stream(model, prompts, sampling, seed) for rollout in batch]

    def close(self) -> None:  # noqa: B027  most have nothing to do
        """End worker processes, if it has any."""

    def report(self, finished: int, total: int, tokens: int) -> None:
        """Tell `on_progress`, if anybody listens."""
        if self.on_progress is not None:
            self.on_progress(finished, total, tokens)


class ReorderBuffer:
    """Collects `count` rollouts by their place, and hands out what is complete from the front: rows end in another order
    than that of their prompts.

    Attributes:
        tokens: response tokens of all that came so far.
    """

    def __init__(self, count: int) -> None:
        self._waiting: list[Rollout | None] = [None] * count
        self._taken = 0
        self.tokens = 0

    def add(self, index: int, rollout: Rollout) -> None:
        """Take the rollout that belongs at `index`."""
        self._waiting[index] = rollout
        self.tokens += len(rollout.response_ids)

    def take(self) -> list[Rollout]:
        """The rollouts up to the first that is missing, each once."""
        ready: list[Rollout] = []
        while self._taken < len(self._waiting) and (rollout := self._waiting[self._taken]) is not None:
            ready.append(rollout)
            self._waiting[self._taken], self._taken = None, self._taken + 1
        return ready


def cut_into_parts(prompts: Sequence["Prompt"], size: int) -> list[list[int]]:
    """Places of prompts that are answered together: shorter prompts first, in parts of at most `size`.

    The samples of one prompt, which stand in a row, are never divided (some rewards compare them, pitfall A28): where they are
    more than `size`, they are a part of their own.
    """
    parts: list[list[int]] = []
    order = sorted(
        range(len(prompts)), key=lambda i: len(prompts[i].ids)
    )  # stable: samples of one prompt stay together
    for _, same in groupby(order, key=lambda i: tuple(prompts[i].ids)):
        samples = list(same)
        if parts and len(parts[-1]) + len(samples) <= size:
            parts[-1] += samples
        else:
            parts.append(samples)
    return parts


def cut_at_stop(
    ids: Sequence[int],
    stop_ids: Collection[int],
    stop_strings: Sequence[str] = (),
    decode: Callable[[Sequence[int]], str] | None = None,
) -> tuple[list[int], bool]:
    """The response up to its first stop token or where a stop string is complete, and true if there was one.

    Nothing after the first stop counts (pitfall A5) and the stop token is kept exactly once (A4).

    Args:
        ids: generated tokens, perhaps with padding after the end.
        stop_ids: tokens that end a response.
        stop_strings: texts that end a response; `decode` turns tokens into the text to look in.
    """
    end = next((i + 1 for i, token in enumerate(ids) if token in stop_ids), None)
    kept = list(ids[:end])
    if stop_strings:
        assert decode is not None, "stop strings need a decoder"
        by_string = _first_prefix_with(kept, stop_strings, decode)
        if by_string is not None:
            return kept[:by_string], True  # no later than the stop token, after which nothing was looked at
    return kept, end is not None


def go_on(begun: Rollout, more: Rollout, sampling: Sampling, decode: Callable[[Sequence[int]], str]) -> Rollout:
    """A response of one turn that the limit had cut, and what was sampled after it, as one response.

    Args:
        begun: so far.
        more: the response to its prompt and tokens.
        sampling: which ends a response: a stop string may begin in one part and end in the other.
        decode: turns tokens into text.
    """
    ids = torch.cat([begun.response_ids, more.response_ids])
    kept, stopped = cut_at_stop(ids.tolist(), sampling.stop_ids, sampling.stop_strings, decode)

    def both(first: Tensor | None, second: Tensor | None) -> Tensor | None:
        return None if first is None or second is None else torch.cat([first, second])[: len(kept)]

    return Rollout(
        begun.prompt_ids,
        ids[: len(kept)],
        "stop" if stopped else more.stop_reason,
        both(begun.logprobs, more.logprobs),
        versions=both(begun.versions, more.versions),
    )


def _first_prefix_with(
    ids: Sequence[int], strings: Sequence[str], decode: Callable[[Sequence[int]], str]
) -> int | None:
    """Length of the shortest prefix whose text holds one of `strings`, by bisection: once there, it stays."""

    def holds(length: int) -> bool:
        text = decode(ids[:length])
        return any(string in text for string in strings)

    if not holds(len(ids)):
        return None
    low, high = 0, len(ids)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
