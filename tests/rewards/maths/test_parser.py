"""Syntax trees: precedence, brackets, words around values, sets, matrices, and what is refused."""

from fractions import Fraction

import pytest

from rewards.maths.limits import UnreadableError
from rewards.maths.parser import parse
from rewards.maths.syntax import Group, Matrix, Node, Number, Op, Quantity, Relation, SetBuilder, SetOp, Symbol, Words


def n(value: int) -> Number:
    return Number(Fraction(value))


x, y = Symbol("x"), Symbol("y")


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("a+b*c", "a+(b*c)"), ("a/b/c", "(a/b)/c"), ("a/bc", "(a/b)c"), ("-x^2", "-(x^2)"), ("2x^3", "2(x^3)"),
        ("a^b^c", "a^{b^{c}}"),
        ("x^2y", "(x^2)y"), ("x^12", "x^{12}"), (r"\frac12x", r"\frac{1}{2}x"), (r"\sqrt2x", r"\sqrt{2}x"),
        (r"\sqrt12", r"\sqrt{1}2"), ("√12", r"\sqrt{12}"), ("sqrt12", r"\sqrt{12}"), (r"\sqrt[3]{x}", "x^{1/3}"),
        (r"\sin x y", r"\sin(xy)"), (r"\sin x + 1", r"\sin(x) + 1"), (r"\sin x \cos y", r"\sin(x)\cos(y)"),
        (r"\sin^2 x", r"(\sin x)^2"), (r"\sin^{-1} x", r"\arcsin(x)"),
        (r"\log_2 x", r"\log_{2}(x)"), ("log10(x)", r"\log_{10}(x)"), (r"\ln x^2", r"\ln(x^2)"), ("sinx", r"\sin x"),
        ("x!", "(x)!"), ("2x!", "2(x!)"), ("n!/k!", "(n!)/(k!)"),
        (r"\left(x\right)", "x"), (r"\overline{AB}", "AB"), (r"\vec{v}", "v"), (r"\mathbf{v}", "v"),
        (r"x \, y", "xy"), (r"x \times y", "xy"), (r"\hat{\imath}", "i"),
(r"|x||y|", r"\left|x\right|\left|y\right|"), (r"2|x|", r"2\lvert x\rvert"), ("|x|y", "|x|*y"),
(r"\max\{a,b\}", "max(a, b)"), ("3 (mod 7)", r"3 \pmod{7}"), ("3 to 2", "3:2"),
        (r"\begin{bmatrix}1&2\end{bmatrix}", r"\begin{pmatrix}1&2\end{pmatrix}"), (r"\langle 1,2\rangle", "(1,2)"),
        (r"x<-1 \cup x>1", r"x<-1 \text{ or } x>1"), ("x_{12}", "x_12"),
        (r"{n \choose k}", r"\binom{n}{k}"), (r"{a\over b}", r"\frac{a}{b}"), (r"{{m+n\pi}\over p}", r"\frac{m+n\pi}{p}"),
        (r"n(n+1) \over 2", r"\frac{n(n+1)}{2}"), (r"3{1\over 2}", r"3\frac12"), (r"3{5\over 2}", r"3\cdot\frac52"),
        (r"1+\cdots+n", r"1+\ldots+n"), (r"0.333\cdots", r"0.\overline{3}"), (r"B^{\prime}", "B'"), (r"B^{\prime\prime}", "B''"),
        (r"x \not= 2", r"x \neq 2"), (r"\mathcal{S}_{n}", r"\mathcal S_n"), (r"\bold{v}", "v"), (r"\overarc{AB}", "AB"),
        (r"24 \hspace{.6mm} \mathrm{cm}^2", r"24\text{ cm}^2"), (r"\phantom{-}1 \allowbreak + x", "1+x"),
    ],
)  # fmt: skip
def test_two_ways_to_write_one_tree(text, same) -> None:
    assert parse(text) == parse(same)


