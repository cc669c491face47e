"""How much memory a model takes, found out without its weights.

The model is built from its configuration out of tensors that have shapes and no storage, and run forward on such tensors
while every tensor that autograd keeps for the backward pass is counted. So the counts hold for any architecture,
attention kernel and precision that transformers and torch know, and a model of any size takes about a second.
"""

import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cached_property
from itertools import islice
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForCausalLM

from rlvr.boost.frozen import Precision
from rlvr.models import attention
from rlvr.models.backbone import DTYPE_ARGUMENT
from rlvr.models.lean_layers import make_lean
from rlvr.models.loading import TINY, load_config
from rlvr.models.lora_config import LoraSettings, import_peft
from rlvr.models.quantized import layers_in_4bit, quantize
from rlvr.models.tiny import build_tiny_tokenizer, tiny_config

FLOAT32, BFLOAT16 = 4, 2
_kept: "dict[str, Footprint] | None" = None


@contextmanager
def kept_footprints() -> Iterator[None]:
    """Within the block a footprint that was asked for before is not made again, nor a pass over it that was counted."""
    global _kept
    _kept = {}
    try:
        yield
    finally:
        _kept = None


def footprint_of(
    name: str,
    precision: Precision,
    trust_remote_code: bool = False,
    lora: LoraSettings | None = None,
    load_in_4bit: bool = False,
) -> "Footprint":
    """The footprint of a model; arguments and errors are those of `Footprint`."""
    asked = (name, precision, trust_remote_code, lora, load_in_4bit)
    if _kept is None:
        return Footprint(*asked)
    key = repr(asked)
    if key not in _kept:
        _kept[key] = Footprint(*asked)
    return _kept[key]


class Footprint:
    """A causal language model without storage.

    Args:
        name: `tiny`, `smollm2-135m`, a folder, or a hub name, of which only the configuration is read.
        precision: in which it runs.
        trust_remote_code: as for loading.
        lora: adapters, besides which nothing learns.
        load_in_4bit: whether the linear layers under them are held in 4 bits.

    Raises:
        UserError: there is no such configuration.
    """

    def __init__(
        self,
        name: str,
        precision: Precision,
        trust_remote_code: bool = False,
        lora: LoraSettings | None = None,
        load_in_4bit: bool = False,
    ) -> None:
        self.name, self.precision = name, precision
        self._mode = FakeTensorMode()
        self._counted: dict[tuple[str, int, int], int] = {}
        config, arguments = read_config(name, trust_remote_code), {DTYPE_ARGUMENT: precision.weights}
        with torch.device("meta"):
            self.model: Any = AutoModelForCausalLM.from_config(config, trust_remote_code=trust_remote_code, **arguments)
            if load_in_4bit:
                quantize(self.model)
            if lora is not None:
                peft = import_peft()
                peft.inject_adapter_in_model(peft.LoraConfig(**lora.arguments()), self.model)
        make_lean(self.model)
        with self._mode:
            _onto_cpu(self.model)
        self.config = self.model.config.get_text_config()

    @cached_property
    def parameters(self) -> int:
        """Weights of the language model but for those in 4 bits; tied ones count once."""
        return _count(self.model)

    @cached_property
    def backbone_parameters(self) -> int:
        """Weights without the language-model head: what a critic starts from."""
        return _count(self.model.base_model)

    @cached_property
    def learned(self) -> int:
        """Weights of the language model that learn: all, or the adapters."""
        return _count(self.model, learned=True)

    @cached_property
    def backbone_learned(self) -> int:
        """Weights that learn without those of the language-model head."""
        return _count(self.model.base_model, learned=True)

    @cached_property
    def packed(self) -> int:
        """Weights in 4 bits."""
        return sum(layer.count for layer in layers_in_4bit(self.model))

    @cached_property
    def packed_bytes(self) -> int:
        """Bytes of the weights in 4 bits, with their scales."""
        return sum(buffer.nbytes for layer in layers_in_4bit(self.model) for buffer in layer.buffers())

    @cached_property
    def unpacked_bytes(self) -> int:
        """Bytes of the largest of these layers while its weights are whole."""
        largest = max((layer.count for layer in layers_in_4bit(self.model)), default=0)
        return largest * self.precision.computes.itemsize

    @property
    def layers(self) -> int:
        return int(self.config.num_hidden_layers)

    @property
    def hidden(self) -> int:
        return int(self.config.hidden_size)

    @property
    def vocabulary(self) -> int:
        return int(self.config.vocab_size)

    @cached_property
    def cache_elements(self) -> int:
        """Numbers that keys and values of one token take, over all layers."""
        heads = getattr(self.config, "num_key_value_heads", None) or self.config.num_attention_heads
        size = getattr(self.config, "head_dim", None) or self.hidden // self.config.num_attention_heads
        return 2 * self.layers * int(heads) * int(size)

    def saved_bytes(self, rows: int, tokens: int) -> int:
        """Bytes that the decoder's forward pass over [rows, tokens] ids keeps for the backward pass, weights excluded."""
        return self._once("saved", rows, tokens, self._saved_bytes)

    def inference_bytes(self, rows: int, tokens: int) -> int:
        """Most bytes that exist at once in the decoder's forward pass without gradients, weights excluded."""
        return self._once("inference", rows, tokens, self._inference_bytes)

    def _once(self, kind: str, rows: int, tokens: int, count: Callable[[int, int], int]) -> int:
        key = (kind, rows, tokens)
        if key not in self._counted:
            self._counted[key] = count(rows, tokens)
        return self._counted[key]

    def _saved_bytes(self, rows: int, tokens: int) -> int:
        with self._running(), _counting(self.model) as count:
            states = self._forward(rows, tokens)
            total = count()
            del states  # only now: while they live, so does the graph that holds the saved tensors
        return total

    def _inference_bytes(self, rows: int, tokens: int) -> int:
        with self._running(), torch.no_grad(), _Living() as living:
            self._forward(rows, tokens)
        return living.peak

    def _forward(self, rows: int, tokens: int) -> torch.Tensor:
        ids = torch.zeros(rows, tokens, dtype=torch.long)
        return self.model.base_model(input_ids=ids, use_cache=False).last_hidden_state

    @contextmanager
    def _running(self) -> Iterator[None]:
        short = self.precision.autocast
        cast = torch.autocast("cpu", short) if short is not None else nullcontext()
        with self._mode, _unpacked(), _one_block(), cast:
            yield


