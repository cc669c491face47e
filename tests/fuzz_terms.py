"""Terms to fuzz the grader with: trees of mathematics that can be written, rewritten by identities, spoilt, and evaluated.

Nothing here asks the grader: a value is a fraction where it is rational, and 60 digits of mpmath where it is not.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeVar

from hypothesis import strategies as st
from mpmath import mp, mpf

T = TypeVar("T")
Choose = Callable[[Sequence[T]], T]
"""Picks one of several ways."""
DIGITS = 60
POINTS: tuple[dict[str, Fraction], ...] = tuple(
    {"x": Fraction(*x), "y": Fraction(*y), "a": Fraction(*a), "b": Fraction(*b), "n": Fraction(n), "k": Fraction(k)}
    for x, y, a, b, n, k in (
        ((37, 29), (53, 31), (71, 23), (19, 41), 17, 11),
        ((-11, 7), (83, 13), (5, 37), (61, 3), 24, 13),
        ((101, 97), (-7, 19), (89, 43), (31, 59), 9, 30),
    )
)
"""Where terms are compared; `n` and `k` stand for whole numbers."""


class Undecided(ArithmeticError):
    """The term has no value here, or one that is too large to be computed."""


@dataclass(frozen=True)
class Term:
    """A node: a number (`num`), a letter (`name`), pi, e, i, or an operation on further terms."""

    op: str
    parts: tuple[Any, ...] = ()

    def over(self, parts: Sequence["Term"]) -> "Term":
        return Term(self.op, tuple(parts))

    @property
    def terms(self) -> tuple["Term", ...]:
        """The terms that it is made of; none for a leaf."""
        return () if self.op in ("num", "name", "pi", "e") else self.parts


def num(value: Fraction | int) -> Term:
    return Term("num", (Fraction(value),))


def name(letter: str) -> Term:
    return Term("name", (letter,))


PI, E = Term("pi"), Term("e")


def plus(*parts: Term) -> Term:
    return Term("+", parts)


def times(*parts: Term) -> Term:
    return Term("*", parts)


def power(base: Term, exponent: Term) -> Term:
    return Term("^", (base, exponent))


def over(top: Term, bottom: Term) -> Term:
    return Term("/", (top, bottom))


def minus(a: Term, b: Term) -> Term:
    return plus(a, Term("neg", (b,)))


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "sin": mp.sin, "cos": mp.cos, "tan": mp.tan, "ln": mp.log, "sqrt": mp.sqrt, "exp": mp.exp, "arctan": mp.atan,
}  # fmt: skip


def has_no_ones(term: Term) -> bool:
    """Nobody writes x/1 * 1, and what is left undone in it is a matter of taste."""
    ones = [part for part in term.terms if part == num(1)]
    below = term.op == "/" and term.parts[1] == num(1)
    return not (term.op == "*" and ones) and not below and all(map(has_no_ones, term.terms))


# -- values ----------------------------------------------------------------------------------------------------------


def value(term: Term, at: Mapping[str, Fraction]) -> Any:
    """A fraction, or a real number of `DIGITS` digits.

    Raises:
        Undecided: see there.
    """
    with mp.workdps(DIGITS):
        return _value(term, at)


def _value(term: Term, at: Mapping[str, Fraction]) -> Any:
    if term.op == "num":
        return term.parts[0]
    if term.op == "name":
        return at[term.parts[0]]
    if term.op in ("pi", "e"):
        return +(mp.pi if term.op == "pi" else mp.e)
    values = [_value(part, at) for part in term.parts]
    if all(isinstance(v, Fraction) for v in values):
        exact = _exact(term.op, values)
        if exact is not None:
            return exact
    return _real(term.op, [mpf(v.numerator) / v.denominator if isinstance(v, Fraction) else v for v in values])


def _exact(op: str, values: Sequence[Fraction]) -> Fraction | None:
    first, last = values[0], values[-1]
    if op == "+":
        return sum(values, Fraction(0))
    if op == "*":
        return math.prod(values, start=Fraction(1))
    if op == "neg":
        return -first
    if op == "/":
        if not last:
            raise Undecided
        return first / last
    if op == "^" and last.denominator == 1 and abs(last) <= 200 and (first or last > 0):
        return first ** int(last)
    if op == "!" and first.denominator == 1 and 0 <= first <= 200:
        return Fraction(math.factorial(int(first)))
    if op == "sqrt" and first >= 0:
        top, bottom = math.isqrt(first.numerator), math.isqrt(first.denominator)
        return Fraction(top, bottom) if (top * top, bottom * bottom) == (first.numerator, first.denominator) else None
    return None


def _real(op: str, values: Sequence[Any]) -> Any:
    first, last = values[0], values[-1]
    if op == "+":
        return mp.fsum(values)
    if op == "*":
        return mp.fprod(values)
    if op == "neg":
        return -first
    if (
        (op in ("/",) and not last)
        or (op == "^" and (first <= 0 or abs(last) > 1000))
        or (op in ("sqrt", "ln") and first <= 0)
        or (op == "exp" and abs(first) > 1000)
        or op == "!"
    ):
        raise Undecided
    if op == "/":
        return first / last
    return first**last if op == "^" else FUNCTIONS[op](first)


def differ(a: Term, b: Term) -> bool:
    """True where some point shows that the two are not equal."""
    for point in POINTS:
        try:
            p, q = value(a, point), value(b, point)
        except Undecided:
            continue
        with mp.workdps(DIGITS):
            size = 1 + abs(p) + abs(q)
            if abs(p - q) > size * mpf(10) ** -30:
                return True
    return False


def defined(term: Term) -> bool:
    """True where it has a value of a moderate size at some point."""
    for point in POINTS:
        try:
            if abs(value(term, point)) < 10**30:
                return True
        except Undecided:
            continue
    return False


# -- writing ---------------------------------------------------------------------------------------------------------

_SUM, _PRODUCT, _ATOM = range(3)


def write(term: Term, choose: Choose[Any] = lambda ways: ways[0]) -> str:
    """The term in LaTeX; without `choose` in the plainest way.

    >>> write(plus(num(Fraction(1, 2)), times(num(3), Term("sqrt", (num(2),)))))
    '\\\\frac{1}{2} + 3\\\\sqrt{2}'
    """
    return _written(term, choose)[0]


def _written(term: Term, choose: Choose[Any]) -> tuple[str, int]:
    """Its text, and how strongly that holds together."""
    op = term.op
    if op == "num":
        return _number(term.parts[0], choose)
    if op in ("name", "pi", "e"):
        return {"name": lambda: term.parts[0], "pi": lambda: "\\pi", "e": lambda: "e"}[op](), _ATOM
    if op == "+":
        return _sum(term, choose), _SUM
    if op == "*":
        return _product(term, choose), _PRODUCT
    if op == "neg":
        return f"-{_within(term.parts[0], _PRODUCT, choose)}", _SUM
    inner = [_written(part, choose)[0] for part in term.parts]
    if op == "/":
        return choose(["\\frac{%s}{%s}", "\\dfrac{%s}{%s}", "{\\frac{%s}{%s}}"]) % tuple(inner), _PRODUCT
    if op == "^":
        return f"{_base(term.parts[0], choose)}^{{{inner[1]}}}", _PRODUCT
    if op == "sqrt":
        return f"\\sqrt{{{inner[0]}}}", _ATOM
    if op == "!":
        return f"{_base(term.parts[0], choose)}!", _PRODUCT
    if op == "exp":
        return choose([f"e^{{{inner[0]}}}", f"\\exp({inner[0]})"]), _PRODUCT
    return choose([f"\\{op}({inner[0]})", f"\\{op}\\left({inner[0]}\\right)"]), _PRODUCT


def _number(number: Fraction, choose: Choose[Any]) -> tuple[str, int]:
    sign, size = ("-" if number < 0 else ""), abs(number)
    if size.denominator == 1:
        text, level = str(size.numerator), _ATOM
    else:
        ways = ["\\frac{%d}{%d}", "\\dfrac{%d}{%d}", "\\tfrac{%d}{%d}"]
        text, level = choose(ways) % (size.numerator, size.denominator), _PRODUCT
    return sign + text, _SUM if sign else level


def _within(term: Term, least: int, choose: Choose[Any]) -> str:
    text, level = _written(term, choose)
    return text if level >= least else _bracketed(text, choose)


def _bracketed(text: str, choose: Choose[Any]) -> str:
    return choose(["(%s)", "\\left(%s\\right)"]) % text


def _base(term: Term, choose: Choose[Any]) -> str:
    """What is raised or has a `!` stands in brackets unless it is a whole number or a letter."""
    text, level = _written(term, choose)
    return text if level == _ATOM and term.op != "sqrt" else _bracketed(text, choose)


def _sum(term: Term, choose: Choose[Any]) -> str:
    text = ""
    gap = choose([" ", ""])
    for part in term.parts:
        piece = _within(part, _SUM, choose)
        if part.op == "+":
            piece = _bracketed(piece, choose)
        text += piece if not text else f"{gap}-{gap}{piece[1:]}" if piece.startswith("-") else f"{gap}+{gap}{piece}"
    return text


def _product(term: Term, choose: Choose[Any]) -> str:
    text, before = "", None
    for part in term.parts:
        piece = _within(part, _PRODUCT, choose)
        # Side by side a digit would join the number before it, xyx is a word, and a number before a bracket or letter is a factor.
        word = text[-2:].isalpha() and len(text) > 1 and piece[0].isalpha()
        touching = before is not None and (
            piece[0].isdigit()
            or word
            or piece[0] == text[-1:]
            or piece.startswith(("\\frac", "\\dfrac", "\\tfrac", "{"))
        )
        signs = ["\\cdot ", "\\times "] if touching else ["", " ", "\\cdot ", "\\,"]
        text += piece if not text else choose(signs) + piece
        before = part
    return text


# -- drawing ---------------------------------------------------------------------------------------------------------

SQUARE_FREE = [2, 3, 5, 6, 7, 10, 11, 13]


@st.composite
def constants(draw: st.DrawFn) -> Term:
    """An answer that is one number, as answers to problems are: no operation in it could still be carried out."""
    whole = draw(st.integers(2, 60))
    part = num(Fraction(draw(st.integers(1, 40)), draw(st.sampled_from([3, 7, 8, 9, 11, 12, 25, 100]))))
    root = Term("sqrt", (num(draw(st.sampled_from(SQUARE_FREE))),))
    kinds = [
        num(draw(st.integers(-(10**6), 10**6))), num(draw(st.integers(2, 999))), part, Term("neg", (part,)), times(num(whole), root),
        plus(num(whole), root), minus(num(whole), times(num(3), root)), over(root, num(whole)), over(plus(num(whole), root), num(7)),
        times(num(whole), PI), over(times(num(2 * whole + 1), PI), num(4)), plus(times(num(whole), PI), num(5)), Term("ln", (num(whole),)),
        power(E, num(draw(st.integers(2, 9)))), minus(over(E, num(3)), num(whole)), power(num(2), num(whole + 40)),
        plus(root, Term("sqrt", (num(17),))), times(num(3), Term("ln", (num(whole),))), over(power(PI, num(2)), num(6)), Term("arctan", (num(whole),)),
    ]  # fmt: skip
    return draw(st.sampled_from(kinds))


def expressions(letters: Sequence[str] = ("x", "y")) -> st.SearchStrategy[Term]:
    """A formula in some of the letters."""
    leaves = st.one_of(st.integers(1, 12).map(num), st.sampled_from([name(letter) for letter in letters]))

    def larger(parts: st.SearchStrategy[Term]) -> st.SearchStrategy[Term]:
        return st.one_of(
            st.builds(plus, parts, parts),
            st.builds(minus, parts, parts),
            st.builds(times, parts, parts),
            st.builds(over, parts, parts),
            st.builds(power, parts, st.integers(2, 4).map(num)),
            st.builds(lambda op, part: Term(op, (part,)), st.sampled_from(["sqrt", "sin", "cos", "exp", "ln"]), parts),
        )

    grown = st.recursive(leaves, larger, max_leaves=6)
    return grown.filter(
        lambda term: letters_of(term) != set() and len(term.terms) > 1 and has_no_ones(term) and defined(term)
    )


def letters_of(term: Term) -> set[str]:
    if term.op == "name":
        return {term.parts[0]}
    return set().union(*(letters_of(part) for part in term.terms)) if term.terms else set()


# -- rewriting -------------------------------------------------------------------------------------------------------

Rewrite = Callable[[Term, Choose[Any]], Term | None]
"""An equal term for one whose top it fits, else None."""


def _rationalised(term: Term, choose: Choose[Any]) -> Term | None:
    if (
        term.op == "/"
        and term.parts[1].op == "num"
        and term.parts[0].op == "sqrt"
        and term.parts[0].parts[0].op == "num"
    ):
        inner, bottom = term.parts[0].parts[0], term.parts[1].parts[0]
        return over(num(inner.parts[0] / math.gcd(int(inner.parts[0]), int(bottom))), times(num(bottom / math.gcd(int(inner.parts[0]), int(bottom))), term.parts[0]))  # fmt: skip
    return None


def _under_the_root(term: Term, choose: Choose[Any]) -> Term | None:
    if term.op == "*" and len(term.parts) == 2 and [p.op for p in term.parts] == ["num", "sqrt"]:
        factor, inner = term.parts[0].parts[0], term.parts[1].parts[0]
        if inner.op == "num" and factor > 0:
            return Term("sqrt", (num(factor**2 * inner.parts[0]),))
    return None


def _shuffled(term: Term, choose: Choose[Any]) -> Term | None:
    return term.over(term.parts[::-1]) if term.op in "+*" else None


def _half_of(term: Term, choose: Choose[Any]) -> Term | None:
    if term.op == "/" and term.parts[1].op == "num":
        return times(num(1 / term.parts[1].parts[0]), term.parts[0])
    return None


def _as_power(term: Term, choose: Choose[Any]) -> Term | None:
    return power(term.parts[0], num(Fraction(1, 2))) if term.op == "sqrt" else None


def _distributed(term: Term, choose: Choose[Any]) -> Term | None:
    if term.op == "*" and len(term.parts) == 2 and term.parts[1].op == "+":
        return plus(*(times(term.parts[0], part) for part in term.parts[1].parts))
    return None


def _squared_out(term: Term, choose: Choose[Any]) -> Term | None:
    if term.op == "^" and term.parts[0].op == "+" and term.parts[1] == num(2) and len(term.parts[0].parts) == 2:
        a, b = term.parts[0].parts
        return plus(power(a, num(2)), times(num(2), a, b), power(b, num(2)))
    return None


def _split(term: Term, choose: Choose[Any]) -> Term | None:
    if term.op == "num":
        step = choose([1, 2, 7])
        return plus(num(term.parts[0] - step), num(step))
    return None


def _other_function(term: Term, choose: Choose[Any]) -> Term | None:
    if term.op not in ("sin", "cos", "exp"):
        return None
    inner = term.parts[0]
    if term.op == "exp":
        return over(num(1), Term("exp", (Term("neg", (inner,)),)))
    return Term("cos" if term.op == "sin" else "sin", (minus(over(PI, num(2)), inner),))


def _cancelled(term: Term, choose: Choose[Any]) -> Term | None:
    return minus(plus(term, name("x")), name("x"))


WRITINGS: tuple[Rewrite, ...] = (_shuffled, _half_of, _under_the_root, _rationalised, _as_power)
"""They leave an answer as simple as it was."""
IDENTITIES: tuple[Rewrite, ...] = (*WRITINGS, _distributed, _squared_out, _split, _other_function, _cancelled)
"""They leave its value, and may undo its simplification."""


def rewritten(term: Term, rewrites: Sequence[Rewrite], choose: Choose[Any]) -> Term:
    """The term with one rewriting at any of its nodes; the same where none fits the nodes that were tried."""
    place = choose(list(paths(term)))
    node = at_path(term, place)
    return put(term, place, choose(rewrites)(node, choose) or node)


# -- spoiling --------------------------------------------------------------------------------------------------------


def spoilt(term: Term, choose: Choose[Any]) -> Term:
    """The term with one node changed; mostly that is another term, and `differ` says whether it is."""
    place = choose(list(paths(term)))
    return put(term, place, choose(list(_spoilings(at_path(term, place)))))


def _spoilings(node: Term) -> list[Term]:
    if node.op == "num":
        n = node.parts[0]
        return [num(n + 1), num(n - 1), num(-n), num(n * 10), num(n + 100), *([num(1 / n)] if n else [])]
    if node.op == "name":
        return [name("y" if node.parts[0] == "x" else "x"), num(1), plus(node, num(1)), Term("neg", (node,))]
    if node.op in ("pi", "e"):
        return [E if node.op == "pi" else PI, num(3), Term("neg", (node,))]
    swapped = {"+": "*", "*": "+", "sin": "cos", "cos": "sin", "ln": "exp", "exp": "ln", "sqrt": "neg", "neg": "sqrt"}
    found = [*node.parts[:1], Term("neg", (node,)), plus(node, num(1)), times(num(2), node)]
    if node.op in swapped:
        found.append(Term(swapped[node.op], node.parts))
    if node.op in "/^":
        found.append(node.over(node.parts[::-1]))
    return found


Path = tuple[int, ...]


def paths(term: Term) -> list[Path]:
    """Where its nodes are; the whole comes first."""
    return [(), *((i, *rest) for i, part in enumerate(term.terms) for rest in paths(part))]


def at_path(term: Term, path: Path) -> Term:
    for place in path:
        term = term.parts[place]
    return term


def put(term: Term, path: Path, node: Term) -> Term:
    """The term with another node at the path."""
    if not path:
        return node
    parts = list(term.parts)
    parts[path[0]] = put(parts[path[0]], path[1:], node)
    return term.over(parts)
