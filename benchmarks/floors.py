"""What an iteration has to compute and to move, and the least time that a machine needs for it: arithmetic alone.

Counted is what the mathematics needs, not what we do:

- Floating point operations of matrix products: 2 for each weight and token in a forward pass, 4 more in a backward pass;
  attention over the causal half of its square; the head at response positions only. What our backward pass computes again
  (the head's logits) is `recomputed` and has no place in a floor.
- Bytes that must move: the weights once for each pass, in the precision of the products; the keys and values that a
  decoding step reads and writes; weights, gradients and AdamW's moments in an optimizer step. Activations are left out:
  how many of them leave the cache is a matter of implementation.

A floor is max(operations / rate, bytes / bandwidth), for each decoding step by itself. Element-wise work (norms, softmax,
drawing) has none. For models that fit into the processor's cache, bytes move faster than the bandwidth measured here.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

Rows = Literal["many", "few"]
"""Of a product: all tokens of a training batch, or one token of each response in a decoding step."""


@dataclass(frozen=True)
class Shape:
    """A decoder with gated MLPs (Llama), its embedding tied to its head."""

    vocabulary: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int

    @property
    def layer_weights(self) -> int:
        """Weights in all layers' matrices."""
        attention = 2 * self.hidden * self.head_dim * (self.heads + self.kv_heads)
        return self.layers * (attention + 3 * self.hidden * self.intermediate)

    @property
    def head_weights(self) -> int:
        """Weights of the embedding, which is the head."""
        return self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        """All that is trained: matrices and norms."""
        return self.layer_weights + self.head_weights + (2 * self.layers + 1) * self.hidden

    def attention_flops(self, pairs: int) -> int:
        """Of all layers over so many pairs of a query and a key."""
        return 4 * self.layers * self.heads * self.head_dim * pairs

    def cache_bytes(self, tokens: int, width: int) -> int:
        """Keys and values of so many tokens in all layers, `width` bytes each."""
        return 2 * self.layers * self.kv_heads * self.head_dim * tokens * width


class Lengths(NamedTuple):
    """Tokens of a prompt and of its response; with the first `known` of them another row of the batch begins, too, and computes
    them."""

    prompt: int
    response: int
    known: int = 0

    @property
    def tokens(self) -> int:
        """Those that are computed for this row."""
        return self.prompt + self.response - self.known

    @property
    def causal_pairs(self) -> int:
        """Pairs of a token that is computed and one that it sees."""
        return self.tokens * self.known + self.tokens * (self.tokens + 1) // 2


@dataclass(frozen=True)
class Cost:
    """Of one pass.

    Attributes:
        layers: operations in products with the layers' matrices, and in attention.
        head: operations in products with the vocabulary.
        moved: bytes.
        rows: how tall the products are, which decides how fast a machine is.
    """

    layers: float = 0.0
    head: float = 0.0
    moved: float = 0.0
    rows: Rows = "many"

    @property
    def flops(self) -> float:
        return self.layers + self.head

    def at(self, limits: "Limits") -> float:
        """The floor: seconds."""
        return max(self.computing(limits), self.moved / limits.bandwidth)

    def computing(self, limits: "Limits") -> float:
        """Seconds of its products."""
        return self.layers / limits.rates[self.rows, "layer"] + self.head / limits.rates[self.rows, "head"]


@dataclass(frozen=True)
class Limits:
    """What a machine reached.

    Attributes:
        rates: operations per second, by the rows of a product and by what it is with: a layer's matrix or the head.
        bandwidth: bytes per second.
    """

    rates: Mapping[tuple[Rows, Literal["layer", "head"]], float]
    bandwidth: float


def forward(shape: Shape, sequences: Sequence[Lengths], width: int, head: Literal["vocabulary", "value"]) -> Cost:
    """One forward pass over whole sequences; the head works at response positions. `width`: bytes of a weight."""
    tokens, responses = sum(s.tokens for s in sequences), sum(s.response for s in sequences)
    attention = shape.attention_flops(sum(s.causal_pairs for s in sequences))
    outputs = shape.head_weights if head == "vocabulary" else shape.hidden
    return Cost(
        layers=2 * shape.layer_weights * tokens + attention,
        head=2 * outputs * responses,
        moved=width * (shape.layer_weights + outputs),
    )


