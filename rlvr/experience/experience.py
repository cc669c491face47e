"""`Experience`: all that learning needs of one response, without padding; and the buffer that holds an episode of it.

The maker produces it, the loop keeps it in an `ExperienceBuffer`, and the update reads mini-batches of it. Responses stay
ragged until a micro-batch is made of them, which is padded to its own longest only.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from rlvr.boost.process import Replica, group_device
from rlvr.boost.tensor_files import from_bytes, to_bytes
from rlvr.core.masked import whiten
from rlvr.core.seeding import derive_seed


@dataclass(frozen=True)
class Experience:
    """One response. P prompt tokens, R response tokens, A of which the policy chose (stop tokens are among them).

    Everything but the token ids is of the tokens that the policy chose: an environment's are read, and nothing else is known of them.

    Attributes:
        prompt_ids: [P] token ids.
        response_ids: [R] token ids.
        logprobs: [A] under the policy that sampled it.
        ref_logprobs: [A] under the initial model; equal to `logprobs` when no divergence is asked for.
        advantages: [A].
        mask: [A] true where the token is trained on; all false for a response that no reward function applied to.
        values: [A] V(s_t), before each token; None without a critic.
        returns: [A] the critic's targets, never whitened; None without a critic.
        sampler_logprobs: [A] as the engine gave them, where the loss corrects for what they differ by; None where it does not.
        positive: [A] true in a right response, for the language-modelling loss on those; None where nobody asks.
        controlled: [A] true on the tokens that `entropy_control` chose; None without it.
        action_mask: [R] true on the tokens that the policy chose; None if it chose all, as wherever there is no environment.
        versions: [A] of the weights that sampled each token, as `Rollout` has them; None where nothing but the present ones samples.
    """

    prompt_ids: Tensor
    response_ids: Tensor
    logprobs: Tensor
    ref_logprobs: Tensor
    advantages: Tensor
    mask: Tensor
    values: Tensor | None = None
    returns: Tensor | None = None
    sampler_logprobs: Tensor | None = None
    positive: Tensor | None = None
    controlled: Tensor | None = None
    action_mask: Tensor | None = None
    versions: Tensor | None = None

    def with_advantages(self, advantages: Tensor) -> "Experience":
        return replace(self, advantages=advantages)

    def to(self, device: torch.device | str) -> "Experience":
        return Experience(**{name: tensor.to(device) for name, tensor in self.tensors().items()})

    def tensors(self) -> dict[str, Tensor]:
        """The fields that are not None, by name."""
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) is not None}

    def columns(self) -> dict[str, Tensor]:
        """What learning reads of each token that the policy chose, by name."""
        return {name: tensor for name, tensor in self.tensors().items() if name not in (*TOKENS, "versions")}


TOKENS = ("prompt_ids", "response_ids", "action_mask")
"""Names of the fields that make up the tokens: the arguments of `rlvr.models.batch.collate`, in their order."""


def pad(items: Sequence[Experience], name: str, device: torch.device) -> Tensor:
    """[B, R] the column `name` of each item, zero (false) beyond its end; R is the longest of them, at least 1."""
    padded = pad_sequence([getattr(item, name) for item in items], batch_first=True)
    if padded.size(1) == 0:  # all responses are empty
        padded = padded.new_zeros(len(items), 1)
    return padded.to(device)


def split(padded: Tensor, lengths: Sequence[int]) -> list[Tensor]:
    """The rows of a [B, R] tensor without their padding, on the CPU."""
    rows = padded.detach().cpu()
    # Clones: a view would keep the whole padded tensor alive as long as the buffer.
    return [row[:length].clone() for row, length in zip(rows, lengths, strict=True)]


# Processes that learn together.


def pool(items: Sequence[Experience], replica: Replica, group_size: int = 1) -> list[Experience]:
    """Bring together what the processes of a replica have collected: the same list in each. Collective within the replica.

    Args:
        items: this process's; equally many in each process.
        replica: the processes that hold one copy of the model between them.
        group_size: responses to a prompt, which stay together (pitfall A28). The processes take turns prompt by prompt, which
            undoes how the batch was divided among them: the order is that of a single process.
    """
    if replica.group is None:
        return list(items)
    parts = [_load(part) for part in _gather(_save(items), replica.group)]
    groups = [[part[i : i + group_size] for i in range(0, len(part), group_size)] for part in parts]
    return [item for turn in zip(*groups, strict=True) for group in turn for item in group]


def _save(items: Sequence[Experience]) -> bytes:
    return to_bytes([item.tensors() for item in items])


def _load(data: bytes) -> list[Experience]:
    return [Experience(**tensors) for tensors in from_bytes(data)]


def _gather(data: bytes, group: dist.ProcessGroup) -> list[bytes]:
    """Every process's bytes, in the group's order. Collective."""
    device = group_device()
    own = torch.frombuffer(bytearray(data), dtype=torch.uint8).to(device)
    sizes = [torch.zeros(1, dtype=torch.long, device=device) for _ in range(group.size())]
    dist.all_gather(sizes, torch.tensor([len(data)], device=device), group=group)
    longest = max(int(size) for size in sizes)  # all_gather takes tensors of one size
    parts = [torch.empty(longest, dtype=torch.uint8, device=device) for _ in sizes]
    dist.all_gather(parts, torch.nn.functional.pad(own, (0, longest - len(data))), group=group)
    return [part[: int(size)].cpu().numpy().tobytes() for part, size in zip(parts, sizes, strict=True)]


# The buffer of an episode.


class ExperienceBuffer:
    """This process's experience of an episode, in the order of collection.

    Args:
        limit: most items kept (the newest stay); 0 = no limit.
    """

    def __init__(self, limit: int = 0) -> None:
        self.limit = limit
        self.items: list[Experience] = []

    def __len__(self) -> int:
        return len(self.items)

    def extend(self, items: Sequence[Experience]) -> None:
        """Add items; beyond the limit the oldest go."""
        self.items.extend(items)
        if self.limit:
            del self.items[: -self.limit]

    def clear(self) -> None:
        self.items = []

    def whiten_advantages(self, all_reduce: Callable[[Tensor], Tensor]) -> None:
        """Bring the advantages of all trained tokens of all processes to mean 0 and variance 1 (pitfall A13).

        Over the whole buffer at once: whitened by mini-batch, a token's advantage would depend on its neighbours.
        """
        flat = torch.cat([item.advantages for item in self.items])  # [tokens of the buffer]
        mask = torch.cat([item.mask for item in self.items])
        white = whiten(flat, mask, all_reduce=all_reduce).split([len(item.advantages) for item in self.items])
        self.items = [item.with_advantages(a) for item, a in zip(self.items, white, strict=True)]

    def mini_batches(self, size: int, epoch: int, *seed: int | str, sample: bool = False) -> Iterator[list[Experience]]:
        """The buffer's items, `size` at a time.

        The first pass keeps the order of collection, in which the prompts are shuffled already; later passes shuffle. The order
        comes from the seed and the place in the run alone, so that a run resumed within a pass goes on with the same one.

        Args:
            size: items of this process in one mini-batch.
            epoch: which pass over the buffer.
            seed: the place in the run that the order belongs to; the same in every process.
            sample: draw with replacement instead.

        Raises:
            ValueError: the items don't divide into mini-batches of this size.
        """
        if size < 1 or len(self) % size:
            raise ValueError(f"{len(self)} items don't divide into mini-batches of {size}")
        generator = torch.Generator().manual_seed(derive_seed("mini-batches", *seed, epoch))
        if sample:
            order = torch.randint(len(self), (len(self),), generator=generator)
        elif epoch:
            order = torch.randperm(len(self), generator=generator)
        else:
            order = torch.arange(len(self))
        for indices in order.split(size):
            yield [self.items[i] for i in indices.tolist()]

    def state_dict(self) -> list[dict[str, Tensor]]:
        return [item.tensors() for item in self.items]

    def load_state_dict(self, state: Sequence[dict[str, Tensor]]) -> None:
        self.items = [Experience(**tensors) for tensors in state]
