"""Random state as a function of where in the run we are: the same seed, rank and step give the same numbers.

Nothing depends on how many numbers were drawn before, so a resumed run draws what the uninterrupted one would have.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def derive_seed(*parts: int | str) -> int:
    """A 63-bit seed from the run's seed and whatever tells one use from another (purpose, rank, step)."""
    text = "/".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


@contextmanager
def seeded(*parts: int | str) -> Iterator[None]:
    """Run a block with torch's generators seeded by `derive_seed(*parts)`; the state outside is left as it was."""
    # This process's accelerator, and not every one that the machine has, which is torch's default: to read the state of another
    # process's GPU would start CUDA there, for some hundred MB of its memory.
    with torch.random.fork_rng(devices=_accelerator()):
        torch.manual_seed(derive_seed(*parts))
        yield


def _accelerator() -> list[int]:
    """The number of this process's accelerator; nothing without one."""
    if not hasattr(torch, "accelerator"):  # torch 2.5
        return [torch.cuda.current_device()] if torch.cuda.is_available() else []
    return [torch.accelerator.current_device_index()] if torch.accelerator.is_available() else []
