"""`repetition_penalty_fn`: n-gram repetition penalty (arXiv 2502.03373, appendix C.2, as open-r1 has it)."""

from rewards.errors import UserError
from rewards.functions.length import check_number
from rewards.registry import reward_fn


@reward_fn("repetition_penalty_fn")
def repetition_penalty_fn(response: str, ngram_size: int = 3, max_penalty: float = -1.0) -> float:
    """`max_penalty` times the share of n-grams of words that came before; 0 for a response of fewer words than that.

    Words are what stands between white space, regardless of case. Takes time in proportion to the length.

    Args:
        response: the text.
        ngram_size: words in an n-gram.
        max_penalty: at most 0; approached by a response that says one thing over and over.

    Raises:
        UserError: `ngram_size` is no whole number from 1, or `max_penalty` is above 0.

    >>> repetition_penalty_fn("one two three four", ngram_size=2), repetition_penalty_fn("no no no no no", ngram_size=2)
    (0.0, -0.75)
    """
    if not isinstance(ngram_size, int) or isinstance(ngram_size, bool) or ngram_size < 1:
        raise UserError(f"repetition_penalty_fn: ngram_size must be a whole number of words from 1, not {ngram_size!r}")
    if check_number("repetition_penalty_fn", "max_penalty", max_penalty) > 0:
        raise UserError(f"repetition_penalty_fn: max_penalty must be at most 0, not {max_penalty}")
    words = response.lower().split()
    total = len(words) - ngram_size + 1
    if total < 1:
        return 0.0
    unique = len(set(zip(*(words[i:] for i in range(ngram_size)), strict=False)))
    return max_penalty * (1 - unique / total) if unique < total else 0.0
