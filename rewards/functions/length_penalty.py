"""`length_penalty`: every token costs the same."""

from collections.abc import Sequence

from rewards.errors import UserError
from rewards.functions.lengths import check_number, check_tokens, tokens_of
from rewards.registry import reward_fn


@reward_fn("length_penalty")
def length_penalty(
    response: str,
    response_ids: Sequence[int],
    finished: bool = True,
    max_tokens: int | None = None,
    max_penalty: float = -1.0,
) -> float | None:
    """From 0 for an empty response down to `max_penalty` at `max_tokens` tokens, in proportion; truncated: `max_penalty`.

    Does not apply where the tokens of the response are not known.

    Args:
        response: the text.
        response_ids: its tokens.
        finished: whether it ended by itself.
        max_tokens: length limit of a response.
        max_penalty: at most 0.

    Raises:
        UserError: `max_tokens` is missing or not positive, or `max_penalty` is above 0.

    >>> length_penalty("...", range(128), max_tokens=512)
    -0.25
    >>> length_penalty("...", range(128), finished=False, max_tokens=512)
    -1.0
    """
    limit = check_tokens("length_penalty", "max_tokens", max_tokens)
    if check_number("length_penalty", "max_penalty", max_penalty) > 0:
        raise UserError(f"length_penalty: max_penalty must be at most 0, not {max_penalty}; a penalty takes away")
    if not finished:
        return max_penalty
    length = tokens_of(response, response_ids)
    return None if length is None else max_penalty * min(1.0, length / limit)
