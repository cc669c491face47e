"""How fast this machine multiplies and moves memory, now: the best of several tries, by the clock and by processor time."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch

from benchmarks.floors import Limits, Rows, Shape

STREAM_BYTES = 256 * 2**20
"""Of each buffer that is streamed: far more than any cache."""
TRIES = 5
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
FORMS = ("forward", "input gradient", "weight gradient")


@dataclass(frozen=True)
class Seconds:
    """By the clock, and of all threads together."""

    clock: float
    cpu: float

    def least(self, other: "Seconds") -> "Seconds":
        return Seconds(min(self.clock, other.clock), min(self.cpu, other.cpu))


@dataclass(frozen=True)
class Product:
    """[rows, inputs] x [inputs, outputs], and what it stands for."""

    tall: Rows
    kind: Literal["layer", "head"]
    form: str
    rows: int
    inputs: int
    outputs: int

    @property
    def flops(self) -> int:
        return 2 * self.rows * self.inputs * self.outputs

    def operation(self, dtype: torch.dtype) -> Callable[[], object]:
        """The product as a linear layer makes it (its weight is [outputs, inputs]), or as its backward pass does."""
        x, g = torch.randn(self.rows, self.inputs).to(dtype), torch.randn(self.rows, self.outputs).to(dtype)
        weight = torch.randn(self.outputs, self.inputs).to(dtype)
        return {
            "forward": lambda: torch.nn.functional.linear(x, weight),
            "input gradient": lambda: g @ weight,
            "weight gradient": lambda: g.T @ x,
        }[self.form]


class Measured:
    """The least seconds of each product and the best streams. `again` may be called any number of times: more tries.

    Args:
        shape: of the model, whose products these are.
        tokens: rows of training-size products with a layer's matrix.
        responses: rows of those with the vocabulary: response tokens of a chunk.
        batch: rows of decoding-size products.
        precision: of the products.
    """

    def __init__(self, shape: Shape, tokens: int, responses: int, batch: int, precision: str) -> None:
        self.dtype = DTYPES[precision]
        self.seconds: dict[Product, Seconds] = {}
        self.byte = Seconds(float("inf"), float("inf"))
        layer, head = (shape.hidden, shape.intermediate), (shape.hidden, shape.vocabulary)
        self.products = [
            Product("few", "layer", "forward", batch, *layer),
            Product("few", "head", "forward", batch, *head),
        ]
        for form in FORMS:
            self.products.append(Product("many", "layer", form, tokens, *layer))
            self.products.append(Product("many", "head", form, responses, *head))
        self.again()

    def again(self) -> None:
        """A few more tries of each."""
        for product in self.products:
            taken = least_seconds(product.operation(self.dtype))
            self.seconds[product] = taken.least(self.seconds.get(product, taken))
        a, b, c = (torch.ones(STREAM_BYTES // 4) for _ in range(3))
        # What is written without having been read costs a read all the same, so that in place is mostly the fastest.
        copy, triad, in_place = lambda: c.copy_(a), lambda: torch.add(a, b, alpha=2.0, out=c), lambda: a.add_(b)
        for buffers, stream in ((2, copy), (3, triad), (3, in_place)):
            taken, moved = least_seconds(stream), buffers * STREAM_BYTES
            self.byte = self.byte.least(Seconds(taken.clock / moved, taken.cpu / moved))

    def rate(self, product: Product, cpu: bool = False) -> float:
        """Operations per second."""
        return product.flops / (self.seconds[product].cpu if cpu else self.seconds[product].clock)

    def bandwidth(self, cpu: bool = False) -> float:
        """Bytes per second, read and written together: the best of a copy, a triad, and adding in place."""
        return 1 / (self.byte.cpu if cpu else self.byte.clock)

    def limits(self, cpu: bool = False) -> Limits:
        """For floors: the best rate over the three forms of a product. With `cpu` per second of processor time."""
        rates: dict[tuple[Rows, Literal["layer", "head"]], float] = {}
        for product in self.products:
            key = (product.tall, product.kind)
            rates[key] = max(rates.get(key, 0.0), self.rate(product, cpu))
        return Limits(rates, self.bandwidth(cpu))


def least_seconds(operation: Callable[[], object], tries: int = TRIES) -> Seconds:
    """The least of several tries, after one to warm up. Short operations are repeated until they take 5 ms."""
    begin = time.perf_counter()
    operation()
    repeats = max(1, int(0.005 / max(1e-9, time.perf_counter() - begin)))
    best = Seconds(float("inf"), float("inf"))
    for _ in range(tries):
        begin, used = time.perf_counter(), time.process_time()
        for _ in range(repeats):
            operation()
        taken = Seconds((time.perf_counter() - begin) / repeats, (time.process_time() - used) / repeats)
        best = best.least(taken)
    return best
