"""Rewards for a right answer: `gsm8k_reward_fn` and `math_competition_reward_fn` with the format, `math_reward_fn` and
`correctness` without."""

from rewards.grade import gold_from_gsm8k, grade
from rewards.maths import Form
from rewards.outcome import UNDECIDED, Outcome, Score
from rewards.registry import reward_fn
from rewards.tags import Tags


def verdict(
    response: str, gold: str | None, tags: Tags | None, question: str | None = None, form: Form = "strict"
) -> Outcome:
    """Compare the answer with the right one.

    The answer stands between the template's answer tags if the response has them after its thinking; otherwise it is
    looked for in what follows the thinking. Nothing inside of the thinking is an answer. `form` is `grade`'s: strict asks
    for an answer that leaves no more undone than the gold, equivalent for an equal one.

    >>> verdict("so 42", "42", None).status, verdict("<think>42</think> it is 41", "42", None).status
    ('correct', 'wrong')
    >>> verdict("<think>42", "42", None).status, verdict("<answer>41</answer> or 42", "42", None).status
    ('no_answer', 'wrong')
    """
    tags = tags or Tags.default()
    gold = None if gold is None else gold_from_gsm8k(gold)
    rest = after_thinking(response, tags)
    if tags.answer_start.text in rest or tags.answer_end.text in rest:
        return grade(response, gold, tags=tags, question=question, form=form)
    return grade(rest, gold, question=question, form=form)


def after_thinking(response: str, tags: Tags) -> str:
    """The text after the thinking; "" where the thinking never ends."""
    if tags.think_end.text in response:
        return response.rsplit(tags.think_end.text, 1)[1]
    # A prompt that ends in the start tag leaves only the end tag to the response.
    begun_by_prompt = tags.think_end.num_occur > tags.think_start.num_occur
    return "" if tags.think_start.text in response or begun_by_prompt else response


@reward_fn("correctness")
def correctness(
    response: str,
    gold: str | None,
    tags: Tags | None = None,
    question: str | None = None,
    form: Form = "strict",
) -> Score:
    """1 for a right answer, 0 for a wrong one or none; the format is not looked at.

    >>> correctness("<think>6 * 7</think><answer>42</answer>", "42").value, correctness("it is 41", "42").value
    (1.0, 0.0)
    """
    return math_reward_fn(response, gold, tags, question, form=form)


@reward_fn("math_reward_fn")
def math_reward_fn(
    response: str,
    gold: str | None,
    tags: Tags | None = None,
    question: str | None = None,
    correct_score: float = 1.0,
    wrong_score: float = 0.0,
    form: Form = "strict",
) -> Score:
    r"""1.0 for a right answer, else 0; tags count where the response has them and are not asked for.

    Without answer tags the answer is the last box, what follows `####` or "the answer is", or the last number. A gold
    that can't be parsed makes the sample not apply.

    >>> math_reward_fn(r"halves, so \boxed{\frac{1}{2}}", "0.5").value
    1.0
    >>> math_reward_fn("<think>6 * 7</think><answer>42</answer>", "#### 42").value
    1.0
    >>> math_reward_fn(r"<think>\boxed{42}</think><answer>41</answer>", "42").value
    0.0
    """
    outcome = verdict(response, gold, tags, question, form)
    if outcome.status in UNDECIDED:
        return Score(None, outcome)
    return Score(correct_score if outcome.correct else wrong_score, outcome)


def score_answer(
    response: str,
    gold: str | None,
    tags: Tags | None,
    question: str | None,
    correct_score: float,
    format_score: float,
    form: Form = "strict",
) -> Score:
    """Pay for the verdict and the format.

    A right answer in the right format earns `correct_score`, a right answer that breaks the format `format_score` less, a
    wrong answer in the right format `format_score`. A gold that can't be parsed makes the sample not apply.
    """
    tags = tags or Tags.default()
    outcome = grade(response, None if gold is None else gold_from_gsm8k(gold), tags=tags, question=question, form=form)
    if outcome.status in UNDECIDED:
        return Score(None, outcome)
    formed = tags.is_well_formed(response)
    if outcome.correct:
        value = correct_score if formed else correct_score - format_score
    else:
        value = format_score if formed else 0.0
    return Score(value, outcome, {"correct": float(outcome.correct), "format": float(formed)})


@reward_fn("gsm8k_reward_fn")
def gsm8k_reward_fn(
    response: str,
    gold: str | None,
    tags: Tags | None = None,
    question: str | None = None,
    correct_score: float = 1.0,
    format_score: float = 0.1,
    form: Form = "strict",
) -> Score:
    """1.0 for a right answer, 0.1 for a wrong one in the right format, else 0.

    The answer counts only between the answer tags. A right answer whose response breaks the format is paid
    `correct_score - format_score`.

    >>> text = "<think>3 boxes of 14</think><answer>42</answer>"
    >>> gsm8k_reward_fn(text, "42").value, gsm8k_reward_fn(text, "41").value
    (1.0, 0.1)
    >>> gsm8k_reward_fn("42", "#### 42").value
    0.0
    """
    return score_answer(response, gold, tags, question, correct_score, format_score, form)


@reward_fn("math_competition_reward_fn")
def math_competition_reward_fn(
    response: str,
    gold: str | None,
    tags: Tags | None = None,
    question: str | None = None,
    correct_score: float = 1.0,
    format_score: float = 0.1,
    form: Form = "strict",
) -> Score:
    r"""1.0 for a right answer, 0.1 for a wrong one in the right format, else 0; answers may be LaTeX.

    >>> math_competition_reward_fn(r"<think>halves</think><answer>$\frac{1}{2}$</answer>", "0.5").value
    1.0
    """
    return score_answer(response, gold, tags, question, correct_score, format_score, form)
