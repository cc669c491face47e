"""What libraries take on a CPU besides tensors. oneDNN compiles code for each shape of a bfloat16 product that it meets, and
keeps it."""

from rlvr.models.footprint import Footprint

CODE_BYTES = 576 * 2**10
"""Of one product, whatever its shape: two kernels in buffers of 256 KiB, and what describes them."""
MOST_KEPT = 1024
"""Products whose code oneDNN keeps (ONEDNN_PRIMITIVE_CACHE_CAPACITY); beyond, the least used give way."""
START_BYTES = 11 * 2**20
"""What the first products of a process touch of their library, in float32 too."""
FORWARD, BACKWARD = 2, 1
"""Products of attention that differ in shape or layout from those before (`rlvr.models.attention`). Of a weight: one and two."""


def library_bytes(model: Footprint, precision: str, passes: int, new_tokens: int = 0) -> int:
    """Of a run that learns and whose sequences are equally long; where lengths vary there is more, up to `MOST_KEPT`.

    Args:
        precision: fp32 or bf16.
        passes: forward passes of different shapes; one of them is followed by a backward pass.
        new_tokens: of a response: with each, attention has another length.
    """
    if precision != "bf16":
        return START_BYTES
    weights = model.product_shapes
    products = passes * (weights + FORWARD) + 2 * weights + BACKWARD
    if new_tokens:
        products += weights + FORWARD * new_tokens
    return START_BYTES + CODE_BYTES * min(MOST_KEPT, products)
