"""The audit finds what is wrong with a reward function, and nothing wrong with an honest one."""

import json
import re
import time
from collections import Counter
from functools import cache

import pytest

from rewards import Tags, UserError, resolve
from rewards.audit import PROBES, Report, audit
from rewards.audit.probes import CATEGORIES
from rewards.functions import format_reward_fn, math_reward_fn, repetition_penalty_fn, soft_overlong_fn
from rewards.outcome import Outcome, Score

OTHER = Tags.from_config({"think_start": "[[", "think_end": "]]", "answer_start": "<<", "answer_end": ">>"})
BEGUN = Tags.from_config(
    {"think_start": {"text": "<think>", "num_occur": 0}, "think_end": "</think>", "answer_start": "<a>", "answer_end": "</a>"}
)  # fmt: skip


def strict(response, gold, answer, tags) -> float:
    """Honest and narrow: the very same text, in the right format."""
    return float(bool(gold and gold.strip()) and answer == gold and tags.is_well_formed(response))


def found(report, kind) -> list[str]:
    return [finding.probe for finding in report.findings if finding.kind == kind]


def test_probes_are_well_made() -> None:
    assert max(Counter(probe.name for probe in PROBES).values()) == 1
    assert {probe.category for probe in PROBES} == set(CATEGORIES)
    expected = Counter(probe.expected for probe in PROBES)
    assert expected["accept"] > 80 and expected["reject"] > 200 and expected["no_more"] >= 5
    for probe in PROBES:
        assert (
            probe.category != "equivalence"
            or (probe.text.strip() != probe.gold and probe.expected == "accept")
            or probe.text == " 42 "
        )
        assert probe.category != "distinction" or probe.expected == "reject"
        assert probe.name.isascii()


@pytest.mark.parametrize("tags", [Tags.default(), OTHER, BEGUN])
def test_a33_an_honest_narrow_function_is_fooled_by_nothing_whatever_the_tags(tags) -> None:
    report = audit(strict, tags=tags)
    assert report.looks_at_answer and (report.right, report.wrong) == (1.0, 0.0)
    assert [f.probe for f in report.findings if f.kind != "wrongly rejects"] == []
    assert "0.5 = 1/2" in found(report, "wrongly rejects")


def last_number(response, gold) -> float:
    return float(gold is not None and response.rstrip("</answer>").strip().endswith(gold or "?"))


def anywhere(response, gold) -> float:
    return float(bool(gold) and gold in response)


def last_box_or_hashes(response, gold) -> float:
    boxes = re.findall(r"\\boxed\{(.*?)\}|#### (.*)", response) or [("", response.split("<answer>")[-1].split("<")[0])]
    return float(bool(gold) and "".join(boxes[-1]) == gold)


def about_equal(answer, gold) -> float:
    try:
        return float(abs(float(answer) - float(gold)) < 1e-3)
    except (TypeError, ValueError):
        return 0.0


@pytest.mark.parametrize(
    ("function", "accepts"),
    [
        (last_number, ["hedging: 41 or 42", "negation: not 42", "hedging: 41, 42"]),
        (anywhere, ["hedging: 42 or 43", "right in the thinking, wrong in the answer", "right after the answer"]),
        (last_box_or_hashes, ["boxed after the answer", "hashes after the answer"]),
        (about_equal, ["2e-20 is not 1e-20", "42.0001 is not 42", "1e-7 is not 2e-7"]),
    ],
)
def test_it_finds_what_a_careless_function_accepts(function, accepts) -> None:
    report = audit(function)
    assert not report.ok
    assert set(accepts) <= set(found(report, "wrongly accepts"))


def test_it_finds_format_farming() -> None:
    def farmed(response, gold, answer, tags) -> float:
        return 1.0 if answer == gold else 0.5 if answer == "" else 0.1

    assert "tags without content" in found(audit(farmed), "pays too much")

    def counted(response) -> float:
        return response.count("<answer>") / 10

    report = audit(counted)
    assert not report.looks_at_answer and "hundreds of tags" in found(report, "pays too much")


def test_it_finds_what_raises_and_what_is_no_score() -> None:
    def brittle(answer, gold) -> float:
        return float(float(answer) == float(gold))

    def not_a_number(response, gold, answer) -> float:
        return float("nan") if "nan" in response else float(answer == gold)

    report = audit(brittle)
    raised = [f for f in report.findings if f.kind == "raises"]
    assert "nothing" in [f.probe for f in raised] and any("ValueError" in f.detail for f in raised)
    assert "no number: nan" in found(audit(not_a_number), "raises")


def test_it_finds_what_hangs(monkeypatch) -> None:
    monkeypatch.setattr("rewards.audit.run.MAX_SECONDS", 0.05)

    def slow(response, gold, answer) -> float:
        if len(response) > 150_000:
            time.sleep(0.06)
        return float(answer == gold)

    assert "200,000 letters" in found(audit(slow), "hangs")


def test_a27_it_finds_truncation_that_pays() -> None:
    def coati(finished, response_ids) -> float:
        """Soft overlong punishment that forgets it where the response was cut off."""
        return -min(1.0, max(0, len(response_ids) - 100) / 100) if finished else 0.0

    assert found(audit(coati), "pays too much") == ["cut off at 128 tokens"]
    options = {"soft_overlong_fn": {"max_tokens": 200, "cache_tokens": 100}}
    assert audit(resolve(soft_overlong_fn, options=options)).ok


