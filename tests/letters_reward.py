"""A reward that a random model can earn: the share of small letters in what it wrote."""


def letters(response: str) -> float:
    return sum(character.islower() for character in response) / max(1, len(response))
