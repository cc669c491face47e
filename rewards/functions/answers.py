"""What the answer rewards share: a verdict and the format turned into a score."""

from rewards.grade import gold_from_gsm8k, grade
from rewards.outcome import UNDECIDED, Score
from rewards.tags import Tags


def score_answer(
    response: str,
    gold: str | None,
    tags: Tags | None,
    question: str | None,
    correct_score: float,
    format_score: float,
) -> Score:
    """Pay for the verdict and the format.

    A right answer in the right format earns `correct_score`, a right answer that breaks the format `format_score` less, a
    wrong answer in the right format `format_score`. A gold that can't be parsed makes the sample not apply.
    """
    tags = tags or Tags.default()
    outcome = grade(response, None if gold is None else gold_from_gsm8k(gold), tags=tags, question=question)
    if outcome.status in UNDECIDED:
        return Score(None, outcome)
    formed = tags.is_well_formed(response)
    if outcome.correct:
        value = correct_score if formed else correct_score - format_score
    else:
        value = format_score if formed else 0.0
    return Score(value, outcome, {"correct": float(outcome.correct), "format": float(formed)})
