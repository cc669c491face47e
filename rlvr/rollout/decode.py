"""The decoding loop of the `hf` engine: one batch of prompts to its end, over `model.forward` and our own cache.

What it saves against `model.generate`: the samples of one prompt share its prefill; keys and values are not copied at
each step (`RoomyCache`); drawing reads the vocabulary twice instead of many times (`draw_weighted`); rows that have
ended leave the batch. Tried and left out: transformers' static cache (no faster than its dynamic one on a CPU), and a
copy of the weights in bfloat16 (no faster than autocast, and further from what is trained). `benchmarks/generate.py`.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from rlvr.rollout.cache import RoomyCache
from rlvr.rollout.draw import make_draw
from rlvr.rollout.engine import Sampling
from rlvr.rollout.support import Call

SHRINK_AT = 1 / 16
"""Share of a batch that has to be finished before it shrinks. Little: shrinking moves only as many rows as are left."""
FIRST_COLUMNS = 256
"""Most response tokens that the cache has room for at first."""
STRINGS_EVERY = 4
"""Steps between looks for stop strings; what a row generates in between is cut off."""
ACCELERATOR_LOOKS_EVERY = 8
"""Steps between looks for finished rows where a look waits for the device."""


@dataclass(frozen=True)
class Ended:
    """A row that has left the batch: its place in the batch, and all that it generated, with some after its stop."""

    row: int
    ids: list[int]
    logprobs: Tensor | None


class Decoder:
    """Generates one response to each prompt of a batch.

    Args:
        model: in eval mode.
        call: how its forward is called.
        prompts: the B prompts' token ids; equal ones are prefilled once.
        sampling: how tokens are drawn, and which end a response.
        generator: draws the random numbers; on the model's device.
        pad_id: what stands in padding; nothing depends on it.
        holds_stop: tells of a row's newest tokens whether their text holds a stop string.
        autocast: run the model under bfloat16 autocast.
        on_step: called after each look for ended rows with their number and the number of tokens so far.
        on_tokens: called with the newest token of each row that is left, which waits for the device; None = nobody listens.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        call: Call,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        generator: torch.Generator,
        *,
        pad_id: int,
        holds_stop: Callable[[list[int]], bool] | None = None,
        autocast: bool = False,
        on_step: Callable[[int, int], None] = lambda ended, tokens: None,
        on_tokens: Callable[[dict[int, int]], None] | None = None,
    ) -> None:
        self.on_step, self.on_tokens = on_step, on_tokens
        self.model, self.call, self.sampling, self.holds_stop = model, call, sampling, holds_stop
        self.device = generator.device
        self.draw = make_draw(sampling.temperature, sampling.top_k, sampling.top_p, generator)
        self.autocast = autocast
        self.prompts, self.pad_id = prompts, pad_id
        self.step = 0
        self.tokens = 0
        count, limit = len(prompts), sampling.max_new_tokens
        self.out = torch.zeros(count, limit, dtype=torch.long, device=self.device)
        greedy = sampling.temperature == 0
        self.logprobs = None if greedy else torch.zeros(count, limit, device=self.device)
        self.rows = torch.arange(count, device=self.device)  # which response each row of the batch is
        self.done = torch.zeros(count, dtype=torch.bool, device=self.device)
        self.stops = torch.tensor(sampling.stop_ids, dtype=torch.long, device=self.device)

    def run(self) -> Iterator[list[Ended]]:
        """Batches of rows, as they end."""
        with inference(self.model, self.autocast):
            logits = self._prefill()
        while len(self.rows):
            with inference(self.model, self.autocast):
                ended, logits = self._until_some_end(logits)
            yield ended

    def _prefill(self) -> Tensor:
        """Run the distinct prompts, and hand each of their samples its cache. Returns the logits [B, V] that follow."""
        index: dict[tuple[int, ...], int] = {}
        rows = torch.tensor([index.setdefault(tuple(p), len(index)) for p in self.prompts], device=self.device)
        unique = list(index)
        size = max(len(p) for p in unique)
        ids = torch.tensor([[self.pad_id] * (size - len(p)) + list(p) for p in unique], device=self.device)
        lengths = torch.tensor([len(p) for p in unique], device=self.device)
        mask = (torch.arange(size, device=self.device) >= size - lengths[:, None]).long()
        positions = (torch.arange(size, device=self.device) - (size - lengths[:, None])).clamp(min=0)
        self.cache = RoomyCache()
        padded = any(len(p) < size for p in unique)
        logits = self.call(self.model, ids, mask if padded else None, positions, self.cache)
        limit = self.sampling.max_new_tokens
        self.cache.expand(rows, size + min(limit, FIRST_COLUMNS))
        self.lengths, self.columns, self.padded = lengths[rows], size, padded
        self.mask = torch.nn.functional.pad(mask[rows], (0, limit), value=1)
        return logits[rows]

    def _until_some_end(self, logits: Tensor) -> tuple[list[Ended], Tensor]:
        """Decode until enough rows have ended to shrink the batch. Returns them, and the logits of the others."""
        while True:
            tokens = self._draw(logits)
            if self.on_tokens is not None:
                self.on_tokens(dict(zip(self.rows.tolist(), tokens.tolist(), strict=True)))
            self.step += 1
            self.tokens += len(tokens)
            ended = self._shrink() if self._looks() else []
            if not len(self.rows):
                return ended, logits
            tokens = self.out[self.rows, self.step - 1] if ended else tokens
            logits = self._forward(tokens)
            if ended:
                return ended, logits

    def _draw(self, logits: Tensor) -> Tensor:
        tokens, logprobs = self.draw(logits)
        self.out[self.rows, self.step] = tokens
        if logprobs is not None and self.logprobs is not None:
            self.logprobs[self.rows, self.step] = logprobs
        if len(self.stops):
            self.done |= torch.isin(tokens, self.stops)
        return tokens

    def _looks(self) -> bool:
        every = 1 if self.device.type == "cpu" else ACCELERATOR_LOOKS_EVERY
        return self.step % every == 0 or self.step == self.sampling.max_new_tokens

    def _shrink(self) -> list[Ended]:
        """Take ended rows out of the batch, if they are many enough."""
        if self.holds_stop is not None and self.step % STRINGS_EVERY == 0:
            self._look_for_strings(self.holds_stop)
        last = self.step == self.sampling.max_new_tokens
        count, ended = len(self.rows), int(self.done.sum())
        self.on_step(len(self.prompts) - count + ended, self.tokens)
        if last:
            return self._take_out(torch.ones_like(self.done))
        return self._take_out(self.done) if ended > SHRINK_AT * count or ended == count else []

    def _look_for_strings(self, holds_stop: Callable[[list[int]], bool]) -> None:
        done = self.done.tolist()
        for i, ids in enumerate(self.out[self.rows, : self.step].tolist()):
            if not done[i] and holds_stop(ids):
                self.done[i] = True

    def _take_out(self, done: Tensor) -> list[Ended]:
        """Fill the places of ended rows with rows from the end of the batch."""
        left = int((~done).sum())
        ended = self.rows[done].tolist()
        ids = self.out[ended, : self.step].tolist()
        logprobs: Sequence[Tensor | None] | Tensor = [None] * len(ended)
        if self.logprobs is not None:
            logprobs = self.logprobs[ended, : self.step].cpu()
        if isinstance(logprobs, Tensor) and not logprobs.isfinite().all():
            raise RuntimeError("the model gives probabilities that are not finite numbers: training has diverged")
        target = done[:left].nonzero()[:, 0]
        source = (~done[left:]).nonzero()[:, 0] + left
        self.cache.move(source, target, left)
        for name in ("rows", "lengths", "mask"):
            tensor = getattr(self, name)
            tensor[target] = tensor[source]
            setattr(self, name, tensor[:left])
        self.done = torch.zeros(left, dtype=torch.bool, device=self.device)
        return [Ended(*row) for row in zip(ended, ids, logprobs, strict=True)]

    def _forward(self, tokens: Tensor) -> Tensor:
        """Logits [B, V] after one more token [B]."""
        positions = self.lengths + self.step - 1
        mask = self.mask[:, : self.columns + self.step] if self.padded else None
        return self.call(self.model, tokens[:, None], mask, positions[:, None], self.cache)


@contextmanager
def inference(model: PreTrainedModel, autocast: bool = False) -> Iterator[None]:
    """Eval mode (gradient checkpointing keeps models in train mode, where there is no cache), no gradients, and the
    run's precision. Not to be held open by a generator that waits: it would hold for whoever took the last batch, too.
    """
    was_training = model.training
    model.eval()
    device = next(model.parameters()).device.type
    try:
        with torch.no_grad(), torch.autocast(device, dtype=torch.bfloat16, enabled=autocast):
            yield
    finally:
        model.train(was_training)
