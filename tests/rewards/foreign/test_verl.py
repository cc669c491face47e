"""Functions in verl's form."""

import asyncio

import pytest

from rewards import Sample, UserError, resolve
from rewards.call import score
from rewards.foreign import adapt

SAMPLES = [
    Sample("#### 4", "4", question="2+2", columns={"data_source": "openai/gsm8k", "level": 1}),
    Sample("#### 5", "4", question="2+2", columns={"data_source": "openai/gsm8k", "level": 2}),
]


def results(function, samples=SAMPLES, **options):
    return score(resolve(adapt(function, options)), samples)


def values(function, samples=SAMPLES, **options):
    return [r.value for r in results(function, samples, **options)]


def exact(data_source, solution_str, ground_truth, extra_info=None):
    assert data_source == "openai/gsm8k"
    return 1.0 if solution_str.split("####")[1].strip() == ground_truth else 0.0


def with_options(data_source, solution_str, ground_truth, extra_info=None, format_score=0.0, score=1.0):
    return score if exact(data_source, solution_str, ground_truth) else format_score


def as_dict(data_source, solution_str, ground_truth, extra_info=None):
    right = exact(data_source, solution_str, ground_truth)
    return {
        "score": 2 * right - 1,
        "acc": bool(right),
        "pred": solution_str[-1],
        "missing": None,
        "level": extra_info["level"],
    }


def with_kwargs(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    assert "response" not in kwargs and "level" not in kwargs
    return kwargs.get("bonus", 0.0) + exact(data_source, solution_str, ground_truth)


def without_source(solution_str, ground_truth, method="strict"):
    return float(method == "strict" and ground_truth in solution_str)


def batch(data_sources, solution_strs, ground_truths, extra_infos, scale=1.0):
    assert [e["level"] for e in extra_infos] == [1, 2] and data_sources == ["openai/gsm8k"] * 2
    return [{"score": scale * (g in s), "long": len(s)} for s, g in zip(solution_strs, ground_truths, strict=True)]


async def judge(data_source, solution_str, ground_truth, extra_info=None):
    await asyncio.sleep(0.2)
    return exact(data_source, solution_str, ground_truth)


def test_a_number() -> None:
    assert values(exact) == [1.0, 0.0]
    assert not resolve(adapt(exact)).batched  # one at a time, so that each can be stopped by itself
    assert values(without_source) == [1.0, 0.0] and values(without_source, method="flexible") == [0.0, 0.0]


def test_keyword_arguments_are_options() -> None:
    assert values(with_options, format_score=0.25, score=3.0) == [3.0, 0.25]
    assert values(with_kwargs, bonus=0.5) == [1.5, 0.5]
    with pytest.raises(UserError, match="exact.*verl.*bonus"):
        values(exact, bonus=1)


def test_a_dict_counts_its_score_and_logs_its_other_numbers() -> None:
    first, second = results(as_dict)
    assert (first.value, second.value) == (1.0, -1.0)
    assert first.components == {"acc": 1.0, "level": 1.0} and second.components == {"acc": 0.0, "level": 2.0}
    with pytest.raises(UserError, match="lambda.*without 'score'"):
        values(lambda solution_str, ground_truth: {"reward": 1.0})


def test_the_batch_form() -> None:
    assert values(batch, scale=2.0) == [2.0, 0.0] and results(batch)[0].components == {"long": 6.0}


def test_extra_info_is_the_datas_own_where_it_has_one() -> None:
    seen = []

    def look(data_source, solution_str, ground_truth, extra_info=None):
        seen.append((data_source, extra_info))
        return 0.0

    values(look, [Sample("a", "1", question="q", columns={"extra_info": {"index": 7}}), Sample("a", "1", question="q", columns={"x": 1})])  # fmt: skip
    assert seen == [("", {"index": 7}), ("", {"question": "q", "x": 1})]


def test_async_functions_are_awaited_together() -> None:
    at_once = []

    async def meet(data_source, solution_str, ground_truth, extra_info=None):
        at_once.append(solution_str)
        for _ in range(10_000):
            if len(at_once) == 10:  # every call is under way before the first one ends
                return exact(data_source, solution_str, ground_truth)
            await asyncio.sleep(0.001)
        raise AssertionError("the calls wait for one another")

    assert values(meet, SAMPLES * 5) == [1.0, 0.0] * 5


def test_a_column_that_is_missing_is_named() -> None:
    def wants(data_source, solution_str, ground_truth, tests): ...

    with pytest.raises(UserError, match="wants.*'tests'.*data column"):
        values(wants)
