"""Mathematical answers: numbers, expressions and structures, read and compared without evaluating any text."""
