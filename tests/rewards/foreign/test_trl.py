"""Functions in TRL's form, of every kind that its documentation shows."""

import asyncio
import json
import pickle
import re

import pytest

from rewards import Sample, UserError, resolve
from rewards.call import score
from rewards.foreign import adapt
from rewards.foreign.trl import Text

SAMPLES = [
    Sample("<a>4</a>", "4", prompt="<user>2+2<bot>", question="2+2", response_ids=(1, 2, 3)),
    Sample("", "5", prompt="<user>2+3<bot>", question="2+3", response_ids=(9,)),
    Sample("<a>5</a>", "4", prompt="<user>2+2<bot>", question="2+2", response_ids=(1, 2)),
]


def values(function, samples=SAMPLES, **options):
    return [s.value for s in score(resolve(adapt(function, options)), samples)]


def plain(completions, **kwargs):
    return [1.0 if re.search("<a>.*</a>", text) else 0.0 for text in completions]


def messages(completions, **kwargs):
    return [1.0 if re.search("<a>.*</a>", c[0]["content"]) else 0.0 for c in completions]


def last_message(completions, **kwargs):
    return [float("<a>" in c[-1].get("content")) for c in completions]


def all_messages(completions, **kwargs):
    return [float(any("<a>" in m["content"] for m in c if m["role"] == "assistant")) for c in completions]


def unpacking(completions, **kwargs):
    return [float("<a>" in {**c[0]}["content"]) for c in completions]


def either(completions, **kwargs):
    texts = [c if isinstance(c, str) else c[0]["content"] for c in completions]
    return [float("<a>" in text) for text in texts]


def swallowing(completions, **kwargs):
    scores = []
    for completion in completions:
        try:
            scores.append(float("<a>" in completion[0]["content"]))
        except Exception:
            scores.append(-1.0)
    return scores


def through_prompts(prompts, completions, **kwargs):
    assert [p[-1]["content"] for p in prompts] == ["2+2", "2+3", "2+2"]
    return messages(completions)


def plain_prompts(prompts, completions, **kwargs):
    assert [p.split("<bot>")[0] for p in prompts] == ["<user>2+2", "<user>2+3", "<user>2+2"]
    return plain(completions)


def judge(completions, **kwargs):
    """Texts; the messages in here are another model's."""
    asked = [[{"role": "user", "content": text}] for text in completions]
    return [float("<a>" in chat[0]["content"]) for chat in asked]


async def waits(completions, **kwargs):
    await asyncio.sleep(0)
    return messages(completions)


FUNCTIONS = [
    plain, messages, last_message, all_messages, unpacking, either, swallowing, through_prompts, plain_prompts, judge,
    waits,
]  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_each_gets_the_form_that_it_reads(function) -> None:
    assert values(function) == [1.0, 0.0, 1.0]


def test_texts_behave_as_texts() -> None:
    asked: list[str] = []
    text = Text("content", asked)
    assert text == "content" and text[0] == "c" and text[-3:] == "ent" and text.split("t") == ["con", "en", ""]
    assert list(text) == list("content") and list(Text("", asked)) == [] and text + "s" == "contents"
    assert "content" in text and len(text) == 7 and json.dumps([text]) == '["content"]' and isinstance(text, str)
    assert pickle.loads(pickle.dumps(text)) == "content" and type(pickle.loads(pickle.dumps(text))) is str
    assert asked == [] and not hasattr(text, "content")


def test_the_form_can_be_chosen() -> None:
    seen = []

    def look(completions, prompts):
        seen.append((completions[0], prompts[0]))
        return [0.0] * len(completions)

    values(look, conversational=True)
    values(look, conversational=False)
    assert seen == [
        ([{"role": "assistant", "content": "<a>4</a>"}], [{"role": "user", "content": "2+2"}]),
        ("<a>4</a>", "<user>2+2<bot>"),
    ]


def test_a_failure_says_which_form_was_given() -> None:
    with pytest.raises(TypeError) as error:
        values(messages, conversational=False)
    assert "texts" in error.value.__notes__[0] and '{"messages": {"conversational": true}}' in error.value.__notes__[0]


def test_a_functions_own_failure_is_not_taken_for_a_sign() -> None:
    calls = []

    def broken(completions, **kwargs):
        calls.append(completions)
        return [None + 1 for _ in completions]

    with pytest.raises(TypeError, match="NoneType"):
        values(broken)
    assert len(calls) == 1


def test_in_a_running_event_loop() -> None:
    async def notebook():
        return values(waits)

    assert asyncio.run(notebook()) == [1.0, 0.0, 1.0]


def test_columns_gold_and_ids_by_name() -> None:
    def look(completions, solution, answer, question, level, completion_ids, ground_truth="none", **kwargs):
        assert solution == ["4", "5", "4"] and answer == solution == ground_truth == kwargs["gold"]
        assert question == ["2+2", "2+3", "2+2"] and completion_ids == [[1, 2, 3], [9], [1, 2]]
        assert kwargs["colour"] == ["red"] * 3
        return [float(x) for x in level]

    rows = [
        Sample(s.response, s.gold, s.prompt, s.question, response_ids=s.response_ids, columns={"level": i, "colour": "red"})
        for i, s in enumerate(SAMPLES)
    ]  # fmt: skip
    assert values(look, rows) == [0.0, 1.0, 2.0]


def test_a_column_named_solution_comes_before_the_gold() -> None:
    def look(completions, solution):
        return [float(s == "long") for s in solution]

    assert values(look, [Sample("a", "4", columns={"solution": "long"})]) == [1.0]
    assert values(look, [Sample("a", "4")]) == [0.0]
    assert values(look, [Sample("a", "4"), Sample("a", None)]) == [0.0, 0.0]
    with pytest.raises(UserError, match="look.*'solution'.*no such column"):
        values(look, [Sample("a", None)])


def test_none_skips_and_what_is_logged_becomes_components() -> None:
    def logs(completions, log_extra=None, log_metric=None, **kwargs):
        log_extra("length", [len(c) for c in completions])
        log_extra("text", completions)
        log_metric("share", 0.5)
        return [None if not c else 1.0 for c in completions]

    results = score(resolve(adapt(logs)), SAMPLES)
    assert [r.value for r in results] == [1.0, None, 1.0]
    assert [r.components for r in results] == [{"length": n, "share": 0.5} for n in (8.0, 0.0, 8.0)]


def test_arrays_are_unpacked_and_results_checked_as_usual() -> None:
    import numpy
    import torch

    assert values(lambda completions: numpy.array([1.0, 0.5, 0.0])) == [1.0, 0.5, 0.0]
    assert values(lambda completions: torch.tensor([1.0, 0.5, 0.0])) == [1.0, 0.5, 0.0]
    for bad in ([1.0], 1.0, [1.0, float("nan"), 0.0], ["1", 0, 0]):
        with pytest.raises(UserError, match="lambda"):
            values(lambda completions, bad=bad: bad)


def test_messages_are_read_of_some_samples_only() -> None:
    """As in TRL's multi-task example: problems of another task are skipped."""

    def math_only(prompts, completions, task, **kwargs):
        return [
            float("<a>" in c[0]["content"]) if t == "math" else None for c, t in zip(completions, task, strict=True)
        ]

    rows = [Sample("<a>", "1", columns={"task": t}) for t in ("math", "code", "math")]
    assert values(math_only, rows) == [1.0, None, 1.0]
    assert values(math_only, rows[1:2]) == [None]
