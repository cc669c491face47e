"""Reading takes steps in proportion to the length of the text, whatever it repeats or nests; and so deep and no deeper."""

import itertools
import random
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hostile_texts import PIECES
from processor_time import seconds

from rewards.maths.lexer import Token, resolve_letters, separated, tokens
from rewards.maths.limits import Budget, OutOfWorkError, UnreadableError
from rewards.maths.parser import Parser, _joined_inequalities, parse

NESTED = {
    "mixed numbers": (r"3\frac{", "1", "}{7}"),
    "mixed numbers below": (r"3\frac{1}{", "2", "}"),
    "fractions": (r"\frac{1}{1+", "1", "}"),
    "parentheses": ("(", "1", ")"),
    "factors": ("x(y+", "1", ")"),
    "braces": ("{", "1", "}"),
    "sets": (r"\{x|", "1", r"\}"),
    "sets in braces": ("{x:", "1", "}"),
    "calls": ("f(", "1", ")=1"),
    "names": ("P(A|", "1", ")"),
    "inverses": ("f^{-", "1", "}(x)"),
    "conditions": ("x (k<", "1", ")"),
    "subscripts": ("x_{", "1", "}"),
    "superscripts": ("x^{", "1", "}"),
    "lists": ("(1,234,", "1", ")"),
    "roots": (r"\sqrt[3]{", "1", "}"),
    "sines": (r"\sin ", "1", ""),
    "absolute values": ("|x+", "1", "|"),
    "matrices": (r"\begin{pmatrix}", "1", r"\end{pmatrix}"),
    "factorials": ("", "42", "!"),
    "minus signs": ("-", "1", ""),
    "signs above": ("x^-", "1", ""),
    "words": ("a: ", "1", ""),
    "units": ("", "1", " m^2"),
    "repeating decimals": ("0.(", "1", ")"),
    "unclosed parentheses": ("(", "", ""),
    "unclosed braces": (r"\frac{", "", ""),
}
REPEATED = {
    "terms": "x+",
    "mixed numbers": r"1\frac{1}{2}+",
    "improper mixed numbers": r"1\frac{3}{2}+",
    "fractions without braces": r"\frac123",
    "pairs": "(1,234)",
    "bases": "(11)_2+",
    "degrees": r"5^{\circ}+",
    "quotients": "1/3/",
    "equations": "x=",
    "inequalities": "x<",
    "unions": r"(1,2)\cup",
    "inequalities in unions": r"x<1\cup",
    "calls": "f(x,y)+",
    "brackets": "(x)",
    "conditions": "x(k<1),",
    "units": "2 hours ",
    "words": r"\text{and and apples or}",
    "primes": "f'",
    "powers of ten": "1e400/",
    "products of roots": r"\sqrt x",
    "signs": r"\pm 1",
    "decimals": "1.5,",
    "numbers in groups": "123,456,7",
}


class Counted(list[Token]):
    """Tokens that count how many of them have been looked at."""

    looked_at = 0

    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        self.looked_at += len(found) if isinstance(place, slice) else 1
        return found

    def __iter__(self) -> Iterator[Token]:
        self.looked_at += len(self)
        return super().__iter__()


def looks(text: str) -> tuple[int, int]:
    """How many tokens were looked at to read a text, and how many it has."""
    found = Counted(separated(_joined_inequalities(resolve_letters(tokens(text)))))
    try:
        Parser(found).answer()
    except UnreadableError:
        pass
    return found.looked_at, len(found)


LOOKS = 60
"""At each token, at the most; what is quadratic takes thousands here."""


@pytest.mark.parametrize("name", REPEATED)
def test_no_token_is_looked_at_more_often_in_a_longer_text(name) -> None:
    looked_at, found = looks(REPEATED[name] * (10_000 // len(REPEATED[name])))
    assert looked_at < LOOKS * found


@pytest.mark.parametrize("length", [80, 240, 20_000])
@pytest.mark.parametrize("name", NESTED)
def test_no_token_is_looked_at_more_often_in_a_deeper_text(name, length) -> None:
    opening, inside, closing = NESTED[name]
    count = length // len(opening + closing)
    looked_at, found = looks(opening * count + inside + closing * count)
    assert looked_at < LOOKS * found


@pytest.mark.parametrize("name", ["improper mixed numbers", "numbers in groups", "conditions"])
def test_a_text_of_100000_characters(name) -> None:
    text = REPEATED[name] * (100_000 // len(REPEATED[name]))
    looked_at, found = looks(text)
    assert looked_at < LOOKS * found


@pytest.mark.parametrize("name", ["mixed numbers", "conditions", "unclosed parentheses"])
def test_100000_characters_nested(name) -> None:
    opening, inside, closing = NESTED[name]
    count = 100_000 // len(opening + closing)
    text = opening * count + inside + closing * count
    looked_at, found = looks(text)
    assert looked_at < LOOKS * found
    assert seconds(lambda: tokens(text), limit_s=4.0) < 4.0


def test_reading_is_paid_for_before_it_is_done() -> None:
    with pytest.raises(OutOfWorkError), Budget(1000):
        parse("x+" * 1000 + "x")
    with Budget() as budget:
        parse("x+" * 100 + "x")
    assert budget.spent > 201


def all_pairs() -> list[tuple[str, str]]:
    """Every piece after itself, and some of the pairs of pieces."""
    pairs = list(itertools.product(PIECES, PIECES))
    return [(piece, "") for piece in PIECES] + random.Random(5).sample(pairs, 250)


def test_no_piece_of_mathematics_repeated_uses_up_the_stack() -> None:
    deepest, this = 0, 0

    def watch(frame: Any, event: str, argument: Any) -> None:
        nonlocal deepest, this
        if event in ("call", "return"):
            this += 1 if event == "call" else -1
            deepest = max(deepest, this)

    for left, right in all_pairs():
        for text in (left * 60 + "1" + right * 60, (left + " " + right) * 60 + "1"):
            this = 0
            sys.setprofile(watch)
            try:
                parse(text)
            except UnreadableError:
                pass
            finally:
                sys.setprofile(None)
    assert 300 < deepest < 850, "the stack has 1000 frames"
