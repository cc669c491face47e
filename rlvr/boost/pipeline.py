"""One forward, one backward (1F1B) through pipeline stages, with micro-batches of different sizes.

ColossalAI's schedule cuts a batch into equal pieces and sends the shape of the first one ahead. Ours come cut already,
by length, and each has its own shape.
"""

from collections.abc import Callable, Sequence
from typing import Any

from colossalai.pipeline import p2p
from colossalai.pipeline.schedule import OneForwardOneBackwardSchedule
from colossalai.pipeline.stage_manager import PipelineStageManager
from torch import Tensor

# It asks for Huawei's backend by names that only Huawei's build of torch has; its other function asks for NCCL alone.
p2p._check_for_nccl_hccl_backend = p2p.check_for_nccl_backend


class RaggedSchedule(OneForwardOneBackwardSchedule):
    """1F1B over a list of passes; what a pass is stands in `rlvr.boost.boosted`."""

    def __init__(self, stage_manager: PipelineStageManager) -> None:
        # Both sizes are asked for and not read here: `load_batch` sets what is.
        super().__init__(stage_manager, num_microbatches=1, microbatch_size=1, enable_metadata_cache=False)
        self._inputs: list[Sequence[Any]] = []

    def load_batch(self, data_iter: Any, device: Any = None) -> None:
        """Take the inputs of all passes."""
        self._inputs = list(next(data_iter))
        self.num_microbatches = len(self._inputs)

    def load_micro_batch(self) -> Sequence[Any]:
        """The inputs of the next pass."""
        return self._inputs.pop(0)


class InTurn:
    """The losses of passes, asked for in their order by a schedule that divides each by their number.

    Args:
        losses: from a pass's output to its share of the loss.
        factor: of each share.
    """

    def __init__(self, losses: Sequence[Callable[[Any], Tensor]], factor: float) -> None:
        self._losses, self._factor = list(losses), factor * len(losses)

    def __call__(self, output: Any, inputs: Any) -> Tensor:
        return self._losses.pop(0)(output) * self._factor
