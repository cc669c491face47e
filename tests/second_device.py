"""A second device type for machines that have none: `second:0`, whose tensors do not mix with the CPU's.

    second_device.install()      # once in a process, before anything of rlvr's chooses a device

It takes the place that PyTorch keeps for other people's backends (PrivateUse1), in Python alone. A tensor of it has a storage of
its own over main memory, so that views, `.data` and lifetimes are PyTorch's own; each operation is done by the CPU's kernel on the
same memory, after a check that its tensors are where a GPU would want them. It is as strict as CUDA is:

- tensors of two devices in one operation are refused, but for numbers (0 dimensions) in pointwise operations, and indices;
- a generator of the CPU draws nothing here;
- NumPy sees none of its memory;
- the process group carries tensors of this device alone, as NCCL does;
- there are two such devices, and a process has no business with the other one.

What it can't show: what hangs on time (streams, events, copies that are still under way), memory that runs out, operations that
CUDA has no kernel for, and code that asks for "cuda" by name.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from weakref import WeakValueDictionary

import torch
import torch.distributed as dist
from colossalai.accelerator.base_accelerator import BaseAccelerator
from torch.distributed.fsdp._fully_shard import _fsdp_param
from torch.utils._pytree import tree_map, tree_map_only
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from rlvr.boost import accelerator
from rlvr.boost.process import ACCELERATORS

NAME = "second"
COUNT = 2
CPU = torch.device("cpu")

_SET = torch.ops.aten.set_.source_Storage_storage_offset
_CPU_KERNEL = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
_CPU_INDICES = {"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"}
_generators: "WeakValueDictionary[int, torch.Generator]" = WeakValueDictionary()
_libraries: list[torch.library.Library] = []


# Tensors: a storage of each device over the same memory.


def is_here(tensor: torch.Tensor) -> bool:
    return tensor.device.type == NAME


def host_view(tensor: torch.Tensor) -> torch.Tensor:
    """A CPU tensor over the memory of one of ours."""
    memory = tensor.untyped_storage()
    storage = torch._C._construct_storage_from_data_pointer(memory.data_ptr(), CPU, memory.nbytes())
    return torch.empty(0, dtype=tensor.dtype).set_(storage, tensor.storage_offset(), tensor.size(), tensor.stride())


def place(storage: torch.UntypedStorage, like: torch.Tensor) -> torch.Tensor:
    """A tensor of ours in a storage of ours, with the layout of a CPU tensor."""
    empty = torch._C._acc.create_empty_tensor([0], like.dtype)
    return _SET.redispatch(_CPU_KERNEL, empty, storage, like.storage_offset(), like.size(), like.stride())


def take(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of ours that owns the memory of a CPU tensor."""
    memory = tensor.untyped_storage()
    storage = torch._C._construct_storage_from_data_pointer(memory.data_ptr(), torch.device(NAME, 0), memory.nbytes())
    storage.memory = memory  # which keeps it for as long as the storage lives
    return place(storage, tensor)


# Operations.


