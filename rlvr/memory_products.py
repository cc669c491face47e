"""What oneDNN takes for bfloat16 products on a CPU: it compiles code for each shape of a product that it meets, and keeps it."""

from rlvr.models.footprint import Footprint

CODE_BYTES = 576 * 2**10
"""Of one product, whatever its shape: two kernels in buffers of 256 KiB, and what describes them."""
MOST_KEPT = 1024
"""Products whose code oneDNN keeps (ONEDNN_PRIMITIVE_CACHE_CAPACITY); beyond, the least used give way."""
START_BYTES = 11 * 2**20
"""What the first product of a process touches of the library."""
FORWARD, BACKWARD = 2, 1
"""Products of attention that differ in shape or layout from those before (`rlvr.models.attention`). Of a weight: one and two."""


def compiled_bytes(model: Footprint, *, learns: bool, passes: int, new_tokens: int = 0) -> int:
    """Code of the products of a run whose sequences are equally long; where lengths vary there is more, up to `MOST_KEPT`.

    Args:
        learns: whether a forward pass is followed by a backward pass, somewhere.
        passes: forward passes of different shapes.
        new_tokens: of a response: with each, attention has another length.
    """
    weights = model.product_shapes
    products = passes * (weights + FORWARD) + (2 * weights + BACKWARD if learns else 0)
    if new_tokens:
        products += weights + FORWARD * new_tokens
    return START_BYTES + CODE_BYTES * min(MOST_KEPT, products)