def test_a_prime_is_part_of_a_name() -> None:
    assert parse("x'") == Symbol("x'") != parse("x")


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("x = 3", Relation((x, n(3)), ("=",))),
        ("1 < x <= 3", Relation((n(1), x, n(3)), ("<", "<="))),
        ("1, 2", Group("", (n(1), n(2)))),
        ("1 or 2", Group("", (n(1), n(2)), joined_by_or=True)),
        ("(1, 2)", Group("()", (n(1), n(2)))),
        ("[1, 2)", Group("[)", (n(1), n(2)))),
        (r"\{1, 2\}", Group("{}", (n(1), n(2)))),
        (r"\emptyset", Group("{}", ())),
        (r"A \cup B", SetOp("union", Symbol("A"), Symbol("B"))),
        (r"\mathbb{R} - \{0\}", SetOp("minus", Symbol("R"), Group("{}", (n(0),)))),
        (r"\{x \mid x > 1\}", SetBuilder(x, Relation((x, n(1)), (">",)))),
        (r"\{x \in \mathbb{R} : x > 1\}", SetBuilder(Relation((x, Symbol("R")), ("in",)), Relation((x, n(1)), (">",)))),
        (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", Matrix(((n(1),), (n(2),)))),
        ("5 cm", Quantity(n(5), "centimeter")),
        (r"5\text{ cm}^2", Quantity(n(5), "square centimeter")),
        (r"5\text{ m/s}^2", Quantity(n(5), "meter per square second")),
        ("60 km/h", Quantity(n(60), "kilometer per hour")),
        ("60 mph", Quantity(n(60), "mile per hour")),
        ("5 apples", Quantity(n(5), "~apples")),
        (r"\text{Monday}", Words("monday")),
        ("no solution", Group("{}", ())),
        ("all real numbers", Symbol("R")),
        (r"\mathbb{Z}^+", Symbol("Z^+")),
        ("> 3", Relation((Symbol("?"), n(3)), (">",))),
        ("1:2:3", Op("ratio", (n(1), n(2), n(3)))),
        (r"\bar{z}", Op("conj", (Symbol("z"),))),
        (r"x = 1 \text{ where } x \text{ is small}", Relation((x, n(1)), ("=",))),
        ("f(x) = 1", Relation((Op("call", (Symbol("f"), x)), n(1)), ("=",))),
        (r"P(X > 2) = 1", Relation((Op("call", (Symbol("P"), Words("X > 2"))), n(1)), ("=",))),
        (r"\begin{cases} x = 1 \\ y = 2 \end{cases}", Group("", (Relation((x, n(1)), ("=",)), Relation((y, n(2)), ("=",))))),
        (r"x = k (k \in \mathbb{Z})", Group("", (Relation((x, Symbol("k")), ("=",)), Relation((Symbol("k"), Symbol("Z")), ("in",))))),
    ],
)  # fmt: skip
def test_trees(text, tree: Node) -> None:
    assert parse(text) == tree


@pytest.mark.parametrize(
    "text",
    [
        "", "1 +", "* 2", "(1", "1)", r"\frac{1}", r"\sqrt", "x^", "1 2", r"\int_0^1 x", r"\sum_{k=1}^n k",
        r"\begin{pmatrix} 1 & 2 \\ 3 \end{pmatrix}",
        r"\begin{pmatrix} 1", r"\begin{vmatrix} 1 & 2 \\ 3 & 4 \end{vmatrix}", "maybe 5", "5 or maybe 6", "not 5",
        "5 at most", "between 5 and 6", "5 May", "min(1, 2)", "(1]", "__import__('os')",
        "\x00", "x #", r"\unknown{x}",
    ],
)  # fmt: skip
def test_what_is_refused(text) -> None:
    with pytest.raises(UnreadableError):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 60 + "x" + ")" * 60, "{" * 60 + "x" + "}" * 60, r"\sqrt{" * 60 + "x" + "}" * 60, "-" * 600, "|" * 500,
        "x^" * 250 + "x", r"\frac" * 200, r"\sin" * 200 + "x",
    ],
)  # fmt: skip
def test_nesting_is_bounded(text) -> None:
    with pytest.raises(UnreadableError):
        parse(text)
