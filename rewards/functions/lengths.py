"""What the rewards that look at the length share: the length in tokens, and the checks of their limits."""

import math
from collections.abc import Sequence

from rewards.errors import UserError


def tokens_of(response: str, response_ids: Sequence[int]) -> int | None:
    """Length of the response in tokens; None where its tokens are not known (text from a file, say)."""
    return len(response_ids) if len(response_ids) or not response else None


def check_tokens(function: str, name: str, value: object) -> int:
    """`value` as a positive number of tokens.

    Raises:
        UserError: it is missing, no whole number, or below 1.
    """
    if value is None:
        raise UserError(
            f"{function} needs {name}, a number of tokens; for example "
            f'--reward_options \'{{"{function}": {{"{name}": 512}}}}\''
        )
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UserError(f"{function}: {name} must be a whole number of tokens from 1, not {value!r}")
    return value


def check_number(function: str, name: str, value: object) -> float:
    """`value` as a finite number.

    Raises:
        UserError: it is none.
    """
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise UserError(f"{function}: {name} must be a finite number, not {value!r}")
    return float(value)
