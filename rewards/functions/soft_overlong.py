"""`soft_overlong_fn`: DAPO's soft overlong punishment (arXiv 2503.14476, Eq. 13)."""

from collections.abc import Sequence

from rewards.errors import UserError
from rewards.functions.lengths import check_tokens, tokens_of
from rewards.registry import reward_fn


@reward_fn("soft_overlong_fn")
def soft_overlong_fn(
    response: str,
    response_ids: Sequence[int],
    finished: bool = True,
    max_tokens: int | None = None,
    cache_tokens: int | None = None,
) -> float | None:
    """0 up to `max_tokens - cache_tokens`, then down to -1 at `max_tokens` in a straight line; -1 beyond, or truncated.

    A truncated response is never better off than any shorter one: it gets -1 whatever its length. Does not apply where
    the tokens of the response are not known.

    Args:
        response: the text.
        response_ids: its tokens.
        finished: whether it ended by itself.
        max_tokens: length limit of a response.
        cache_tokens: width of the zone in which the punishment grows.

    Raises:
        UserError: a limit is missing or not positive, or `cache_tokens` exceeds `max_tokens`.

    >>> [soft_overlong_fn("...", range(n), max_tokens=100, cache_tokens=20) for n in (80, 90, 100, 101)]
    [0.0, -0.5, -1.0, -1.0]
    >>> soft_overlong_fn("...", range(50), finished=False, max_tokens=100, cache_tokens=20)
    -1.0
    """
    limit = check_tokens("soft_overlong_fn", "max_tokens", max_tokens)
    cache = check_tokens("soft_overlong_fn", "cache_tokens", cache_tokens)
    if cache > limit:
        raise UserError(f"soft_overlong_fn: cache_tokens ({cache}) must be at most max_tokens ({limit})")
    if not finished:
        return -1.0
    length = tokens_of(response, response_ids)
    if length is None:
        return None
    over = length - (limit - cache)
    return -min(1.0, over / cache) if over > 0 else 0.0
