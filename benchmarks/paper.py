"""The arithmetic of `benchmarks.scaling_model`: seconds of a PPO iteration on many GPUs.

- Responses end at different lengths, drawn from a log-normal distribution. Each GPU generates its share, and all wait for
  the last; in each optimizer step they wait for the one with the most tokens.
- A decoding step takes the longer of its products and of what it reads (weights, and keys and values of all that live).
- Collectives run at NVLink's speed within a node, beyond it at that of all of a node's network cards, as a ring over all GPUs
  leaves each node once. Each takes the time of going around beside that; NCCL makes trees of all-reduces, whose way is
  shorter, and rings of all else.
- Hidden behind computing, as far as there is any: ddp's and zero's gradients behind the backward pass that makes them, all
  of fsdp's. Not hidden: zero's weights, which are gathered after the optimizer, and fsdp's whole weights for the rollout.
"""

import math
import random
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from benchmarks.floors import Shape
from benchmarks.pipeline import Lengths, Pipeline, episode_seconds
from benchmarks.traffic import WIDTHS, Passes, least

WIDTH = 2
"""Bytes of a weight in products: bf16."""
DDP_BUCKET, ZERO_BUCKET = 25 * 2**20, 12 * 2**20 * WIDTH
"""Bytes of gradients that go together: torch's and ColossalAI's defaults."""


@dataclass(frozen=True)
class Model:
    """A decoder; `tied`: its embedding is its head."""

    shape: Shape
    tied: bool

    @property
    def weights(self) -> int:
        return self.shape.parameters + (0 if self.tied else self.shape.head_weights)

    def config(self) -> dict[str, Any]:
        """For transformers."""
        s = self.shape
        return {
            "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": s.vocabulary, "hidden_size": s.hidden,
            "intermediate_size": s.intermediate, "num_hidden_layers": s.layers, "num_attention_heads": s.heads,
            "num_key_value_heads": s.kv_heads, "head_dim": s.head_dim, "tie_word_embeddings": self.tied,
            "max_position_embeddings": 131072,
        }  # fmt: skip


MODELS = {
    "0.5b": Model(Shape(151936, 896, 4864, 24, 14, 2, 64), True),
    "1.5b": Model(Shape(151936, 1536, 8960, 28, 12, 2, 128), True),
    "7b": Model(Shape(152064, 3584, 18944, 28, 28, 4, 128), False),
    "32b": Model(Shape(152064, 5120, 27648, 64, 40, 8, 128), False),
}
"""Sizes of Qwen2.5 (their config.json), without its biases."""


@dataclass(frozen=True)
class Gpu:
    """By its data sheet: dense bf16 operations a second, bytes a second, bytes."""

    flops: float
    bandwidth: float
    memory: float


GPUS = {"h100": Gpu(989e12, 3.35e12, 80e9), "h200": Gpu(989e12, 4.8e12, 141e9)}


