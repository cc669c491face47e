"""What an engine takes and gives."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from torch import Tensor
from transformers import PreTrainedModel

if TYPE_CHECKING:
    from rlvr.data.prompts import Prompt


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn and when a response ends.

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


@dataclass(frozen=True)
class Rollout:
    """One response, without padding.

    Attributes:
        prompt_ids: [P] the prompt.
        response_ids: [R] the response, stop token included; R may be 0 only if the engine replays an empty response.
        stop_reason: "stop" if it ended by itself, "length" if the limit cut it.
        logprobs: [R] float32, the logprob of each response token at the sampling temperature, over the whole
            vocabulary, as the engine's arithmetic had it; None where the engine doesn't know it or was greedy.
    """

    prompt_ids: Tensor
    response_ids: Tensor
    stop_reason: Literal["stop", "length"]
    logprobs: Tensor | None = None

    @property
    def finished(self) -> bool:
        return self.stop_reason == "stop"


class Engine(ABC):
    """A way to get responses from the current policy.

    Attributes:
        on_progress: called now and then while responses are generated, with the number of finished responses, of
            all responses, and of tokens generated so far.
        on_tokens: called with the newest token of each response in work, by the prompt's place, as soon as it is drawn; some
            after the response's end may come, too. Engines that don't know (all but `hf`, and it of models that it leaves
            to `generate`) never call it.
        autocast: sample in bfloat16 autocast where the model itself is in float32.
    """

    on_progress: Callable[[int, int, int], None] | None = None
    on_tokens: Callable[[dict[int, int]], None] | None = None
    autocast: bool = False

    @abstractmethod
    def stream(
        self, model: PreTrainedModel, prompts: Sequence["Prompt"], sampling: Sampling, seed: Sequence[int | str]
    ) -> Iterator[list[Rollout]]:
        """One response to each prompt, in order, in batches as they are finished.

        `seed` names the place in the run that the randomness belongs to.
        """

    def generate(
        self, model: PreTrainedModel, prompts: Sequence["Prompt"], sampling: Sampling, seed: Sequence[int | str]
    ) -> list[Rollout]:
        """All that `stream` gives."""
        return [rollout for batch in self.stream(model, prompts, sampling, seed) for rollout in batch]

    def report(self, finished: int, total: int, tokens: int) -> None:
        """Tell `on_progress`, if anybody listens."""
        if self.on_progress is not None:
            self.on_progress(finished, total, tokens)
