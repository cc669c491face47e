"""The decoding loop of the `hf` engine: one batch of prompts to its end, over `model.forward` and our own cache.

What it saves against `model.generate`: the samples of one prompt share its prefill, and all prompts that of what they begin
with alike, such as a system prompt; keys and values are not copied at
each step (`PreallocatedCache`); drawing reads the vocabulary twice instead of many times (`draw_weighted`); rows that have
ended leave the batch. Tried and left out: transformers' static cache (no faster than its dynamic one on a CPU), and a
copy of the weights in bfloat16 (no faster than autocast, and further from what is trained). `benchmarks/generate.py`.

In this order: drawing a token, calling a model, the loop (`Decoder`). `rlvr.rollout.hf` makes rollouts of it.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from rlvr.errors import UserError
from rlvr.models.batch import common_beginning
from rlvr.models.padding_free import attends_to_all
from rlvr.rollout.engine import Sampling
from rlvr.rollout.kv_cache import PreallocatedCache, Prefixes, RowCache

BLOCK = 256
"""Tokens of a block, in vocabularies of more than `SMALL`."""
SMALL = 2048
"""Largest vocabulary whose cumulative sum is taken in one piece."""

Draw = Callable[[Tensor], tuple[Tensor, Tensor]]


def make_draw(temperature: float, top_k: int, top_p: float, generator: torch.Generator) -> Draw:
    """A function from logits [B, V] to tokens [B] and their logprobs [B] (where greedy, their logits).

    Logprobs are those of the whole distribution at this temperature, whatever top-k and top-p leave of it: the same
    quantity that the trainer computes as old logprobs.
    """
    if temperature == 0:

        def largest(logits: Tensor) -> tuple[Tensor, Tensor]:
            top = logits.max(-1)
            return top.indices, top.values

        return largest

    def draw(logits: Tensor) -> tuple[Tensor, Tensor]:
        scaled = logits.float() if temperature == 1 else logits.float() / temperature
        top = scaled.amax(-1, keepdim=True)
        weights = (scaled - top).exp_()
        if top_k or top_p < 1:
            total = weights.sum(-1, dtype=torch.float64, keepdim=True)
            tokens, _ = draw_weighted(truncated(weights, top_k, top_p), generator)
        else:
            tokens, total = draw_weighted(weights, generator)
        return tokens[:, 0], (scaled.gather(1, tokens) - top - total.log())[:, 0].float()

    return draw


def draw_weighted(weights: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw an index of each row of weights [B, V] >= 0 with probability proportional to it.

    By inversion of the cumulative sum in float64; over blocks first, where V is large, then inside the block. Against
    that, `torch.multinomial` draws an exponential for each token of the vocabulary, and took half as long as the model
    of 40M parameters.

    Returns:
        [B, 1] indices, none of weight 0, and the [B, 1] sums of the rows in float64 (NaN if a weight is).
    """
    size = weights.size(1)
    if size <= SMALL:
        return _invert(weights, generator)
    whole = size // BLOCK
    blocks = weights[:, : whole * BLOCK].unflatten(1, (whole, BLOCK)).sum(-1)
    if size % BLOCK:
        blocks = torch.cat([blocks, weights[:, whole * BLOCK :].sum(-1, keepdim=True)], 1)
    block, total = _invert(blocks, generator)
    inside = block * BLOCK + torch.arange(BLOCK, device=weights.device)
    tokens = weights.gather(1, inside.clamp(max=size - 1)).masked_fill_(inside >= size, 0.0)
    index, _ = _invert(tokens, generator)
    return block * BLOCK + index, total