def read_config(name: str, trust_remote_code: bool) -> Any:
    """The configuration of model `name`. Raises `UserError` if it can't be read."""
    if name == TINY:  # without its warm start, which would build it
        return tiny_config(build_tiny_tokenizer())
    return load_config(name, trust_remote_code)


def _onto_cpu(model: nn.Module) -> None:
    """Turn weights and buffers of the meta device into fake ones of the CPU: a forward pass then takes the CPU's kernels and
    autocast, whose saved tensors are the ones to count. To be called under `FakeTensorMode`."""
    made: dict[int, torch.Tensor] = {}
    for module in model.modules():
        for owned in (module._parameters, module._buffers):
            for name, old in owned.items():
                if old is None:
                    continue
                if id(old) not in made:  # tied weights stay one
                    new = torch.empty(old.shape, dtype=old.dtype, device="cpu")
                    learns = old.requires_grad
                    made[id(old)] = nn.Parameter(new, learns) if isinstance(old, nn.Parameter) else new
                owned[name] = made[id(old)]  # type: ignore[assignment]


def _count(model: nn.Module, learned: bool = False) -> int:
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad or not learned)


@contextmanager
def _unpacked() -> Iterator[None]:
    """Tell transformers that rows hold one sequence each. It looks at their positions for that, which it can't without
    storage, and would make the [B, 1, T, T] mask of packed rows, which training never makes."""
    module, name = sys.modules.get("transformers.masking_utils"), "find_packed_sequence_indices"
    look = getattr(module, name, None)
    if module is None or look is None:  # older versions don't look
        yield
        return
    setattr(module, name, lambda *positions, **named: None)
    try:
        yield
    finally:
        setattr(module, name, look)


@contextmanager
def _one_block() -> Iterator[None]:
    """Let our attention, which works through its rows block by block, do the first block only. Each block takes the memory
    of the one before it, so the count is the same, and a large batch has thousands."""
    parts = attention._parts
    attention._parts = lambda *given: islice(parts(*given), 1)
    try:
        yield
    finally:
        attention._parts = parts


@contextmanager
def _counting(model: nn.Module) -> Iterator[Callable[[], int]]:
    """Counts the storages that autograd saves, each once, those of the weights not."""
    weights = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
    saved: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in weights:
            saved[storage._cdata] = storage  # held, so that no other takes its place in memory
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield lambda: sum(storage.nbytes() for storage in saved.values())


class _Living(TorchDispatchMode):
    """Adds up the storages that operations make, for as long as a tensor holds them."""

    def __init__(self) -> None:
        super().__init__()
        self.holders: dict[int, int] = {}
        self.now = self.peak = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        results = function(*args, **(kwargs or {}))
        for tensor in results if isinstance(results, tuple | list) else [results]:
            if isinstance(tensor, torch.Tensor):
                self._hold(tensor)
        self.peak = max(self.peak, self.now)
        return results

    def _hold(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        self.now += 0 if self.holders.get(key) else size
        self.holders[key] = self.holders.get(key, 0) + 1
        weakref.finalize(tensor, self._release, key, size)

    def _release(self, key: int, size: int) -> None:
        self.holders[key] -= 1
        self.now -= 0 if self.holders[key] else size
