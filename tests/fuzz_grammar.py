"""Mathematics to fuzz the grader with: texts whose value is known, and texts that look like LaTeX.

An expression is drawn together with its exact value (a fraction, or a polynomial as exponents -> coefficient) and written
in one of many ways, so that the right verdict on any two of them is known without another grader.
"""

import json
import random
from fractions import Fraction
from pathlib import Path

from hypothesis import strategies as st

DATA = Path(__file__).parents[2] / "shared" / "data" / "rewards"
Polynomial = dict[tuple[int, ...], Fraction]
NAMES = ("x", "y")
OWN_GOLDS = [
    "42", "-3", "1,234", "0.5", r"\frac{14}{3}", r"-\dfrac{3}{7}", "p-q", r"2\sqrt{3}", r"\frac{3\sqrt{3}}{4}", r"\sqrt[3]{2}", r"90^\circ", "50\\%", r"\$1.50",
    "(1,2)", r"\left(-\infty, 3\right]", r"(0,1)\cup(2,3)", r"\{1,2,3\}", "1, 2, 3", r"x^2-2x+1", r"(x-1)^2", "x=5", r"x \le 3", r"-1<x<1", r"y=2x+1", r"\text{even}",
    r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", "3+4i", r"e^{i\pi}", r"\frac{\pi}{6}+k\pi", r"\binom{10}{3}", "5!", r"\log_2 8", r"\sin 30^\circ", "101_2", "2:3", "12:30", "B", r"f(x)=x^2",
    r"\int_0^1 x\,dx", r"\infty", r"10\text{ cm}", r"\pm 2", r"3 \frac12", r"1.2\times10^{-3}", r"0.\overline{3}", r"\emptyset", r"\mathbb{R}", r"|x|", r"\lfloor 2.5 \rfloor", "a \\mid b",
]  # fmt: skip


def golds() -> list[str]:
    """Golds of the labelled sets where they are there, and ours."""
    found = list(OWN_GOLDS)
    for file in sorted(DATA.glob("*.jsonl")):
        if file.stem != "hostile":
            rows = map(json.loads, file.read_text(encoding="utf-8").splitlines())
            found += sorted({row["gold"] for row in rows if len(row["gold"]) < 200})[:150]
    return found


# -- numbers and polynomials of a known value ------------------------------------------------------------------------


@st.composite
def numbers(draw: st.DrawFn) -> tuple[str, Fraction]:
    """A number as people write it, without rounding: its text and its value."""
    value = Fraction(
        draw(st.integers(-(10**6), 10**6)), draw(st.sampled_from([1, 1, 1, 2, 3, 4, 7, 8, 10, 25, 99, 1000]))
    )
    top, bottom, sign = abs(value.numerator), value.denominator, "-" if value < 0 else ""
    ways = [
        f"{sign}\\frac{{{top}}}{{{bottom}}}",
        f"{sign}{top}/{bottom}",
        f"\\dfrac{{{sign}{top}}}{{{bottom}}}",
        f"\\frac{{{2 * top}}}{{{sign}{2 * bottom}}}",
    ]
    if bottom == 1:
        ways += [f"{sign}{top}", f"{sign}{top:,}", f"{sign}{top}.0", f"{sign}0{top}" if top else "0"]
    elif top > bottom:
        ways += [
            f"{sign}{top // bottom}\\frac{{{top % bottom}}}{{{bottom}}}",
            f"{sign}{top // bottom} {top % bottom}/{bottom}",
        ]
    return draw(st.sampled_from(ways)), value


def expressions(names: tuple[str, ...] = NAMES) -> st.SearchStrategy[tuple[str, Polynomial]]:
    """A sum, product or power, written out: its text (safe to stand anywhere as a factor) and its polynomial."""
    zero = (0,) * len(names)
    unit = [tuple(int(i == j) for j in range(len(names))) for i in range(len(names))]
    leaves = st.one_of(
        st.integers(0, 30).map(lambda n: (str(n), _clean({zero: Fraction(n)}))),
        st.tuples(st.integers(1, 9), st.integers(1, 9)).map(
            lambda p: (f"\\frac{{{p[0]}}}{{{p[1]}}}", {zero: Fraction(*p)})
        ),
        *(st.just((name, {unit[i]: Fraction(1)})) for i, name in enumerate(names)),
    )
    return st.recursive(leaves, _larger, max_leaves=8)