def _invert(weights: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """[B, 1] where the cumulative sum of [B, N] weights passes a random share of the total, and that total."""
    ends = weights.cumsum(-1, dtype=torch.float64)
    total = ends[:, -1:]
    share = torch.rand(total.shape, dtype=torch.float64, device=weights.device, generator=generator)
    # The share is at most 1 - 2^-53, and total * (1 - 2^-53) rounds to less than the total: what is found has weight.
    # Not so if a weight is NaN, hence the clamp: `Decoder` reports that.
    return torch.searchsorted(ends, share * total, right=True).clamp_(max=weights.size(1) - 1), total


def truncated(weights: Tensor, top_k: int, top_p: float) -> Tensor:
    """Weights [B, V] with 0 for all but the `top_k` largest, and of these for all but the smallest set that holds the
    share `top_p` of their sum (as transformers does it: top-k first, at least one token stays)."""
    if top_k and top_k < weights.size(1):
        least = weights.topk(top_k, -1).values[:, -1:]
        weights = weights.masked_fill(weights < least, 0.0)
    if top_p < 1:
        ordered, order = weights.sort(dim=-1, descending=True)
        before = ordered.cumsum(-1, dtype=torch.float64) - ordered
        drop = before >= top_p * ordered.sum(-1, keepdim=True, dtype=torch.float64)
        drop[:, 0] = False
        weights = weights.masked_fill(drop.scatter(1, order, drop), 0.0)
    return weights


# Calling a model with our cache, and finding out if it can be.

ATTENTION = {"full_attention", "sliding_attention"}
"""Kinds of layers that keep keys and values and nothing else."""


@dataclass(frozen=True)
class ForwardCall:
    """Calls a model's forward with the arguments that it knows.

    Attributes:
        position_ids: true if it takes them (ALiBi models don't).
        keep: its argument that limits logits to the last positions, if it has one.
        gaps: true if padding may stand between tokens of a row, which a window of columns would count.
    """

    position_ids: bool
    keep: str | None
    gaps: bool

    @classmethod
    def of(cls, model: PreTrainedModel) -> "ForwardCall":
        base = model.get_base_model() if hasattr(model, "get_base_model") else model  # an adapter takes anything
        names = inspect.signature(base.forward).parameters
        keep = next((name for name in ("logits_to_keep", "num_logits_to_keep") if name in names), None)
        return cls("position_ids" in names, keep, attends_to_all(model.config.get_text_config()))

    def __call__(
        self, model: PreTrainedModel, ids: Tensor, mask: Tensor | None, positions: Tensor, cache: PreallocatedCache
    ) -> Tensor:
        """Logits [B, V] after the last of the tokens [B, N], which the cache takes in.

        Args:
            mask: [B, T] over the cached and the new tokens; None if there is no padding.
            positions: [B, N] counted over each row's tokens.
        """
        inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": mask, "past_key_values": cache, "use_cache": True}
        if self.position_ids:
            inputs["position_ids"] = positions
        if self.keep:
            inputs[self.keep] = 1
        return model(**inputs).logits[:, -1]


def can_decode(model: PreTrainedModel) -> bool:
    """True if the model decodes with our cache: it keeps keys and values and nothing else, and a trial agrees."""
    return _keeps_keys_and_values(model) and _trial_agrees(model)


def _keeps_keys_and_values(model: PreTrainedModel) -> bool:
    config = model.config.get_text_config()
    kinds: Sequence[str] = getattr(config, "layer_types", None) or ()
    supports = getattr(model, "_supports_default_dynamic_cache", lambda: True)
    return (
        set(kinds) <= ATTENTION
        and not getattr(model.config, "is_encoder_decoder", False)
        and not getattr(model, "_is_stateful", False)
        # Layers that read another layer's cache, and (before transformers 5) caches that mix kinds of layers.
        and not getattr(config, "num_kv_shared_layers", 0)
        and getattr(config, "cache_implementation", None) in (None, "dynamic")
        and bool(supports())
        and getattr(type(model), "_supports_cache_class", True)
    )


@torch.no_grad()
def _trial_agrees(model: PreTrainedModel) -> bool:
    """True if two prompts of different length, swapped, then one more token, give the logits of no cache and no padding."""
    call = ForwardCall.of(model)
    device = next(model.parameters()).device
    ids = torch.tensor([[1, 2, 3], [4, 5, 6]], device=device) % model.config.get_text_config().vocab_size
    mask = torch.tensor([[1, 1, 1], [0, 1, 1]], device=device)
    positions = torch.tensor([[0, 1, 2], [0, 0, 1]], device=device)
    cache = PreallocatedCache()
    call(model, ids, mask, positions, cache)
    if len(cache) == 0:  # the model has made a cache of its own
        return False
    order = torch.tensor([1, 0], device=device)
    cache.expand(order, 4)
    new = ids[:, :1]
    mask = torch.nn.functional.pad(mask[order], (0, 1), value=1)
    got = call(model, new, mask, positions[order, -1:] + 1, cache)
    whole = [torch.cat([ids[1, 1:], new[0]]), torch.cat([ids[0], new[1]])]
    expected = torch.stack([model(input_ids=row[None], use_cache=False).logits[0, -1] for row in whole])
    if not expected.isfinite().all():
        return True  # a model that has diverged, which `Decoder` reports
    scale = float(expected.float().std()) or 1.0
    return bool((got.float() - expected.float()).abs().max() < 0.05 * scale)


# The loop.

WORTH_SHARING = 16
"""Tokens that all prompts begin with from which on a pass of their own is worth it."""
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
    """A row that has left the batch: its place among the prompts, and all that it generated, with some after its stop.

    `cache` is known of its prompt and of all that it generated but the last token; None where nobody asked.
    """

    row: int
    ids: list[int]
    logprobs: Tensor | None
    cache: RowCache | None = None


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
        prefixes: what is known of beginnings of prompts, and whether caches of ended rows are wanted for more of them.
        autocast: run the model under bfloat16 autocast.
        on_step: called after each look for ended rows with their number and the number of tokens so far.
        on_tokens: called with the newest token of each row that is left, which waits for the device; None = not called.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        call: ForwardCall,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        generator: torch.Generator,
        *,
        pad_id: int,
        holds_stop: Callable[[list[int]], bool] | None = None,
        prefixes: Prefixes | None = None,
        autocast: bool = False,
        on_step: Callable[[int, int], None] = lambda ended, tokens: None,
        on_tokens: Callable[[dict[int, int]], None] | None = None,
    ) -> None:
        self.on_step, self.on_tokens = on_step, on_tokens
        self.model, self.call, self.sampling, self.holds_stop = model, call, sampling, holds_stop
        self.device = generator.device
        self.draw = make_draw(sampling.temperature, sampling.top_k, sampling.top_p, generator)
        self.autocast = autocast
        self.prefixes = prefixes if call.gaps else None
        self.prompts, self.pad_id = prompts, pad_id
        self.step = 0
        self.tokens = 0
        count, limit = len(prompts), sampling.max_new_tokens
        # On the device: written at each step and read when a row ends, so that a step itself transfers no tokens.
        self.out = torch.zeros(count, limit, dtype=torch.long, device=self.device)
        self.greedy = sampling.temperature == 0
        self.logprobs = torch.zeros(count, limit, device=self.device)
        self.rows = torch.arange(count, device=self.device)  # [rows left] the response that each row of the batch is
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
        index: dict[tuple[int, ...], int] = {}  # of each distinct prompt
        rows = torch.tensor([index.setdefault(tuple(p), len(index)) for p in self.prompts], device=self.device)
        unique = list(index)
        known, begin = self._prefill_beginnings(unique)
        new = max(len(p) - n for p, n in zip(unique, known, strict=True))
        size = begin + new
        # Padded on the left of what is new, so that the new tokens of all rows share a column.
        rest = [p[n:] for p, n in zip(unique, known, strict=True)]
        ids = torch.tensor([[self.pad_id] * (new - len(p)) + list(p) for p in rest], device=self.device)
        lengths, cached = (torch.tensor(x, device=self.device) for x in ([len(p) for p in unique], known))
        columns = torch.arange(size, device=self.device)
        mask = (columns < begin) & (columns >= begin - cached[:, None])
        mask = (mask | (columns >= size - (lengths - cached)[:, None])).long()
        positions = (columns[begin:] - (size - lengths[:, None])).clamp(min=0)
        padded = any(len(p) < size for p in unique)
        # Several tokens after those in the cache need a mask to be causal by.
        logits = self.call(self.model, ids, mask if padded or begin else None, positions, self.cache)
        limit = self.sampling.max_new_tokens
        self.cache.expand(rows, size + min(limit, FIRST_COLUMNS))
        self.lengths, self.columns, self.padded = lengths[rows], size, padded
        # [B, size + limit]: made once for all tokens that may come, of which each step takes those that there are.
        self.mask = torch.nn.functional.pad(mask[rows], (0, limit), value=1)
        return logits[rows]

    def _prefill_beginnings(self, prompts: Sequence[tuple[int, ...]]) -> tuple[list[int], int]:
        """Make the cache, with what is known of beginnings already, or with what all prompts begin with. Returns of how many tokens of each
        that is, and the columns that it takes."""
        self.cache = PreallocatedCache()
        known = [self.prefixes.take(p) for p in prompts] if self.prefixes is not None else []
        if any(row is not None for row in known):
            counts = [0 if row is None else row[0][0].size(1) for row in known]
            return counts, self.cache.fill(known, max(len(p) - n for p, n in zip(prompts, counts, strict=True)))
        alike = self._prefill_alike(prompts)
        return [alike] * len(prompts), alike

    def _prefill_alike(self, prompts: Sequence[tuple[int, ...]]) -> int:
        """If all prompts begin alike with enough tokens, run these once for all. Returns how many."""
        # The first and the last in order have least in common; a token has to be left for each.
        alike = min(common_beginning(min(prompts), max(prompts)), min(map(len, prompts)) - 1)
        if len(prompts) == 1 or alike < WORTH_SHARING or not self.call.gaps:
            return 0
        ids = torch.tensor([prompts[0][:alike]], device=self.device)
        self.call(self.model, ids, None, torch.arange(alike, device=self.device)[None], self.cache)
        self.cache.expand(torch.zeros(len(prompts), dtype=torch.long, device=self.device), max(map(len, prompts)))
        return alike

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
        self.logprobs[self.rows, self.step] = logprobs.float()
        if len(self.stops):
            self.done |= torch.isin(tokens, self.stops)
        return tokens

    def _looks(self) -> bool:
        # To look is to wait for the device; on a CPU nothing is queued.
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
        logprobs = self.logprobs[ended, : self.step].cpu()
        if not logprobs.isfinite().all():
            raise UserError(
                "the model gives probabilities that are not finite numbers: it is broken (its training has diverged), or its numbers "
                "are too large for this precision: try another checkpoint, or --mixed_precision fp32"
            )
        caches: Sequence[RowCache | None] = [None] * len(ended)
        if self.prefixes is not None:
            caches = self.cache.take(done.nonzero()[:, 0], self.mask[done][:, : self.columns + self.step - 1].bool())
        target = done[:left].nonzero()[:, 0]
        source = (~done[left:]).nonzero()[:, 0] + left
        self.cache.move(source, target, left)
        for name in ("rows", "lengths", "mask"):
            tensor = getattr(self, name)
            tensor[target] = tensor[source]
            setattr(self, name, tensor[:left])
        self.done = torch.zeros(left, dtype=torch.bool, device=self.device)
        given = [None] * len(ended) if self.greedy else logprobs
        return [Ended(*row) for row in zip(ended, ids, given, caches, strict=True)]

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
