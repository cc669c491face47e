"""`Example`: a row to learn from, as token ids. `rlvr.data.sft` makes them of text, `rlvr.models.packing` batches of them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Example:
    """A row to learn from, as token ids.

    Attributes:
        ids: tokens of prompt and response.
        prompt_length: tokens of the prompt, which are not learned; 0 for plain text.
        skipped: later spans (start, end) that are not learned: other people's turns.
    """

    ids: tuple[int, ...]
    prompt_length: int
    skipped: tuple[tuple[int, int], ...] = ()

    @property
    def learned(self) -> list[int]:
        """Places of the tokens that are learned. The first token of all has no predecessor that it could be learned from."""
        skipped = {place for start, end in self.skipped for place in range(start, end)}
        return [place for place in range(max(1, self.prompt_length), len(self.ids)) if place not in skipped]

    def cut(self, max_length: int) -> "Example":
        """The first `max_length` tokens."""
        return Example(self.ids[:max_length], self.prompt_length, self.skipped)
