"""Mathematical answers: numbers, expressions and structures, read and compared without evaluating any text.

The way of two answers: `equivalence` (the stages) -> `normalise` (text) -> `literals` (plain numbers, dates, choices) -> `lexer`
and `parser` (with `expressions`, `numerals`, `cursor`; words in `vocabulary` and `units`) -> `syntax` (the tree) -> `simplify`
-> `compare` (with `relations`, `sets`, `vectors`) -> `values` -> `zero_testing` -> `evaluate`; or `fallback` (math-verify) where the
gold can't be parsed. `families`, `words` and `parts` are about residue classes, sentences and problems of several parts; `form` about what an
equal answer leaves undone. `limits` holds the budget of work that a verdict may take, `stack` what makes it independent of its caller's stack.
"""

from rewards.maths.equivalence import equivalent, left_undone, prepare, readable
from rewards.maths.form import FORMS, Form

__all__ = ["FORMS", "Form", "equivalent", "left_undone", "prepare", "readable"]