def _run(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Any operation without a kernel of its own below: the CPU's, on the same memory."""
    storages: dict[int, torch.UntypedStorage] = {}
    schema = op._schema
    numbers = torch.Tag.pointwise in op.tags
    indices = schema.name in _CPU_INDICES

    def to_host(x: Any) -> Any:
        if isinstance(x, torch.Tensor) and is_here(x):
            view = host_view(x)
            storages[view.untyped_storage().data_ptr()] = x.untyped_storage()
            return view
        if (
            isinstance(x, torch.Tensor)
            and not (numbers and x.dim() == 0)
            and not (indices and not x.is_floating_point())
        ):
            raise RuntimeError(
                f"{op}: Expected all tensors to be on the same device, but found one of {tuple(x.shape)} on {x.device}"
            )
        if isinstance(x, torch._C.Generator) and x._cdata not in _generators:
            raise RuntimeError(f"{op}: Expected a '{NAME}' device type for generator but found 'cpu'")
        return CPU if isinstance(x, torch.device) else x

    given = dict(zip((a.name for a in schema.arguments), args, strict=False)) | kwargs
    host = {name: tree_map(to_host, value) for name, value in given.items()}
    outs = [a.name for a in schema.arguments if a.is_out and given[a.name].numel() == 0]
    for name in outs:  # to be made as large as it must be, which memory of another can't
        host[name] = torch.empty(0, dtype=given[name].dtype)
    positional = [host.pop(a.name) for a in schema.arguments if not a.kwarg_only and a.name in host]
    with _own_numbers() if torch.Tag.nondeterministic_seeded in op.tags else nullcontext():
        # A number in a tensor's place comes as a number, which another overload of the operation takes.
        plain = any(isinstance(given.get(a.name), int | float) for a in schema.arguments if str(a.type) == "Tensor")
        result = (op.overloadpacket if plain else op)(*positional, **host)
    for name in outs:
        given[name].set_(take(host[name]))

    def to_device(x: torch.Tensor) -> torch.Tensor:
        storage = storages.get(x.untyped_storage().data_ptr()) if x.untyped_storage().nbytes() else None
        return take(x) if storage is None else place(storage, x)

    def returned(spec: Any, value: Any) -> Any:
        if spec.alias_info is None or not spec.alias_info.is_write:
            return tree_map_only(torch.Tensor, to_device, value)
        same = (a.name for a in schema.arguments if a.alias_info is not None)
        return given[next(n for n in same if _alias(schema, n) == spec.alias_info.before_set)]

    if len(schema.returns) == 1:
        return returned(schema.returns[0], result)
    return tuple(returned(s, r) for s, r in zip(schema.returns, result, strict=True)) if schema.returns else None


@contextmanager
def _own_numbers() -> Iterator[None]:
    """Draw from this device's generator where none is given."""
    before = torch.get_rng_state()
    torch.set_rng_state(DeviceModule.default.get_state())
    yield
    DeviceModule.default.set_state(torch.get_rng_state())
    torch.set_rng_state(before)


def _alias(schema: Any, name: str) -> Any:
    return next(a.alias_info.before_set for a in schema.arguments if a.name == name)


def _set(self: torch.Tensor, storage: torch.UntypedStorage, offset: int, size: Any, stride: Any = ()) -> torch.Tensor:
    return _SET.redispatch(_CPU_KERNEL, self, storage, offset, size, stride)


def _set_storage(self: torch.Tensor, storage: torch.UntypedStorage) -> torch.Tensor:
    return _set(self, storage, 0, [storage.nbytes() // self.element_size()])


def _set_tensor(self: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    return _set(self, source.untyped_storage(), source.storage_offset(), source.size(), source.stride())


def _resize(self: torch.Tensor, size: Any, *, memory_format: Any = None) -> torch.Tensor:
    new = torch.empty(size, dtype=self.dtype)
    storage = self.untyped_storage()
    if new.untyped_storage().nbytes() > storage.nbytes():
        storage = take(new).untyped_storage()
    return _set(self, storage, self.storage_offset(), new.size(), new.stride())


def _copy_from(self: torch.Tensor, dst: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    (host_view(dst) if is_here(dst) else dst).copy_(host_view(self) if is_here(self) else self)
    return dst


def _which_attention(*args: Any, **kwargs: Any) -> int:
    return 0  # the plain one, of operations that are checked one by one


def _clone_storage(self: torch.UntypedStorage) -> torch.UntypedStorage:
    plain = torch.empty(self.nbytes(), dtype=torch.uint8)
    return (take(plain) if self.device.type == NAME else plain).untyped_storage().copy_(self)


def _pin(self: torch.Tensor, device: Any = None) -> torch.Tensor:
    DeviceModule.calls.append("pin_memory")
    return self.clone()


KERNELS: dict[str, Callable[..., Any]] = {
    "set_.source_Storage": _set_storage,
    "set_.source_Storage_storage_offset": _set,
    "set_.source_Tensor": _set_tensor,
    "resize_": _resize,
    "_copy_from": _copy_from,
    "_fused_sdp_choice": _which_attention,
}


# Autocast: which operations CUDA casts to bf16 and which to fp32.

TO_BF16 = ("linear", "matmul", "mm", "bmm", "mv", "addmm", "addbmm", "baddbmm", "scaled_dot_product_attention")
TO_FP32 = (
    "exp",
    "log",
    "pow.Tensor_Scalar",
    "rsqrt",
    "softmax.int",
    "log_softmax.int",
    "logsumexp",
    "cumsum",
    "sum",
    "sum.dim_IntList",
)


def _casting(op: Any, dtype: Callable[[], torch.dtype]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        def cast(x: torch.Tensor) -> torch.Tensor:
            return x.to(dtype()) if x.is_floating_point() and x.dtype != torch.float64 and is_here(x) else x

        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)):
            return op(*tree_map_only(torch.Tensor, cast, args), **tree_map_only(torch.Tensor, cast, kwargs))

    return call


def _register_autocast(everything: torch.library.Library, kernels: torch.library.Library) -> None:
    everything.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    for names, dtype in ((TO_BF16, lambda: torch.get_autocast_dtype(NAME)), (TO_FP32, lambda: torch.float32)):
        for name in names:
            packet, _, overload = name.partition(".")
            op = getattr(getattr(torch.ops.aten, packet), overload or "default")
            kernels.impl(name, _casting(op, dtype), "AutocastPrivateUse1")


# What torch asks a device for beside operations: `torch.second`.


class Generator(torch.Generator):
    """A generator of ours; the numbers are the CPU's."""

    def __init__(self) -> None:
        _generators[self._cdata] = self

    @property
    def device(self) -> torch.device:
        return torch.device(NAME, 0)


_plain_generator = torch.Generator


class _AnyGenerator(type):
    def __call__(cls, device: Any = "cpu") -> torch.Generator:
        return Generator() if torch.device(device).type == NAME else _plain_generator(device)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _plain_generator)


class DeviceModule:
    """`torch.second`, with what `torch.cuda` has and somebody asks for."""

    default = Generator()
    calls: list[str] = []

    @staticmethod
    def _own(device: Any) -> None:
        index = device if isinstance(device, int) or device is None else torch.device(device).index
        if index not in (None, 0):
            raise RuntimeError(f"{NAME}:{index} belongs to another process")

    def is_initialized(self) -> bool:
        return True

    def is_available(self) -> bool:
        return True

    def current_device(self) -> int:
        return 0

    def device_count(self) -> int:
        return COUNT

    def _is_in_bad_fork(self) -> bool:
        return False

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]

    def is_bf16_supported(self, including_emulation: bool = True) -> bool:
        return True

    def manual_seed(self, seed: int) -> None:
        self.default.manual_seed(seed)

    manual_seed_all = manual_seed

    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        self._own(device)
        return self.default.get_state()

    def set_rng_state(self, state: torch.Tensor, device: Any = None) -> None:
        self._own(device)
        if state.device.type != "cpu":
            raise RuntimeError("the random state must be on the CPU")
        self.default.set_state(state)

    def empty_cache(self) -> None:
        self.calls.append("empty_cache")

    def memory_allocated(self, device: Any = None) -> int:
        self._own(device)
        return 1

    max_memory_allocated = memory_allocated

    def synchronize(self, device: Any = None) -> None: ...

    def Stream(self, device: Any = None, priority: int = 0) -> accelerator._NoStream:
        return accelerator._NoStream()

    current_stream = default_stream = Stream

    def Event(self, *args: Any, **kwargs: Any) -> accelerator._NoEvent:
        return accelerator._NoEvent()

    def stream(self, stream: Any) -> Any:
        return nullcontext()


# The process group: NCCL's part, carried by gloo on the same memory.


def _carried(name: str) -> Callable[..., Any]:
    def call(self: "HostGroup", *args: Any) -> Any:
        def to_host(x: torch.Tensor) -> torch.Tensor:
            if not is_here(x):
                raise RuntimeError(f"{name}: No backend type associated with device type {x.device.type}")
            return host_view(x)

        work = getattr(self.gloo, name)(*tree_map_only(torch.Tensor, to_host, args))
        work.wait()
        done = torch.futures.Future()
        done.set_result(args[0])
        return torch._C._distributed_c10d._create_work_from_future(done)

    return call


class HostGroup(dist.ProcessGroup):
    """Collectives over tensors of ours; they are done when the call returns."""

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: Any) -> None:
        super().__init__(rank, size)
        self.gloo = dist.ProcessGroupGloo(store, rank, size, timeout)

    def getBackendName(self) -> str:
        return "host"

    @property
    def group_name(self) -> str:
        return dist.distributed_c10d._world.pg_names[self]

    def barrier(self, *args: Any, **options: Any) -> Any:
        return self.gloo.barrier()


for _name in ("allreduce", "broadcast", "allgather", "reduce_scatter", "reduce", "gather", "scatter", "send", "recv"):
    setattr(HostGroup, _name, _carried(_name))
HostGroup.all_gather_single = HostGroup._allgather_base = _carried("_allgather_base")
HostGroup.reduce_scatter_single = HostGroup._reduce_scatter_base = _carried("_reduce_scatter_base")


class Accelerator(accelerator.FullCpuAccelerator):
    """ColossalAI's accelerator for this device. What a stream or an event would order is in order already."""

    def __init__(self) -> None:
        BaseAccelerator.__init__(self, name=NAME, communication_backend="host", is_synchronous=False)

    def get_current_device(self) -> torch.device:
        return torch.device(NAME, 0)

    def device_count(self) -> int:
        return COUNT

    def is_available(self) -> bool:
        return True

    def empty_cache(self) -> None:
        DeviceModule.calls.append("empty_cache")

    def autocast(self, enabled: bool = True, dtype: torch.dtype = torch.bfloat16, cache_enabled: bool = True) -> Any:
        return torch.autocast(NAME, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


def _moving(plain: Callable[..., Any]) -> Callable[..., Any]:
    """`Module._apply` that keeps the parameters of a module that is moved here, as it does on its way to CUDA."""

    def apply(self: torch.nn.Module, *args: Any, **kwargs: Any) -> torch.nn.Module:
        before = torch.__future__.get_swap_module_params_on_conversion()
        torch.__future__.set_swap_module_params_on_conversion(True)
        try:
            return plain(self, *args, **kwargs)
        finally:
            torch.__future__.set_swap_module_params_on_conversion(before)

    return apply


def install() -> None:
    _setup_privateuseone_for_python_backend(NAME, backend_module=DeviceModule())
    everything = torch.library.Library("_", "IMPL")
    everything.fallback(_run, "PrivateUse1")
    kernels = torch.library.Library("aten", "IMPL")
    for name, kernel in KERNELS.items():
        kernels.impl(name, kernel, "PrivateUse1")
    kernels.impl("_pin_memory", _pin, "CPU")
    _register_autocast(everything, kernels)
    _libraries.extend([everything, kernels])
    torch.Generator = _AnyGenerator("Generator", (), {})
    torch.nn.Module._apply = _moving(torch.nn.Module._apply)
    dist.Backend.register_backend("host", HostGroup, devices=[NAME])
    torch.autograd.set_multithreading_enabled(
        False
    )  # a thread that belongs to a device can hold the interpreter wrongly
    torch.UntypedStorage.clone = _clone_storage
    torch.Tensor.record_stream = lambda self, stream: None
    accelerator.install(Accelerator())
    for name in ("alloc_storage", "free_storage"):  # the memory stays: a storage of this backend has no size to change
        setattr(_fsdp_param, name, lambda tensor: None)
    ACCELERATORS.append(NAME)