def backward(shape: Shape, ahead: Cost, width: int) -> Cost:
    """The backward pass of `forward`'s: gradients of inputs and of weights; float32 gradients are written once."""
    return Cost(2 * ahead.layers, 2 * ahead.head, ahead.moved + 4 * ahead.moved / width)


def recomputed(shape: Shape, sequences: Sequence[Lengths]) -> Cost:
    """The head's logits once more in the backward pass, which keeps memory low: overhead, in no floor."""
    return Cost(head=2 * shape.head_weights * sum(s.response for s in sequences))


def optimizer_step(parameters: int, width: int) -> Cost:
    """AdamW on float32 weights: gradients are read for their norm, then weights, gradients and two moments are read and
    all but the gradients written; a copy of the weights in the products' precision, where that is another, is written."""
    return Cost(moved=parameters * (4 + 16 + 12 + (width if width != 4 else 0)))


def prefill(shape: Shape, prompts: Sequence[int], width: int) -> Cost:
    """The distinct prompts, and the logits after each."""
    whole = forward(shape, [Lengths(length, 0) for length in prompts], width, "vocabulary")
    cache = shape.cache_bytes(sum(prompts), width)
    return Cost(whole.layers, 2.0 * shape.head_weights * len(prompts), whole.moved + cache)


def decode(shape: Shape, sequences: Sequence[Lengths], width: int) -> Iterator[Cost]:
    """Each step after the prefill, with the responses that have not ended: the last token of a response is not run."""
    weights = shape.layer_weights + shape.head_weights
    for step in range(1, max((s.response for s in sequences), default=0)):
        seen = [s.prompt + step for s in sequences if s.response > step]
        yield Cost(
            layers=2 * shape.layer_weights * len(seen) + shape.attention_flops(sum(seen)),
            head=2 * shape.head_weights * len(seen),
            moved=width * weights + shape.cache_bytes(sum(seen) + len(seen), width),
            rows="few",
        )


@dataclass(frozen=True)
class Iteration:
    """What one iteration was.

    Attributes:
        sequences: all prompts with their responses.
        distinct_prompts: lengths of the prompts without their repetitions.
        mini_batches: the sequences of each optimizer step.
        critic, reference, recompute: whether there is a critic, a reference, and a pass for the old logprobs.
    """

    sequences: Sequence[Lengths]
    distinct_prompts: Sequence[int]
    mini_batches: Sequence[Sequence[Lengths]]
    critic: bool
    reference: bool
    recompute: bool


PHASES = (
    "prefill", "decode", "actor logprobs", "reference logprobs", "critic values", "actor forward", "actor backward",
    "actor optimizer", "critic forward", "critic backward", "critic optimizer",
)  # fmt: skip


def costs(shape: Shape, work: Iteration, width: int) -> dict[str, list[Cost]]:
    """The passes of each of `PHASES` that the iteration has, for weights of `width` bytes in products."""
    scored = forward(shape, work.sequences, width, "vocabulary")
    passes: dict[str, list[Cost]] = {
        "prefill": [prefill(shape, work.distinct_prompts, width)],
        "decode": list(decode(shape, work.sequences, width)),
    }
    if work.recompute:
        passes["actor logprobs"] = [scored]
    if work.reference:
        passes["reference logprobs"] = [scored]
    if work.critic:
        passes["critic values"] = [forward(shape, work.sequences, width, "value")]
    roles: list[tuple[str, Literal["vocabulary", "value"], int]] = [("actor", "vocabulary", shape.parameters)]
    if work.critic:
        roles.append(("critic", "value", shape.parameters + shape.hidden + 1))
    for role, head, parameters in roles:
        ahead = [forward(shape, batch, width, head) for batch in work.mini_batches]
        passes[f"{role} forward"] = ahead
        passes[f"{role} backward"] = [backward(shape, cost, width) for cost in ahead]
        passes[f"{role} optimizer"] = [optimizer_step(parameters, width)] * len(ahead)
    return passes


def distinct(prompts: Sequence[Sequence[int]]) -> list[int]:
    """Lengths of the prompts, each once."""
    return [len(prompt) for prompt in {tuple(p) for p in prompts}]
