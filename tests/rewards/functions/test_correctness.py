"""`math_reward_fn` and `correctness`: the verdict, with tags or without."""

import pytest

from rewards import Sample, Tags, resolve
from rewards.call import score
from rewards.functions import correctness, math_reward_fn

OTHER = Tags.from_config({"think_start": "[T]", "think_end": "[/T]", "answer_start": "<<", "answer_end": ">>"})
BEGUN = Tags.from_config(
    {"think_start": {"text": "<think>", "num_occur": 0}, "think_end": "</think>", "answer_start": "<a>", "answer_end": "</a>"}
)  # fmt: skip

CASES = [
    ("<think>6*7</think><answer>42</answer>", None, True),
    (r"<think>6*7</think> so \boxed{42}", None, True),
    ("6 * 7 = 42\n#### 42", None, True),
    ("the answer is 41", None, False),
    ("<think>the answer is 42", None, False),
    (r"<think>\boxed{42}</think>", None, False),
    (r"<think>\boxed{42}</think><answer>41</answer>", None, False),
    ("<think>x</think><answer>41</answer> I mean 42", None, False),
    ("<think>x</think><answer>41</answer><answer>42</answer>", None, False),
    ("<think>x</think><answer>42", None, False),
    ("[T]6*7[/T]<<42>>", OTHER, True),
    ("[T]6*7[/T] 42", OTHER, True),
    (r"[T]\boxed{42}", OTHER, False),
    (r"[T]\boxed{42}[/T]<<41>>", OTHER, False),
    ("so 42", BEGUN, False),  # the prompt began the thinking, and it never ended
    ("hm</think> 42", BEGUN, True),
]


@pytest.mark.parametrize(("response", "tags", "right"), CASES)
def test_a33_the_answer_after_the_thinking_counts(response, tags, right) -> None:
    assert math_reward_fn(response, "42", tags).value == float(right)
    assert correctness(response, "42", tags).value == float(right)


def test_scores_are_options_and_a_bad_gold_does_not_apply() -> None:
    assert math_reward_fn("42", "42", correct_score=5).value == 5
    assert math_reward_fn("41", "42", wrong_score=-1).value == -1
    for function in (math_reward_fn, correctness):
        for gold in (None, "", "  "):
            assert function("42", gold).value is None and function("42", gold).outcome.status == "bad_gold"


def test_solutions_of_gsm8k_are_golds_too() -> None:
    assert math_reward_fn("42", "6 * 7 = 42\n#### 42").value == 1.0


def test_they_are_found_by_name() -> None:
    samples = [Sample("<think>a</think><answer>42</answer>", "42", tags=Tags.default())]
    for name in ("math_reward_fn", "correctness"):
        assert score(resolve(name), samples)[0].value == 1.0
