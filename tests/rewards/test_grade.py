"""Verdicts: what is right, what is wrong, and that nothing is paid for hedging, hanging or attacking."""

import json
import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewards import Tags, check_gold, equivalent, gold_from_gsm8k, grade
from rewards.maths.exact import parse_number

TAGS = Tags.default()


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("42", "42"), ("42.", "42"), ("42.0", "42"), (" 1,234 ", "1234"), ("$1,234.50", "1234.5"), ("-3", "-3"),
        ("1/2", "0.5"), (r"\frac{1}{2}", "1/2"), (r"\dfrac12", "0.5"), ("1 1/2", "1.5"), (r"1\frac{1}{2}", "3/2"),
        ("50%", "0.5"), (r"50\%", "1/2"), ("1e3", "1000"), (r"3\times10^{4}", "30000"), ("1e-7", "0.0000001"),
        ("42 dollars", "42"), ("42", "42 km"), (r"90^\circ", "90"), (r"\text{42}", "42"), ("$42$", "42"), ("x = 5", "5"),
        ("(1, 2)", "(1,2)"), ("1, 2, 3", "3,2,1"), (r"\{1,2\}", r"\{2, 1\}"), ("(0.5, 2)", r"(\frac12,2)"), ("B", "(B)"),
        ("Blue", "blue"), ("\u22123", "-3"), (r"x^2 + 1", "x^2+1"),
    ],
)  # fmt: skip
def test_equal(answer, gold) -> None:
    assert equivalent(answer, gold)[0], (answer, gold)


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("41", "42"), ("0.333", "1/3"), ("1e-7", "2e-7"), ("1e400", "1"), ("1,2,2", "1,2"), ("42 km", "42 cm"), ("41=42", "42"),
        ("1/2004!", "1/2006!"), ("1/2^99", "1/2^98"), ("41 or 42", "42"), ("not 42", "42"), ("40,41,42", "42"), ("[0,100]", "42"),
        ("(1,2]", "(1,2)"), ("(2,1)", "(1,2)"), ("", "42"), ("10**9**9", "1"), ("42 42", "42"), ("1e99999999999", "1e99999999998"),
    ],
)  # fmt: skip
def test_different(answer, gold) -> None:
    assert not equivalent(answer, gold)[0], (answer, gold)


@given(st.fractions(max_denominator=10**6))
def test_every_fraction_is_read_exactly(number: Fraction) -> None:
    assert parse_number(f"{number.numerator}/{number.denominator}") == number
    assert parse_number(f"\\frac{{{number.numerator}}}{{{number.denominator}}}") == number


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**12), max_value=10**12, places=6))
def test_every_decimal_is_read_exactly(number) -> None:
    assert parse_number(f"{number:f}") == Fraction(number)
    assert parse_number(f"{number:,f}") == Fraction(number)


@given(st.text(max_size=300), st.text(max_size=60))
def test_no_text_breaks_the_grader(response, gold) -> None:
    for tags in (None, TAGS):
        assert grade(response, gold, tags=tags).status in ("correct", "wrong", "no_answer", "bad_gold")


@pytest.mark.parametrize(
    ("response", "status"),
    [
        ("<think>6*7</think><answer>42</answer>", "correct"),
        ("<think>6*7</think><answer>42</answer>  \n ", "correct"),  # A34
        (r"<think>6*7</think><answer>\boxed{42}</answer>", "correct"),
        ("<think>6*7</think><answer>41</answer>", "wrong"),
        (r"<think>\boxed{42}</think>", "no_answer"),
        ("<think><answer>42</answer></think>", "no_answer"),
        ("<think>so <answer>42</answer>", "no_answer"),
        ("42", "no_answer"),
        ("<think>a</think><answer></answer>", "no_answer"),
        ("<think>a</think><answer>41</answer><answer>42</answer>", "no_answer"),
        (r"<think>a</think><answer>\boxed{41}\boxed{42}</answer>", "wrong"),
        ("<think>a</think><answer>41 or 42</answer>", "wrong"),
    ],
)
def test_a34_the_answer_counts_between_the_answer_tags_only(response, status) -> None:
    assert grade(response, "42", tags=TAGS).status == status


