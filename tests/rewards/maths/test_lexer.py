"""Tokens: what LaTeX, ASCII and typography write as one thing is one token, and bounds hold."""

import pytest

from rewards.maths.lexer import MAX_DIGITS, resolve_letters, tokens
from rewards.maths.limits import UnreadableError


def texts(text: str) -> list[str]:
    return [t.text for t in tokens(text)]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1,234", "1,234"), (r"1{,}234", "1234"), (r"1,\!234", "1234"), (r"1\,234", "1234"),
        ("1,234,567.8", "1,234,567.8"),
        (".5", ".5"), ("5.", "5"), ("0.50", "0.50"),
    ],
)  # fmt: skip
def test_a_number_is_one_token(text, number) -> None:
    assert texts(text) == [number]


def test_commas_that_separate_no_thousands_separate_numbers() -> None:
    assert texts("1,23") == ["1", ",", "23"]
    assert texts("1,234,5") == ["1", ",", "234", ",", "5"]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("≤", r"\leq"), ("≥", r"\geqslant"), ("≠", r"\ne"), ("∈", r"\in"), ("×", r"\times"), ("·", r"\cdot"),
        ("÷", r"\div"),
        ("−", "-"), ("±", r"\pm"), ("∪", r"\cup"), ("∞", r"\infty"), ("π", r"\pi"), ("°", r"^\circ"[1:]), ("**", "^"),
        ("==", "="),
        ("⌊", r"\lfloor"), ("∣", r"\mid"), ("…", r"..."), (r"\left(", "("), (r"\bigl(", "("), (r"\lbrace", r"\{"),
    ],
)  # fmt: skip
def test_one_thing_written_in_two_ways_is_one_token(left, right) -> None:
    assert texts(left) == texts(right) and len(texts(left)) == 1


@pytest.mark.parametrize(
    ("text", "long"),
    [
        ("x²", "x^{2}"),
        ("x¹⁰", "x^{10}"),
        ("10⁻³", "10^{-3}"),
        ("2ⁿ⁻¹", "2^{n-1}"),
        ("x₁₂", "x_{12}"),
        ("2½", r"2\frac{1}{2}"),
    ],
)
def test_raised_lowered_and_vulgar_characters(text, long) -> None:
    assert texts(text) == texts(long)


def test_a_missing_space_behind_a_command() -> None:
    assert texts(r"\cotx") == ["cot", "x"] and texts(r"\pir") == ["pi", "r"]


@pytest.mark.parametrize("command", ["pmod", "lnot", "degree", "cosh", "epsilon"])
def test_a_command_that_begins_like_another_is_itself(command) -> None:
    assert len(tokens(f"\\{command}")) == 1


def test_text_commands_are_words_and_bold_letters_are_letters() -> None:
    assert [(t.kind, t.text) for t in tokens(r"\text{ square  cm}\mathbf{v}")] == [
        ("word", "square cm"),
        ("letters", "v"),
    ]


def test_white_space_is_remembered() -> None:
    assert [t.spaced for t in tokens(r"2 \quad x~y\,z")] == [False, True, True, True]


def test_delimiters_and_currency_are_dropped() -> None:
    assert texts(r"\$5") == texts("€5") == texts("$5$") == ["5"]


def test_an_ampersand_before_a_relation_only_lines_up() -> None:
    assert "&" not in texts(r"x &= 3") and "&" in texts("1 & 2")


@pytest.mark.parametrize("text", ["1" * (MAX_DIGITS + 1), "#", "@", "人"])
def test_what_means_nothing_or_is_too_much_is_unreadable(text) -> None:
    with pytest.raises(UnreadableError):
        tokens(text)


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("xy", ["symbol", "symbol"]), ("sin", ["command"]), ("pi", ["command"]), ("and", ["sep"]),
        (r"\text{or}", ["sep"]),
        ("percent", ["op"]), ("12 cm", ["number", "word"]), ("2cm", ["number", "word"]), ("5 m", ["number", "symbol"]),
        (r"5\text{ m}", ["number", "word"]), (r"2\text{b}", ["number", "symbol"]), ("apples", ["word"]),
        ("2abc", ["number"] + ["symbol"] * 3),
        ("cup", ["word"]), ("sinx", ["command", "symbol"]), ("mod", ["command"]), (r"\text{3}", ["number"]),
        ("3 x 10", ["number", "op", "number"]), (r"\text{and } x", ["sep", "symbol"]),
    ],
)  # fmt: skip
def test_what_runs_of_letters_are(text, kinds) -> None:
    assert [t.kind for t in resolve_letters(tokens(text))] == kinds
