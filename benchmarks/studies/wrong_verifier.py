"""`wrong_verifier`: a reward function that is wrong now and then, for the study `verifier.yaml`.

--reward_plugins benchmarks/studies/wrong_verifier.py --reward_functions wrong_verifier
--reward_options '{"wrong_verifier": {"false_positives": 0.1}}'
"""

from hashlib import blake2b

from rewards import Score, reward_fn
from rewards.functions.correctness import correctness
from rewards.tags import Tags


@reward_fn("wrong_verifier")
def wrong_verifier(
    response: str,
    gold: str | None,
    tags: Tags | None = None,
    question: str | None = None,
    false_positives: float = 0.0,
    false_negatives: float = 0.0,
    last_digit: bool = False,
) -> Score:
    """1 for what it takes for right, 0 for the rest. The outcome is the true one.

    Args:
        false_positives: share of wrong answers that are paid; which ones, decides a hash of question and response, as a rule's slips
            depend on nothing else either.
        false_negatives: share of right answers that are not paid.
        last_digit: pay an answer whose last digit is right: a false positive that can be learned.
    """
    true = correctness(response, gold, tags, question)
    if true.value is None or true.outcome is None:
        return true
    paid = true.outcome.correct
    if last_digit and gold and true.outcome.answer:
        paid = paid or true.outcome.answer.strip()[-1:] == gold.strip()[-1:]
    lot = int.from_bytes(blake2b(f"{question}\0{response}".encode(), digest_size=8).digest()) / 2**64
    wrong = false_negatives if paid else false_positives
    return Score(float(paid != (lot < wrong)), true.outcome)