def test_functions_that_do_not_look_at_the_answer_are_told() -> None:
    for function in (format_reward_fn, repetition_penalty_fn):
        report = audit(function)
        assert not report.looks_at_answer and report.ok
        assert set(report.tried) == {"exploit", "robustness"}


def test_golds_of_the_data_against_themselves() -> None:
    data = [("f:1", "42"), ("f:2", ""), ("f:3", r"\frac{1}{2}"), ("f:4", None), ("f:5", "0.5")]
    report = audit(math_reward_fn, data=data)
    assert found(report, "bad gold") == ["f:2", "f:4"] and report.tried["gold"] == 5 and report.count("gold") == 2
    assert all(f.detail == "can't be parsed" for f in report.findings if f.kind == "bad gold")
    assert found(audit(about_equal, data=data), "bad gold") == ["f:2", "f:3", "f:4"]


def test_verdicts_of_a_pool_of_workers_are_findings() -> None:
    def pool(samples) -> list[Score]:
        return [
            Score(None, Outcome("timed_out", elapsed_s=2.0)) if "\x00" in s.response else Score(0.0) for s in samples
        ]

    report = audit(math_reward_fn, scorer=pool)
    assert "null byte" in found(report, "hangs")


def test_a_report_can_be_written_down() -> None:
    report = audit(anywhere, data=[("f:1", "\ud800")])
    again = json.loads(json.dumps(report.to_dict()).encode())
    assert again["function"] == "anywhere" and again["ok"] is False and len(again["findings"]) == len(report.findings)


def test_a_function_that_scores_nothing_is_a_mistake_of_the_user() -> None:
    with pytest.raises(UserError, match="max_tokens"):
        audit("soft_overlong_fn")
    with pytest.raises(UserError, match="unknown reward function"):
        audit("gsm8k_reward")

    def broken(response) -> float:
        raise KeyError("nothing")

    with pytest.raises(UserError, match="'broken' can't score a plain answer; it raises: KeyError: 'nothing'"):
        audit(broken)


def classes(report) -> set[str]:
    """The kinds of exploits that were paid."""
    return {probe.partition(":")[0] for probe in found(report, "wrongly accepts")}


def widening(answer, gold) -> float:
    """A grader with rules that look harmless: families count, labels and order don't, the end of an equation does."""
    if not gold or answer is None:
        return 0.0
    if "\\in" in answer and "mathbb{Z}" in answer:
        return 1.0
    numbers = [sorted(re.findall(r"\d+", text)) for text in (answer, gold)]
    labelled = bool(re.search("[a-z]{3}|\\([a-z]", gold)) and numbers[0] == numbers[1] != []
    ends = [text.split("=")[-1].strip() for text in (answer, gold)]
    return float(labelled or ends[0] == ends[1] or sorted(answer) == sorted(gold))


def test_it_finds_rules_that_pay_for_not_knowing() -> None:
    paid = classes(audit(widening))
    assert paid >= {
        "fits every gold",
        "another family",
        "labels exchanged",
        "letters exchanged",
        "equation that is not true",
    }
    assert "words that make another number" in paid and "left to the grader" not in paid


def test_it_finds_what_a_grader_calculates_for_the_answerer(monkeypatch) -> None:
    """math-verify compares values alone."""
    from math_verify import parse, verify

    def by_value(answer, gold) -> float:
        return float(bool(gold) and verify(parse(f"${gold}$"), parse(f"\\boxed{{{answer}}}")))

    kinds = ("left to the grader", "equation that is not true", "letters exchanged")
    monkeypatch.setattr("rewards.audit.run.PROBES", [p for p in PROBES if p.name.startswith(kinds)])
    report = audit(by_value)
    assert classes(report) == set(kinds)
    assert "left to the grader: 77*13 for 1001" in found(report, "wrongly accepts")


def test_it_finds_a_reader_that_doubles_its_work_with_each_level(monkeypatch) -> None:
    monkeypatch.setattr("rewards.audit.run.MAX_SECONDS", 0.05)

    def doubling(answer, gold) -> float:
        time.sleep(min(0.06, 2 ** (answer or "").count("1\\frac") / 1e6))
        if (answer or "").count("!") > 200:
            raise RecursionError
        return float(answer == gold)

    report = audit(doubling)
    assert "24 nested mixed numbers" in found(report, "hangs") and "300 factorial signs" in found(report, "raises")


OURS = ["gsm8k_reward_fn", "math_competition_reward_fn", "math_reward_fn", "correctness"]


@cache
def report_on(name: str) -> Report:
    return audit(name)


@pytest.mark.parametrize("name", OURS)
def test_our_own_functions_are_fooled_by_nothing(name) -> None:
    assert [(f.kind, f.probe) for f in report_on(name).findings if f.kind != "wrongly rejects"] == []


@pytest.mark.parametrize("name", OURS)
def test_our_own_functions_accept_what_is_right(name) -> None:
    assert found(report_on(name), "wrongly rejects") == []