def _flag(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class Assumptions:
    """All that the arithmetic rests on; each is a flag."""

    gpu: str = _flag("h200", "kind of GPU: h100, h200")
    responses: int = _flag(4096, "responses in an iteration, over all GPUs")
    prompt: int = _flag(512, "tokens of each prompt")
    mean: int = _flag(1024, "mean tokens of a response")
    longest: int = _flag(4096, "most tokens of a response")
    spread: float = _flag(0.8, "standard deviation of the logarithm of a response's length")
    steps: int = _flag(4, "optimizer steps in an iteration")
    rows: int = _flag(64, "most responses that a GPU generates or scores at once (--generation_batch_size)")
    micro_batch_tokens: int = _flag(16384, "tokens in a forward and backward pass (--micro_batch_tokens)")
    forward_use: float = _flag(0.5, "share of a GPU's operations that scoring and prefill reach")
    train_use: float = _flag(0.4, "share that learning reaches, without what checkpointing computes again")
    decode_use: float = _flag(0.7, "share of the memory's bandwidth that decoding reaches")
    step_ms: float = _flag(2.0, "milliseconds of a decoding step beside its products: launches, drawing")
    node: int = _flag(8, "GPUs in a node")
    nvlink_gb: float = _flag(450.0, "GB/s that a GPU sends within its node")
    network_gb: float = _flag(50.0, "GB/s that each GPU's network card sends (400 Gb/s)")
    link_use: float = _flag(0.8, "share of both that collectives reach")
    hop_us: float = _flag(3.4, "microseconds from GPU to GPU within a node")
    network_hop_us: float = _flag(14.0, "microseconds from node to node")
    copy_gb: float = _flag(
        20.0, "GB/s between a GPU and its machine's memory, for weights on their way to rollout workers"
    )
    store_gb: float = _flag(2.5, "GB/s of Ray's object store from machine to machine")
    seed: int = _flag(0, "of the lengths")

    @property
    def hardware(self) -> Gpu:
        return GPUS[self.gpu]


def _middle(a: Assumptions) -> float:
    """The mean of the logarithm of a length, so that the mean is what it should be before the cap."""
    return math.log(a.mean) - a.spread**2 / 2


def draw_lengths(a: Assumptions, responses: int) -> np.ndarray:
    """[responses] tokens of each response."""
    rng, middle = random.Random(a.seed), _middle(a)
    return np.array([min(a.longest, max(1, round(rng.lognormvariate(middle, a.spread)))) for _ in range(responses)])


def forward_flops(shape: Shape, prompt: int, lengths: np.ndarray, outputs: int) -> np.ndarray:
    """[...] operations of a forward pass over each prompt with its response; `outputs`: weights of the head, which works at
    response positions (`benchmarks.floors.forward`)."""
    tokens = prompt + lengths
    attention = shape.attention_flops(1) * (tokens * (tokens + 1) // 2)
    return 2.0 * shape.layer_weights * tokens + attention + 2.0 * outputs * lengths


def decode_seconds(shape: Shape, a: Assumptions, lengths: np.ndarray) -> float:
    """Of all decoding steps of one GPU whose responses begin together (`benchmarks.floors.decode`)."""
    steps = np.arange(1, max(int(lengths.max()), 1))
    living = len(lengths) - np.searchsorted(np.sort(lengths), steps, side="right")
    seen = living * (a.prompt + steps)
    weights = shape.layer_weights + shape.head_weights
    flops = 2.0 * weights * living + shape.attention_flops(1) * seen
    moved = WIDTH * weights + shape.cache_bytes(1, WIDTH) * (seen + living)
    h = a.hardware
    each = np.maximum(flops / (h.flops * a.forward_use), moved / (h.bandwidth * a.decode_use)) + a.step_ms / 1e3
    return float(each.sum())


def generation_seconds(shape: Shape, a: Assumptions, lengths: np.ndarray) -> float:
    """Of one GPU: its responses, `rows` at a time, each with a prefill of its prompt."""
    prefill = (
        shape.attention_flops(1) * (a.prompt * (a.prompt + 1) // 2) + 2.0 * shape.layer_weights * a.prompt
    ) * len(lengths)
    waves = (lengths[i : i + a.rows] for i in range(0, len(lengths), a.rows))
    return prefill / (a.hardware.flops * a.forward_use) + sum(decode_seconds(shape, a, wave) for wave in waves)


def link_seconds(a: Assumptions, gpus: int, size: float, collectives: float, tree: bool = False) -> float:
    """To send `size` bytes from each GPU in so many collectives over all of them; `tree`: up and down a tree of nodes."""
    within = a.nvlink_gb * 1e9
    speed = within if gpus <= a.node else min(within, a.node * a.network_gb * 1e9)
    nodes = -(-gpus // a.node)
    around = (gpus - nodes) * a.hop_us + (nodes - 1) * a.network_hop_us
    if tree:
        around = 2 * (min(gpus, a.node) - 1) * a.hop_us + 2 * math.log2(nodes) * a.network_hop_us
    return size / (speed * a.link_use) + collectives * around / 1e6


@dataclass(frozen=True)
class Iteration:
    """Seconds of an iteration's parts; the slowest GPU's where they differ.

    Attributes:
        generation: of the average GPU, with the whole weights gathered where they are sharded.
        waiting: for the slowest GPU, in generation and in optimizer steps.
        scoring, learning: products, of the average GPU.
        sending: what of the communication is not hidden.
        optimizer: reading and writing weights and moments.
    """

    generation: float
    waiting: float
    scoring: float
    learning: float
    sending: float
    optimizer: float

    @property
    def total(self) -> float:
        return sum(getattr(self, f.name) for f in fields(self))


def iteration(
    model: Model, a: Assumptions, plugin: str, gpus: int, responses: int, generates: bool = True
) -> Iteration:
    """One iteration of PPO in bf16 with a critic and a reference as large as the actor, and one pass over the experience; without its
    generation, if others do that.

    Raises:
        ValueError: the responses don't divide into a share of each optimizer step for each GPU.
    """
    if responses % (gpus * a.steps):
        raise ValueError(f"{responses} responses don't divide among {gpus} GPUs x {a.steps} optimizer steps")
    shape, peak = model.shape, a.hardware.flops
    shares = draw_lengths(a, responses).reshape(gpus, a.steps, -1)
    generating = [generation_seconds(shape, a, share.ravel()) if generates else 0.0 for share in shares]
    policy, value = (forward_flops(shape, a.prompt, shares, n) for n in (shape.head_weights, shape.hidden))
    scoring = (2 * policy + value).sum((1, 2)) / (peak * a.forward_use)  # old logprobs, reference, values
    learning = 3 * (policy + value).sum(2) / (peak * a.train_use)  # [gpus, steps]
    passes = np.ceil((shares + a.prompt).sum(2).max() / a.micro_batch_tokens)
    sending = sum(
        not_hidden(model, a, plugin, gpus, int(passes), float(learning.mean()) / 2, head) for head in (True, False)
    )
    average = float(np.mean(generating)), float(scoring.mean()), float(learning.sum(1).mean())
    slowest = max(generating), float(scoring.max()), float(learning.max(0).sum())
    return Iteration(
        average[0], max(0.0, sum(slowest) - sum(average)), average[1], average[2], sending, _optimizer_seconds(model, a, plugin, gpus)
    )  # fmt: skip


def iteration_apart(
    model: Model,
    a: Assumptions,
    plugin: str,
    learning: int,
    generating: int,
    responses: int,
    staleness: int,
    partial_tokens: int,
) -> float:
    """Seconds of an iteration where some GPUs generate, each a rollout worker, and the others learn: the mean of a run's, between the
    filling of the pipeline and its emptying (`benchmarks.pipeline`).

    Raises:
        ValueError: as `iteration`.
    """
    size = WIDTH * model.weights / 1e9

    def request_s(before: int, new: np.ndarray) -> float:
        return generation_seconds(model.shape, replace(a, prompt=a.prompt + before), new)

    pipeline = Pipeline(
        Lengths(math.exp(_middle(a)), a.spread, a.longest), responses, a.rows, generating, request_s,
        iteration(model, a, plugin, learning, responses, generates=False).total,
        publish_s=size / a.copy_gb, take_s=size / a.store_gb + size / a.copy_gb,
        staleness=staleness, partial_tokens=partial_tokens, seed=a.seed,
    )  # fmt: skip
    count = 6 + 2 * staleness
    return float(np.mean(episode_seconds(pipeline, count)[2 + staleness : count - staleness]))


def not_hidden(
    model: Model, a: Assumptions, plugin: str, gpus: int, passes: int, computing: float, is_actor: bool
) -> float:
    """Seconds of a role's communication in an iteration, less what its computing hides.

    Args:
        passes: micro-batches of an optimizer step.
        computing: seconds of its products in an optimizer step.
    """
    w, g = WIDTHS[plugin, "bf16"]
    weights, layers = model.weights, model.shape.layer_weights
    units = model.shape.layers + 1
    share = (gpus - 1) / gpus
    backward = computing * 2 / 3
    if plugin == "ddp":
        sent = least(plugin, "bf16", weights, layers, Passes(1, 1), gpus)
        summed = link_seconds(a, gpus, sent, g * weights / DDP_BUCKET, tree=True)
        return a.steps * max(0.0, summed - backward / passes)
    if plugin == "fsdp":
        sent = least(plugin, "bf16", weights, layers, Passes(1, passes), gpus)
        learned = link_seconds(a, gpus, sent, 2 * units * passes + units)
        scored = link_seconds(a, gpus, share * w * weights, units)
        gathered = link_seconds(a, gpus, share * w * weights, units) if is_actor else 0.0
        forward = computing / 3 / passes * a.train_use / a.forward_use  # of one micro-batch, scored
        return gathered + max(0.0, scored - forward) * passes * a.steps + a.steps * max(0.0, learned - computing)
    times = passes if plugin == "zero2" else 1
    summed = link_seconds(a, gpus, share * g * weights, g * weights / ZERO_BUCKET)
    gathered = link_seconds(a, gpus, share * w * weights, w * weights / ZERO_BUCKET)
    return a.steps * (times * max(0.0, summed - backward / passes) + gathered)


def _optimizer_seconds(model: Model, a: Assumptions, plugin: str, gpus: int) -> float:
    """AdamW reads a gradient and three float32 numbers of each weight, and writes three and the weight in bf16."""
    own = 2 * model.weights / (1 if plugin == "ddp" else gpus)
    return a.steps * own * (4 + 12 + 12 + WIDTH) / (a.hardware.bandwidth * a.decode_use)