def _larger(parts: st.SearchStrategy[tuple[str, Polynomial]]) -> st.SearchStrategy[tuple[str, Polynomial]]:
    brackets = st.sampled_from([("(", ")"), ("\\left(", "\\right)"), ("{(", ")}"), ("[", "]")])
    times = st.sampled_from(["*", "\\cdot ", "\\times ", " ", ""])

    def add(
        a: tuple[str, Polynomial], b: tuple[str, Polynomial], sign: str, b_: tuple[str, str]
    ) -> tuple[str, Polynomial]:
        return f"{b_[0]}{a[0]} {sign} {b[0]}{b_[1]}", _sum(a[1], b[1], 1 if sign == "+" else -1)

    def multiply(a: tuple[str, Polynomial], b: tuple[str, Polynomial], sign: str) -> tuple[str, Polynomial]:
        # Two numerals side by side would be one number, or a mixed one.
        return (f"({a[0]}){sign}({b[0]})" if sign in (" ", "") else f"({a[0]}{sign}{b[0]})"), _product(a[1], b[1])

    def power(a: tuple[str, Polynomial], n: int, braces: bool) -> tuple[str, Polynomial]:
        result: Polynomial = {(0,) * len(next(iter(a[1]), (0, 0))): Fraction(1)}
        for _ in range(n):
            result = _product(result, a[1])
        return f"(({a[0]})^{f'{{{n}}}' if braces else n})", result

    def negate(a: tuple[str, Polynomial]) -> tuple[str, Polynomial]:
        return f"(-{a[0]})", {key: -value for key, value in a[1].items()}

    return st.one_of(
        st.builds(add, parts, parts, st.sampled_from("+-"), brackets),
        st.builds(multiply, parts, parts, times),
        st.builds(power, parts, st.integers(1, 3), st.booleans()),
        st.builds(negate, parts),
    )


def _clean(polynomial: Polynomial) -> Polynomial:
    return {key: value for key, value in polynomial.items() if value}


def _sum(a: Polynomial, b: Polynomial, sign: int) -> Polynomial:
    return _clean({key: a.get(key, Fraction(0)) + sign * b.get(key, Fraction(0)) for key in {**a, **b}})


def _product(a: Polynomial, b: Polynomial) -> Polynomial:
    result: Polynomial = {}
    for i, p in a.items():
        for j, q in b.items():
            key = tuple(m + n for m, n in zip(i, j, strict=True))
            result[key] = result.get(key, Fraction(0)) + p * q
    return _clean(result)


def written(polynomial: Polynomial, seed: int = 0) -> str:
    """The polynomial as a sum of monomials, in an order that depends on the seed."""
    terms = sorted(polynomial.items())
    random.Random(seed).shuffle(terms)
    text = "".join(_term(powers, value) for powers, value in terms)
    return text.removeprefix("+") or "0"


def _term(powers: tuple[int, ...], value: Fraction) -> str:
    sign, size = ("-" if value < 0 else "+"), abs(value)
    number = str(size.numerator) if size.denominator == 1 else f"\\frac{{{size.numerator}}}{{{size.denominator}}}"
    letters = "".join(name if n == 1 else f"{name}^{{{n}}}" for name, n in zip(NAMES, powers, strict=False) if n)
    return sign + (letters if letters and size == 1 else number + letters)


# -- texts that look like LaTeX --------------------------------------------------------------------------------------

PIECES = (
    r"\frac \dfrac \sqrt \sqrt[3] \left \right \text \mathrm \pi \infty \cdot \times \div \pm \mp \le \ge < > = \neq \in \cup \cap \setminus \{ \} { } ( ) [ ] , ; : | ^ _ + - * / ! "
    r"\% \$ ^\circ \sin \cos \tan \log \ln \exp \binom \lfloor \rfloor \lceil \rceil \sum \prod \int \lim \to \mod \gcd \begin{pmatrix} \end{pmatrix} \begin{cases} \end{cases} & \\ \quad \, ~ "
    r"\boxed{ \boxed \fbox{ \mathbb{R} \emptyset \overline \ldots \cdots ... . ' \prime \operatorname \displaystyle \limits x y n k i e a b 0 1 2 3 7 10 42 100 0.5 1e5 99999999 10^{99} "
    r"and or not for all where if cm dollars percent degrees million the answer is #### $ $$ \( \) \[ \] <think> </think> <answer> </answer> ** ` True None inf nan"
).split(" ")  # fmt: skip


def pieces(largest: int = 25) -> st.SearchStrategy[str]:
    """Any pieces of LaTeX in any order."""
    return st.lists(st.one_of(st.sampled_from(PIECES), st.just(" "), st.text(max_size=2)), max_size=largest).map(
        "".join
    )


@st.composite
def mutated(draw: st.DrawFn, originals: list[str]) -> str:
    """A gold with a few changes: pieces put in, taken out, doubled, or a bit of another gold."""
    text = draw(st.sampled_from(originals))
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 6)))
        other = draw(
            st.one_of(st.sampled_from(PIECES), st.just(text[start:end] * 2), st.just(""), st.sampled_from(originals))
        )
        text = text[:start] + other + text[end:]
    return text[:400]
