"""Rewards for the shape of a text: repetition and tags."""

import time

import pytest

from rewards import Tags, UserError
from rewards.functions import repetition_penalty_fn, tag_count_fn, tag_order_fn

OTHER = Tags.from_config({"think_start": "[T]", "think_end": "[/T]", "answer_start": "<<", "answer_end": ">>"})
BEGUN = Tags.from_config(
    {"think_start": {"text": "<think>", "num_occur": 0}, "think_end": "</think>", "answer_start": "<a>", "answer_end": "</a>"}
)  # fmt: skip
TWICE = Tags.from_config(
    {"think_start": {"text": "<t>", "num_occur": 2}, "think_end": {"text": "</t>", "num_occur": 2}, "answer_start": "<a>", "answer_end": "</a>"}
)  # fmt: skip


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("text", ["a b c d e f", "a a a a a a", "a b a b a b", "A b a B", "a", "", "x " * 5])
def test_repetition_is_one_minus_unique_over_total(text, size) -> None:
    words = text.lower().split()
    grams = [tuple(words[i : i + size]) for i in range(len(words) - size + 1)]
    expected = -2.0 * (1 - len(set(grams)) / len(grams)) if grams else 0.0
    assert repetition_penalty_fn(text, ngram_size=size, max_penalty=-2.0) == pytest.approx(expected)


def test_repetition_takes_linear_time() -> None:
    start = time.thread_time()
    assert repetition_penalty_fn("ha " * 300_000) == pytest.approx(-1, abs=1e-4)
    repetition_penalty_fn(" ".join(map(str, range(300_000))))
    assert time.thread_time() - start < 5


def test_repetition_checks_its_arguments() -> None:
    for wrong in ({"ngram_size": 0}, {"ngram_size": 1.5}, {"max_penalty": 0.1}, {"max_penalty": float("nan")}):
        with pytest.raises(UserError, match="repetition_penalty_fn"):
            repetition_penalty_fn("a b", **wrong)


@pytest.mark.parametrize(
    ("response", "tags", "count", "order"),
    [
        ("<think>a</think><answer>b</answer>", None, 1, 1),
        ("[T]a[/T]<<b>>", OTHER, 1, 1),
        ("<think>a</think><answer>b</answer>", OTHER, 0, 0),
        ("", None, 0, 0),
        ("<think>", None, 1 / 4, 0),
        ("<think></think>", None, 2 / 4, 1 / 3),
        ("<answer>b</answer><think>a</think>", None, 1, 2 / 3),
        ("</answer><answer></think><think>", None, 1, 0),
        ("<think><think>a</think><answer>b</answer>", None, 3 / 4, 1),
        ("a</think><a>b</a>", BEGUN, 1, 1),
        ("<think>a</think><a>b</a>", BEGUN, 3 / 4, 1),
        ("", BEGUN, 0, 0),
        ("<t>a</t><t>b</t><a>c</a>", TWICE, 1, 1),
        ("<t>a</t><a>c</a>", TWICE, 2 / 4, 1),
    ],
)
def test_a33_tags_come_from_the_template(response, tags, count, order) -> None:
    assert tag_count_fn(response, tags) == pytest.approx(count)
    assert tag_order_fn(response, tags) == pytest.approx(order)
