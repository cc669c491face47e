"""Reward functions for tests, in a module that a worker process can import in a moment."""

import time
from collections.abc import Sequence


def hangs_on_long(response: str) -> float:
    if len(response) >= 9:
        time.sleep(1000)
    return 1.0


def fails(response: str) -> float:
    raise RuntimeError("broken on purpose")


def first_letter_is_b(responses: Sequence[str]) -> list[float]:
    return [len(responses) + float(r[:1] == "B") for r in responses]


def letters(response: str) -> float:
    return float(len(response))


def odd_letters(response: str) -> float:
    return float(sum(character.islower() for character in response) % 2)
