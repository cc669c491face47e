"""Rewards for parts of the format: the share of the tags, and of tags in order."""

import pytest

from rewards import Tags
from rewards.functions import tag_count_fn, tag_order_fn

OTHER = Tags.from_config({"think_start": "[T]", "think_end": "[/T]", "answer_start": "<<", "answer_end": ">>"})
BEGUN = Tags.from_config(
    {"think_start": {"text": "<think>", "num_occur": 0}, "think_end": "</think>", "answer_start": "<a>", "answer_end": "</a>"}
)  # fmt: skip
TWICE = Tags.from_config(
    {"think_start": {"text": "<t>", "num_occur": 2}, "think_end": {"text": "</t>", "num_occur": 2}, "answer_start": "<a>", "answer_end": "</a>"}
)  # fmt: skip


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
