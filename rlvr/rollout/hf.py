"""The `hf` engine, the default: our own decoding loop (`rlvr.rollout.decode`) over a transformers model, on every device."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rlvr.core.seeding import derive_seed
from rlvr.rollout.decode import STRINGS_EVERY, Decoder, Ended, ForwardCall, can_decode, inference
from rlvr.rollout.engine import Engine, ReorderBuffer, Rollout, Sampling, cut_at_stop, cut_into_parts
from rlvr.rollout.generate import GenerateEngine

if TYPE_CHECKING:
    from rlvr.data.prompts import Prompt


REPORT_EVERY_S = 0.2


def _batches(prompts: Sequence["Prompt"], size: int) -> list[list[int]]:
    """Places of the prompts that are decoded together, at most `size`: parts, and pieces of those that are larger."""
    return [part[at : at + size] for part in cut_into_parts(prompts, size) for at in range(0, len(part), size)]


class HFEngine(Engine):
    """Decodes prompts of similar length together, and returns ragged responses in the order of the prompts.

    Models whose cache holds more than keys and values (state-space layers, shared caches) are found out once by
    `can_decode`, and are left to transformers' own `generate`.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer
        self._calls: WeakKeyDictionary[PreTrainedModel, ForwardCall | None] = WeakKeyDictionary()

    def stream(
        self,
        model: PreTrainedModel,
        prompts: Sequence["Prompt"],
        sampling: Sampling,
        seed: Sequence[int | str],
        first: int = 0,
    ) -> Iterator[list[Rollout]]:
        """One response to each prompt, `sampling.batch_size` at a time."""
        call = self._call(model)
        if call is None:
            plain = GenerateEngine(self.tokenizer)
            plain.on_progress, plain.autocast = self.on_progress, self.autocast
            yield from plain.stream(model, prompts, sampling, seed, first)
            return
        device = next(model.parameters()).device
        collected = ReorderBuffer(len(prompts))
        begun = 0
        for batch in _batches(prompts, sampling.batch_size):
            decoder = Decoder(
                model,
                call,
                [prompts[i].ids for i in batch],
                sampling,
                torch.Generator(device).manual_seed(derive_seed("rollout", *seed, first + begun)),
                pad_id=self.tokenizer.pad_token_id or 0,
                prefixes=self.prefixes,
                holds_stop=self._holds_stop(sampling) if sampling.stop_strings else None,
                autocast=self.autocast and next(model.parameters()).dtype == torch.float32,
                on_step=self._reporter(begun, len(prompts), collected.tokens),
                on_tokens=self._teller(batch),
            )
            for ended in decoder.run():
                for row in ended:
                    prompt = prompts[batch[row.row]]
                    rollout = self._rollout(prompt.ids, row, sampling)
                    collected.add(batch[row.row], rollout)
                    self._keep_prefix(prompt.ids, rollout, row)
                ready = collected.take()
                if ready:
                    yield ready
            begun += len(batch)
        self.report(len(prompts), len(prompts), collected.tokens)

    def _call(self, model: PreTrainedModel) -> ForwardCall | None:
        """The way to call the model; None if it has to be left to `generate`."""
        if model not in self._calls:
            with inference(model):
                self._calls[model] = ForwardCall.of(model) if can_decode(model) else None
        return self._calls[model]

    def _rollout(self, prompt: Sequence[int], row: Ended, sampling: Sampling) -> Rollout:
        kept, stopped = cut_at_stop(row.ids, sampling.stop_ids, sampling.stop_strings, self._decode)
        logprobs = row.logprobs[: len(kept)].clone() if row.logprobs is not None else None
        return Rollout(torch.tensor(prompt), torch.tensor(kept), "stop" if stopped else "length", logprobs)

    def _keep_prefix(self, prompt: Sequence[int], rollout: Rollout, row: Ended) -> None:
        """Remember the keys and values of a response that may be gone on with."""
        if self.prefixes is None or row.cache is None or not rollout.finished:
            return
        ids = (*prompt, *rollout.response_ids.tolist())
        count = min(
            len(ids), row.cache[0][0].size(1)
        )  # the cache has what came after the stop, or lacks the stop itself
        self.prefixes.keep(ids[:count], [(k[:, :count], v[:, :count]) for k, v in row.cache])

    def _decode(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(list(ids), skip_special_tokens=False)

    def _holds_stop(self, sampling: Sampling) -> Callable[[list[int]], bool]:
        """Looks for stop strings in the newest tokens only. A token holds at least a byte of text, but for a few: an
        end that this misses costs time and changes nothing, for `cut_at_stop` reads the whole response."""
        window = max(len(string.encode()) for string in sampling.stop_strings) + STRINGS_EVERY + 4

        def holds_stop(ids: list[int]) -> bool:
            text = self._decode(ids[-window:])
            return any(string in text for string in sampling.stop_strings)

        return holds_stop

    def _teller(self, batch: Sequence[int]) -> Callable[[dict[int, int]], None] | None:
        """Tells of a batch's tokens by the places of its prompts, if anybody listens."""
        listener = self.on_tokens
        if listener is None:
            return None
        return lambda tokens: listener({batch[row]: token for row, token in tokens.items()})

    def _reporter(self, finished: int, total: int, tokens: int) -> Callable[[int, int], None]:
        """Reports one batch's progress on top of what earlier ones did, a few times a second."""
        if self.on_progress is None:
            return lambda ended, new: None
        reported = time.perf_counter()

        def report(ended: int, new: int) -> None:
            nonlocal reported
            if time.perf_counter() - reported > REPORT_EVERY_S:
                reported = time.perf_counter()
                self.report(finished + ended, total, tokens + new)

        return report
