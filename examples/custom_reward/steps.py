"""A reward for right answers and for working that adds up, such as `12+7=19;19-4=15`."""

import re

from rewards import Score, grade, reward_fn

EQUATION = re.compile(r"(\d{1,6})([+-])(\d{1,6})=(-?\d{1,6})")


@reward_fn("steps")
def steps(response, gold, question, tags, bonus=0.3):
    """1 for a right answer; and up to `bonus` for a chain of equations that begins with the question's first number.

    An equation counts if it is true and goes on from the result before it. The chain may be as long as the question has
    numbers, so that more equations than that pay nothing.
    """
    outcome = grade(response, gold, tags=tags, question=question)
    if outcome.status == "bad_gold":
        return None
    numbers = re.findall(r"\d{1,6}", question or "")
    chain = EQUATION.findall(response)[: max(0, len(numbers) - 1)]
    at, links = numbers[:1], 0
    for left, sign, right, result in chain:
        if [left] != at or int(left) + int(sign + right) != int(result):
            break
        at, links = [result], links + 1
    share = links / max(1, len(numbers) - 1)
    return Score(outcome.correct + bonus * share, outcome, {"right": float(outcome.correct), "working": share})
