"""Which columns are read, how answers are parsed, and what is said of rows of the wrong type."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr.data.problems import ANSWER_COLUMNS, QUESTION_COLUMNS, Columns, choose_columns, final_answer, make_problem
from rlvr.data.rows import Row
from rlvr.errors import UserError


def row(**values: Any) -> Row:
    return Row(values, "d.jsonl:7")


def answer_of(value: Any, column: str = "answer") -> str | None:
    return make_problem(row(question="q", **{column: value}), Columns("question", column)).answer


# ---- columns


def test_first_usual_column_is_taken() -> None:
    for question in QUESTION_COLUMNS:
        for answer in ANSWER_COLUMNS:
            found = choose_columns(row(other=1, **{answer: 1, question: "q"}), "set")
            assert (found.question, found.answer, found.answer_is_named) == (question, answer, False)
    found = choose_columns(row(prompt="p", problem="q", solution="s", gold="g"), "set")
    assert (found.question, found.answer) == ("problem", "gold")


def test_named_columns_win() -> None:
    found = choose_columns(row(question="q", answer="a", task="t", result="r"), "set", "task", "result")
    assert found == Columns("task", "result", answer_is_named=True)


def test_missing_columns_are_told_with_those_that_there_are() -> None:
    with pytest.raises(UserError, match=r"set: no question column; looked for question, .*columns are foo, answer"):
        choose_columns(row(foo="1", answer="2"), "set")
    with pytest.raises(
        UserError, match=r"set: no answer column; looked for answer, .*columns are question, result.*none"
    ):
        choose_columns(row(question="1", result="2"), "set")
    with pytest.raises(
        UserError, match=r"no column 'questoin' \(--question_column\).*question, a. *Did you mean 'question'"
    ):
        choose_columns(row(question="1", a="2"), "set", "questoin")
    with pytest.raises(UserError, match=r"no column 'res' \(--answer_column\); the columns are question, result"):
        choose_columns(row(question="1", result="2"), "set", None, "res")


def test_prompts_alone() -> None:
    assert choose_columns(row(text="Once upon a time"), "set") == Columns("text", None)
    assert choose_columns(row(question="q", extra=1), "set", answer_column="none") == Columns("question", None)
    assert choose_columns(row(question="q", none="a"), "set", answer_column="none").answer == "none"
    problem = make_problem(row(question="q", extra=1), Columns("question", None))
    assert problem.answer is None and problem.columns == {"extra": 1}


def test_row_without_a_column_that_others_have() -> None:
    with pytest.raises(UserError, match=r"d\.jsonl:7: no column 'answer'.*its columns: question"):
        make_problem(row(question="q"), Columns("question", "answer"))


# ---- problems


def test_problem_keeps_every_other_column() -> None:
    problem = make_problem(row(question=" q ", answer="4", level=2, response="r"), Columns("question", "answer"))
    assert (problem.question, problem.answer, problem.source) == (" q ", "4", "d.jsonl:7")
    assert problem.columns == {"level": 2, "response": "r"}


def test_id_depends_on_the_contents_alone() -> None:
    first = make_problem(Row({"question": "q", "answer": 4}, "a:1"), Columns("question", "answer"))
    moved = make_problem(Row({"x": 1, "answer": "4", "question": "q"}, "b:9"), Columns("question", "answer"))
    other = make_problem(Row({"question": "q", "answer": 5}, "a:1"), Columns("question", "answer"))
    assert first.id == moved.id != other.id
    assert first.id == "3f89f77f04e60bc8"  # the same on every machine and in every version


def test_chat_messages() -> None:
    chat = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "2+3?"},
        {"role": "assistant", "content": "5"},
    ]
    problem = make_problem(row(messages=chat, answer="5"), Columns("messages", "answer"))
    assert problem.question == "2+3?"
    of_colossalchat = [{"from": "user", "content": "2+3?"}]
    assert make_problem(row(messages=of_colossalchat, answer="5"), Columns("messages", "answer")) == problem
    with_a_tool = [*chat, {"role": "tool", "content": "t"}]
    assert make_problem(row(messages=with_a_tool, answer="5"), Columns("messages", "answer")) == problem
    for bad, said in (
        (["2+3?"], "must hold chat messages"),
        ([{"role": "user"}], "must hold chat messages"),
        ([{"role": "system", "content": "s"}], "no message of the role 'user'"),
        ([{"role": "user", "content": 5}], "must hold chat messages"),
        ([], "no message of the role 'user'"),
    ):
        with pytest.raises(UserError, match=f"d.jsonl:7: column 'prompt'.*{said}"):
            make_problem(row(prompt=bad, answer="5"), Columns("prompt", "answer"))


@pytest.mark.parametrize(
    ("value", "said"), [(3, "not int"), (None, "not NoneType"), ({"a": 1}, "not dict"), ("  ", "empty")]
)
def test_questions_of_the_wrong_type(value: Any, said: str) -> None:
    with pytest.raises(UserError, match=rf"d\.jsonl:7: column 'question'.*{said}"):
        make_problem(row(question=value, answer="1"), Columns("question", "answer"))


def test_half_characters_are_refused_before_a_tokenizer_sees_them() -> None:
    with pytest.raises(UserError, match=r"d\.jsonl:7: column 'question' holds half a character at position 2"):
        make_problem(row(question="ab\ud83d", answer="1"), Columns("question", "answer"))
    with pytest.raises(UserError, match=r"d\.jsonl:7: column 'answer' holds half a character"):
        answer_of("\ude00")


# ---- answers


@pytest.mark.parametrize(
    ("value", "text"),
    [("42", "42"), (" 4 2 ", "4 2"), (42, "42"), (-1, "-1"), (42.0, "42"), (0.5, "0.5"), (1e300, "1e+300"), ("", "")],
)
def test_texts_and_numbers_are_answers(value: Any, text: str) -> None:
    assert answer_of(value) == text


def test_null_is_no_answer() -> None:
    assert answer_of(None) is None


@pytest.mark.parametrize(
    ("value", "said"),
    [(True, "bool"), ([1], "list"), ({}, "dict"), (float("nan"), "float"), (float("inf"), "inf")],
)
def test_answers_of_the_wrong_type(value: Any, said: str) -> None:
    with pytest.raises(UserError, match=rf"d\.jsonl:7: column 'answer' must hold the right answer.*{said}"):
        answer_of(value)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("9 * 2 = 18\n#### 18", "18"),
        ("#### 3\n#### 1,234,567.50 ", "1234567.50"),
        ("#### $1,000", "$1000"),
        ("#### 1,2,3", "1,2,3"),
        (r"so \boxed{4} or \boxed{\frac{1}{\sqrt{2}}}.", r"\frac{1}{\sqrt{2}}"),
        (r"\boxed{open", r"\boxed{open"),
        ("plain", "plain"),
    ],
)
def test_final_answers(text: str, answer: str) -> None:
    assert final_answer(text) == answer


def test_solution_stays_beside_its_answer() -> None:
    gsm8k = make_problem(row(question="q", answer="9 * 2\n#### 18"), Columns("question", "answer"))
    assert (gsm8k.answer, gsm8k.columns) == ("18", {"solution": "9 * 2\n#### 18"})
    both = make_problem(row(question="q", answer="#### 18", solution="s"), Columns("question", "answer"))
    assert both.columns == {"solution": "s"}


def test_solution_without_an_answer() -> None:
    with pytest.raises(
        UserError, match=r"d\.jsonl:7: column 'solution' has neither '#### answer' nor .*--answer_column"
    ):
        answer_of("it follows that x is small", "solution")
    named = Columns("question", "solution", answer_is_named=True)
    assert make_problem(row(question="q", solution="x = 1"), named).answer == "x = 1"


@given(st.text())
def test_any_text_is_read_without_an_error(text: str) -> None:
    answer = answer_of(text)
    assert answer is not None and answer == answer.strip()
