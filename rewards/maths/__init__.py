"""Mathematical answers: numbers, expressions and structures, read and compared without evaluating any text."""

from rewards.maths.equivalence import equivalent, prepare, readable

__all__ = ["equivalent", "prepare", "readable"]