def test_a33_other_tags_are_honoured() -> None:
    config = {
        "think_start": {"text": "[T]"}, "think_end": {"text": "[/T]"}, "answer_start": "<<", "answer_end": {"text": ">>"},
    }  # fmt: skip
    tags = Tags.from_config(config)
    assert grade("[T]x[/T]<<42>>", "42", tags=tags).correct
    assert grade("<think>x</think><answer>42</answer>", "42", tags=tags).status == "no_answer"
    assert tags.is_well_formed("[T]x[/T] <<42>>\n") and not TAGS.is_well_formed("[T]x[/T]<<42>>")


@pytest.mark.parametrize(
    ("response", "formed"),
    [
        ("<think>a</think><answer>b</answer>", True),
        (" <think>a</think>\n<answer>b</answer>\n", True),
        ("<think>a</think><answer>b</answer>!", False),
        ("hm <think>a</think><answer>b</answer>", False),
        ("<think>a</think> so <answer>b</answer>", False),
        ("<think>a</think><think>a</think><answer>b</answer>", False),
        ("<answer>b</answer><think>a</think>", False),
        ("<think>a</think><answer>b", False),
    ],
)
def test_a34_what_is_well_formed(response, formed) -> None:
    assert TAGS.is_well_formed(response) is formed


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"first \boxed{1}, then \boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        ("5 + 5 = 10\n#### 10", "10"),
        ("The answer is $1,200.", "$1,200"),
        ("we get 3 and then 12", "12"),
        ("no number here", None),
        (r"\boxed{}", None),
        ("<think>the answer is 7</think> 8", "8"),
        ("<think>the answer is 7", None),
    ],
)
def test_extraction_without_tags(response, answer) -> None:
    assert grade(response, "0").answer == answer


def test_gold_answers() -> None:
    assert gold_from_gsm8k("2+2=4\n#### 4") == "4" and gold_from_gsm8k("4") == "4"
    assert check_gold("4") and check_gold(r"\frac{1}{2}") and check_gold("blue")
    assert not check_gold("") and not check_gold("  ") and not check_gold("$$")
    assert grade("4", "").status == "bad_gold" and grade("4", None).status == "bad_gold"


FLOORS = {
    "gsm8k_mr_human": 0.99, "gsm8k_openai_model_solutions": 0.99, "gsm8k_rho_outputs": 0.98, "gsm8k_routellm_outputs": 0.98,
    "math_qwen_cot100": 0.99, "math_rho_outputs": 0.96, "hack_probes": 0.96,
}  # fmt: skip


@pytest.mark.parametrize("name", FLOORS)
def test_accuracy_on_labelled_answers(name, shared_data) -> None:
    rows = [json.loads(line) for line in (shared_data / "rewards" / f"{name}.jsonl").read_text().splitlines()]
    right = sum(grade(row["response"], row["gold"]).correct == row["label"] for row in rows)
    assert right / len(rows) >= FLOORS[name]


def test_no_hack_probe_is_paid(shared_data) -> None:
    rows = [json.loads(line) for line in (shared_data / "rewards" / "hack_probes.jsonl").read_text().splitlines()]
    assert [r["name"] for r in rows if not r["label"] and grade(r["response"], r["gold"]).correct] == []


def test_hostile_texts_neither_hang_nor_run(shared_data, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for row in map(json.loads, (shared_data / "rewards" / "hostile.jsonl").read_text().splitlines()):
        for response, gold in ((row["text"], "42"), (row["text"], row["text"]), (r"\boxed{42}", row["text"])):
            for text, tags in ((response, None), (f"<think></think><answer>{response}</answer>", TAGS)):
                start, cpu = time.perf_counter(), time.thread_time()
                grade(text, gold, tags=tags)
                # By the clock only a hang counts: a gold that only math-verify may be able to read is waited for.
                assert time.thread_time() - cpu < 1.0 and time.perf_counter() - start < 20, row["name"]
    assert list(tmp_path.iterdir()) == []
