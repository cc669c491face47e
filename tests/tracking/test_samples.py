"""Responses as rows of a table."""

from dataclasses import replace

import pytest

from rewards import Outcome, Sample, Tags
from rewards.combine import Combined
from rlvr.tracking.samples import COLUMNS, LONGEST, shortened, table_rows, thinking_of, tracked_samples

TAGS = Tags.default()


@pytest.mark.parametrize(
    ("response", "think"),
    [
        ("<think>a</think><answer>b</answer>", "a"),
        ("a</think><answer>b</answer>", "a"),  # the prompt opened it
        ("<think>a", "a"),  # cut off
        ("<think>a</think> b <think>c</think>", "a</think> b <think>c"),
        ("<answer>b</answer>", ""),
        ("", ""),
    ],
)
def test_the_thinking_is_what_stands_before_its_end(response: str, think: str) -> None:
    assert thinking_of(response, TAGS) == think
    assert thinking_of(response, None) == ""


def test_a_row_has_what_a_table_shows() -> None:
    sample = Sample("<think>a</think><answer>4</answer>", "5", prompt="2+3=?", tags=TAGS)
    result = Combined(total=0.1, scores={}, outcome=Outcome("wrong", answer="4"))
    (tracked,) = tracked_samples([sample], [result])
    (row,) = table_rows(7, [tracked])
    want = {"step": 7, "prompt": "2+3=?", "response": sample.response, "think": "a", "answer": "4", "gold": "5"}
    assert dict(zip(COLUMNS, row, strict=True)) == want | {"verdict": "wrong", "reward": 0.1}
    (bare,) = tracked_samples([replace(sample, gold=None, tags=None)], [Combined(total=None, scores={}, outcome=None)])
    assert (bare.gold, bare.answer, bare.verdict, bare.reward) == ("", "", "-", None)


def test_long_texts_keep_their_ends() -> None:
    text = "start" + "x" * 10_000 + "end"
    cut = shortened(text)
    assert len(cut) <= LONGEST and cut.startswith("start") and cut.endswith("end") and " ... " in cut
    assert shortened("x" * LONGEST) == "x" * LONGEST
    sample = Sample(text, text, prompt=text, tags=TAGS)
    (tracked,) = tracked_samples([sample], [Combined(total=1.0, scores={}, outcome=None)])
    assert all(len(value) <= LONGEST for value in vars(tracked).values() if isinstance(value, str))
