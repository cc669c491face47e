"""Where a response ends: at its first stop token, or where a stop string is complete."""

from collections.abc import Callable, Collection, Sequence


def cut_at_stop(
    ids: Sequence[int],
    stop_ids: Collection[int],
    stop_strings: Sequence[str] = (),
    decode: Callable[[Sequence[int]], str] | None = None,
) -> tuple[list[int], bool]:
    """The response up to and with what ends it first, and whether anything did.

    Nothing after the first stop counts (pitfall A5) and the stop token is kept exactly once (A4).

    Args:
        ids: generated tokens, perhaps with padding after the end.
        stop_ids: tokens that end a response.
        stop_strings: texts that end a response; `decode` turns tokens into the text to look in.
    """
    end = next((i + 1 for i, token in enumerate(ids) if token in stop_ids), None)
    kept = list(ids[:end])
    if stop_strings:
        assert decode is not None, "stop strings need a decoder"
        by_string = _first_prefix_with(kept, stop_strings, decode)
        if by_string is not None:
            return kept[:by_string], True
    return kept, end is not None


def _first_prefix_with(
    ids: Sequence[int], strings: Sequence[str], decode: Callable[[Sequence[int]], str]
) -> int | None:
    """Length of the shortest prefix whose text holds one of `strings`, by bisection: once there, it stays."""

    def holds(length: int) -> bool:
        text = decode(ids[:length])
        return any(string in text for string in strings)

    if not holds(len(ids)):
        return None
    low, high = 0, len(ids)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
