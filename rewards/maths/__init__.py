"""Mathematical answers: numbers, expressions and structures, read and compared without evaluating any text.

The way of two answers: `equivalence` (the stages) -> `normalise` (text) -> `literals` (plain numbers, dates, choices) -> `lexer`
and `parser` (with `expressions`, `numerals`, `cursor`; words in `vocabulary` and `units`) -> `syntax` (the tree) -> `simplify`
-> `compare` (with `relations`, `sets`, `vectors`) -> `values` -> `zero_testing` -> `evaluate`; or `fallback` (math-verify) where the
gold can't be parsed. `limits` holds the budget of work that a verdict may take, `stack` what makes it independent of its caller's stack.
"""

from rewards.maths.equivalence import equivalent, prepare, readable

__all__ = ["equivalent", "prepare", "readable"]
