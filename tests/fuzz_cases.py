"""Cases to fuzz the grader with: a gold, an answer, and whether it is right, known by construction or by exact evaluation.

Four kinds, each a strategy in `KINDS`:

- `equivalents`: the gold in other words, by identities, other orders, other names; right.
- `near_misses`: the gold with one node, border or element changed, and shown to be something else; wrong.
- `hacks`: what nobody has to know the answer for: calculations left to the grader, universal answers, unsolved equations,
  polynomials through small cases, chains, echoes; wrong.
- `hostile`: texts of any size; any verdict, but a verdict, and in time.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from fuzz_grammar import golds, mutated, pieces
from fuzz_terms import (
    IDENTITIES,
    WRITINGS,
    constants,
    defined,
    differ,
    expressions,
    name,
    num,
    plus,
    power,
    rewritten,
    spoilt,
    times,
    write,
)
from hypothesis import assume
from hypothesis import strategies as st


@dataclass(frozen=True)
class Case:
    """One thing to grade.

    Attributes:
        kind, topic: what it tries.
        right: what the verdict must be; None = any.
        whole: the answer is a response as it stands, without tags around it.
        identical: asks only whether the two are equal (`rewards.equivalent`), whatever their form.
    """

    kind: str
    topic: str
    gold: str
    answer: str
    right: bool | None
    question: str | None = None
    whole: bool = False
    identical: bool = False

    @property
    def response(self) -> str:
        return self.answer if self.whole else f"<think>so</think><answer>{self.answer}</answer>"

    @classmethod
    def of(cls, row: dict[str, Any]) -> "Case":
        """From a line of a file of cases."""
        whole = not row["tagged"]
        answer = row["response"] if whole else row["response"].partition("<answer>")[2].removesuffix("</answer>")
        more = {"question": row.get("question"), "whole": whole, "identical": row.get("identical", False)}
        return cls(row["kind"], row["topic"], row["gold"], answer, row["label"], **more)

    def line(self) -> str:
        """As a line of a file of cases, which `rlvr leaderboard` reads, too."""
        row = {
            "kind": self.kind,
            "topic": self.topic,
            "gold": self.gold,
            "response": self.response,
            "tagged": not self.whole,
        }
        row |= {"question": self.question, "label": self.right}
        return json.dumps(row | ({"identical": True} if self.identical else {}), ensure_ascii=True)


Draw = st.DrawFn
Maker = Callable[..., Case]


def _choose(draw: Draw) -> Callable[[Sequence[Any]], Any]:
    return lambda ways: ways[0] if len(ways) == 1 else draw(st.sampled_from(ways))


# -- terms: numbers and formulas -------------------------------------------------------------------------------------

formulas = expressions(("x", "y"))
of_one_letter = expressions(("x",))


@st.composite
def term_again(draw: Draw) -> Case:
    """A number or formula in other words of the same kind."""
    topic, gold = draw(st.one_of(st.tuples(st.just("number"), constants()), st.tuples(st.just("formula"), formulas)))
    answer, choose = gold, _choose(draw)
    for _ in range(draw(st.integers(1, 3))):
        answer = rewritten(answer, WRITINGS, choose)
    return Case("equivalents", topic, write(gold), write(answer, choose), True)


@st.composite
def term_by_identity(draw: Draw) -> Case:
    """A formula after a few identities, which may have made it longer: equal, in whatever form."""
    gold = draw(of_one_letter)
    answer, choose = gold, _choose(draw)
    for _ in range(draw(st.integers(1, 4))):
        answer = rewritten(answer, IDENTITIES, choose)
    return Case("equivalents", "identity", write(gold), write(answer, choose), True, identical=True)


@st.composite
def term_missed(draw: Draw) -> Case:
    """A number or formula with one node changed."""
    topic, gold = draw(st.one_of(st.tuples(st.just("number"), constants()), st.tuples(st.just("formula"), formulas)))
    choose = _choose(draw)
    answer = spoilt(gold, choose)
    assume(defined(answer) and differ(gold, answer))
    for _ in range(draw(st.integers(0, 2))):
        answer = rewritten(answer, WRITINGS, choose)
    return Case("near_misses", topic, write(gold), write(answer, choose), False)


# -- what is made of several numbers ---------------------------------------------------------------------------------

small = st.integers(-20, 40)
several = st.lists(small, min_size=2, max_size=4, unique=True)


def _joined(values: Sequence[Any], choose: Any) -> str:
    return choose([", ", ","]).join(map(str, values))


@st.composite
def collection(draw: Draw, right: bool) -> Case:
    """A set, a list of solutions, or a tuple: elements in another order, one changed, one more, one less."""
    choose, values = _choose(draw), draw(several)
    kind = choose(["set", "solutions", "tuple"])
    other = list(values)
    if right:
        other = other if kind == "tuple" else draw(st.permutations(values))
    else:
        spoil = choose(["change", "more", "fewer", *(["swap"] if kind == "tuple" else [])])
        if spoil == "change":
            other[0] += choose([1, -1, 100])
        elif spoil == "more":
            other.append(max(values) + choose([1, 3]))
        elif spoil == "fewer":
            other.pop()
        else:
            other[:2] = other[1::-1]
        assume(other != values if kind == "tuple" else set(other) != set(values))
    dress = {"set": ("\\{%s\\}", "\\left\\{%s\\right\\}"), "tuple": ("(%s)", "\\left(%s\\right)"), "solutions": ("%s",)}
    gold = dress[kind][0] % ", ".join(map(str, values))
    if kind == "solutions" and right and draw(st.booleans()):
        answer = choose([" or ", " \\text{ or } "]).join(f"x={v}" for v in other)
        gold = ", ".join(f"x={v}" for v in values)
    else:
        answer = choose(dress[kind]) % _joined(other, choose)
    return Case("equivalents" if right else "near_misses", kind, gold, answer, right)


@st.composite
def interval(draw: Draw, right: bool) -> Case:
    """An interval, perhaps as an inequality; a border moved, opened or closed."""
    choose = _choose(draw)
    low, width = draw(small), draw(st.integers(1, 30))
    ends = (low, low + width, choose("(["), choose(")]"))
    other = list(ends)
    if not right:
        spoil = choose(["left", "right", "moved", "shifted"])
        if spoil == "left":
            other[2] = "[" if ends[2] == "(" else "("
        elif spoil == "right":
            other[3] = "]" if ends[3] == ")" else ")"
        elif spoil == "moved":
            other[1] += 1
        else:
            other[0] -= 1
    gold = "{2}{0}, {1}{3}".format(*ends)
    signs = {"(": "<", "[": "\\le", ")": "<", "]": "\\le"}
    ways = ["{2}{0},{1}{3}".format(*other), f"{other[0]} {signs[other[2]]} x {signs[other[3]]} {other[1]}"]
    return Case("equivalents" if right else "near_misses", "interval", gold, choose(ways), right)


@st.composite
def family(draw: Draw, right: bool) -> Case:
    """All a + bk for whole k, over whole numbers or multiples of pi: shifted by whole steps, turned, renamed; or another set."""
    choose, unit = _choose(draw), draw(st.sampled_from(["", "\\pi"]))
    step, start = draw(st.integers(2, 9)), draw(st.integers(0, 12))
    if right:
        other_step, other_start = step * choose([1, -1]), start + step * draw(st.integers(-3, 3))
    else:
        other_step, other_start = draw(st.integers(1, 18)), draw(st.integers(0, 12))
        assume(other_step != step or (other_start - start) % step)
    letter = choose(["k", "n", "m"])
    gold = f"x={_line(start, step, unit, 'k')}, k \\in \\mathbb{{Z}}"
    answer = f"{choose(['x=', ''])}{_line(other_start, other_step, unit, letter)}, {letter} \\in \\mathbb{{Z}}"
    return Case("equivalents" if right else "near_misses", "family", gold, answer, right)


def _line(start: int, step: int, unit: str, letter: str) -> str:
    """start + step * letter, as people write it."""

    def multiple(n: int, of: str) -> str:
        return str(n) if not of else f"{'' if n == 1 else '-' if n == -1 else n}{of}"

    moving = multiple(step, f"{unit}{' ' if unit else ''}{letter}")
    return moving if not start else f"{multiple(start, unit)}{'' if step < 0 else '+'}{moving}"


@st.composite
def restricted_family(draw: Draw) -> Case:
    """A condition that leaves elements out, or asks for more than whole numbers."""
    choose, step = _choose(draw), draw(st.integers(2, 9))
    condition = choose(
        [
            f"k \\ge {draw(st.integers(1, 1000))}",
            "k > 5",
            "k \\in \\{1,2,3\\}",
            "k \\in \\mathbb{R}",
            "k \\in \\mathbb{Q}",
        ]
    )
    return Case("near_misses", "condition", f"{step}k, k \\in \\mathbb{{Z}}", f"{step}k, {condition}", False)


@st.composite
def residue(draw: Draw, right: bool) -> Case:
    """x = a mod m: another representative of the class, another class, another modulus."""
    choose, modulus = _choose(draw), draw(st.integers(3, 30))
    start = draw(st.integers(0, modulus - 1))
    other, other_modulus = start + modulus * (draw(st.integers(0, 3)) if right else 0), modulus
    if not right:
        if choose([True, False]):
            other_modulus += choose([1, 2, modulus])
        else:
            other += draw(st.integers(1, modulus - 1))
    gold = f"x \\equiv {start} \\pmod{{{modulus}}}"
    answer = choose(["x \\equiv {} \\pmod{{{}}}", "{} \\pmod{{{}}}"]).format(other, other_modulus)
    return Case("equivalents" if right else "near_misses", "residue", gold, answer, right)


@st.composite
def labelled(draw: Draw, right: bool) -> Case:
    """Values that belong to names or parts: in another order with their names, or exchanged."""
    choose = _choose(draw)
    a, b = draw(st.lists(small, min_size=2, max_size=2, unique=True))
    first, second = choose(
        [("maximum", "minimum"), ("length", "width"), ("boys", "girls"), ("slope", "intercept"), ("x=", "y=")]
    )
    if right:
        answer = choose([f"{first} {a}, {second} {b}", f"{first} ${a}$, {second} ${b}$"])
    else:
        answer = choose([f"{first} {b}, {second} {a}", f"{second} {a}, {first} {b}", f"{first} {a}, {second} {b + 1}"])
    gold = f"{first} {a}, {second} {b}"
    return Case("equivalents" if right else "near_misses", "label", gold, answer, right)


@st.composite
def parts(draw: Draw, right: bool) -> Case:
    """(a) ... (b) ...: parts exchanged, or taken for factors."""
    choose = _choose(draw)
    a, b = draw(st.lists(st.integers(2, 40), min_size=2, max_size=2, unique=True))
    marks = choose([("(a)", "(b)"), ("(i)", "(ii)"), ("(1)", "(2)")])
    gold = f"{marks[0]} {a} {marks[1]} {b}"
    if right:
        return Case(
            "equivalents",
            "parts",
            gold,
            choose([f"{marks[0]} {a}, {marks[1]} {b}", f"{marks[0]} ${a}$ {marks[1]} ${b}$"]),
            True,
        )
    answer = choose(
        [f"{marks[0]} {b} {marks[1]} {a}", f"{a * b}ab", str(a * b), str(2 * a * b), f"{marks[0]} {a}", str(a)]
    )
    return Case("near_misses", "parts", gold, answer, False)


@st.composite
def matrix(draw: Draw, right: bool) -> Case:
    """A matrix in other brackets; an entry changed, or transposed."""
    choose = _choose(draw)
    rows = [[draw(small) for _ in range(2)] for _ in range(draw(st.integers(2, 3)))]
    other = [list(row) for row in rows]
    if not right:
        if choose([True, False]):
            other[0][0] += 1
        else:
            other = [list(column) for column in zip(*rows, strict=True)]
        assume(other != rows)

    def written(entries: list[list[int]], kind: str) -> str:
        return f"\\begin{{{kind}}}" + "\\\\".join("&".join(map(str, row)) for row in entries) + f"\\end{{{kind}}}"

    answer = written(other, choose(["pmatrix", "bmatrix"]))
    return Case("equivalents" if right else "near_misses", "matrix", written(rows, "pmatrix"), answer, right)


@st.composite
def ratio(draw: Draw, right: bool) -> Case:
    """a:b in lowest terms, also where it could be a time of day."""
    choose = _choose(draw)
    a, b = draw(st.integers(1, 23)), draw(st.integers(1, 59))
    assume(math.gcd(a, b) == 1)
    times_ = draw(st.integers(1, 4))
    c, d = (a * times_, b * times_) if right else choose([(b, a), (a + 1, b), (a * 5, b), (a, b + 1)])
    assume((a * d == b * c) == right)
    return Case(
        "equivalents" if right else "near_misses", "ratio", f"{a}:{b}", choose([f"{c}:{d}", f"${c}:{d}$"]), right
    )


# -- hacks -----------------------------------------------------------------------------------------------------------


@st.composite
def left_to_the_grader(draw: Draw) -> Case:
    """A calculation whose value is the gold, not carried out."""
    choose = _choose(draw)
    n, m, gap = draw(st.integers(11, 99)), draw(st.integers(101, 999)), draw(st.integers(2, 9))
    base, exponent = draw(st.integers(2, 30)), draw(st.integers(20, 3000))
    gcd, lcm = math.gcd(n * gap, m * gap), math.lcm(n, m)
    sums = sum(range(gap, n + 1))
    ways = [
        (pow(base, exponent, m), f"{base}^{{{exponent}}} \\bmod {m}"), (gcd, f"\\gcd({n * gap},{m * gap})"), (lcm, f"\\operatorname{{lcm}}({n},{m})"),
        (m * gap // n, f"\\left\\lfloor \\frac{{{m * gap}}}{{{n}}} \\right\\rfloor"), (-(-m * gap // n), f"\\lceil {m * gap}/{n} \\rceil"),
        (sums, f"\\sum_{{i={gap}}}^{{{n}}} i"), (math.factorial(gap + 1), f"\\prod_{{i=1}}^{{{gap + 1}}} i"), (n * m, f"{n}*{m}"), (n * m, f"{n} \\cdot {m}"),
        (n + gap, f"\\max({n}+{gap}, {n})"), (n, f"\\min({n}, {m})"), (m, f"\\lim_{{x \\to {m}}} x"), (n * m, f"\\int_0^{{{m}}} {n} \\, dx"), (m % n, f"{m} \\bmod {n}"),
        (math.isqrt(m), f"\\lfloor\\sqrt{{{m}}}\\rfloor"), (sum(i * i for i in range(1, n + 1)), f"\\sum_{{k=1}}^{{{n}}} k^2"), (5 * gap, f"|{3 * gap}+{4 * gap}i|"),
    ]  # fmt: skip
    gold, answer = choose(ways)
    return Case("hacks", "calculation", str(gold), choose([answer, f"${answer}$", f"x={answer}"]), False)


UNIVERSAL = [
    "k, k\\in\\mathbb{Z}", "n, n \\in \\mathbb{N}", "m, m \\in \\mathbb{Z}", "x, x \\in \\mathbb{R}", "t, t\\in\\mathbb{R}", "x \\in \\mathbb{R}", "x=x", "\\mathbb{Z}", "n+k, k\\in\\mathbb{Z}",
    "\\{k : k \\in \\mathbb{Z}\\}", "C", "x", "f(x)", "\\text{any integer}", "k \\text{ for some integer } k", "a+bk, k\\in\\mathbb{Z}", "c, c \\in \\mathbb{C}", "-\\infty<x<\\infty",
]  # fmt: skip


@st.composite
def universal(draw: Draw) -> Case:
    """What would fit any gold."""
    n = draw(st.integers(2, 300))
    gold = draw(st.sampled_from([str(n), "A", "B", "(D)", "\\textbf{(E)}", f"n+{n}", f"{n}-n", f"a_n={n}n", f"f(x)=x+{n}", f"x={n}", f"2k+{n}, k\\in\\mathbb{{Z}}", f"{n}x", f"\\frac{{{n}}}{{7}}", f"({n}, 3)"]))  # fmt: skip
    return Case("hacks", "universal", gold, draw(st.sampled_from(UNIVERSAL)), False)


SEQUENCES: dict[str, Callable[[int], int]] = {
    "2^n": lambda n: 2**n, "2^n-1": lambda n: 2**n - 1, "3^{n}": lambda n: 3**n, "n!": math.factorial, "\\binom{2n}{n}": lambda n: math.comb(2 * n, n), "2^{n-1}": lambda n: 2 ** (n - 1),
    "n \\cdot 2^n": lambda n: n * 2**n, "3^n-2^n": lambda n: 3**n - 2**n, "(n+1)!": lambda n: math.factorial(n + 1), "n^n": lambda n: n**n, "\\frac{2^n+(-1)^n}{3}": lambda n: (2**n + (-1) ** n) // 3,
}  # fmt: skip


@st.composite
def interpolated(draw: Draw) -> Case:
    """A polynomial that has the gold's values at the first few whole numbers and not later."""
    gold = draw(st.sampled_from(sorted(SEQUENCES)))
    first, count = draw(st.integers(0, 2)), draw(st.integers(3, 6))
    places = range(first, first + count)
    if first == 0 and gold in ("2^{n-1}", "n^n"):
        places = range(1, count + 1)
    term = _through([(n, SEQUENCES[gold](n)) for n in places])
    if draw(st.booleans()):
        answer = write(term)
    else:
        answer = gold + "+" + "".join(f"(n-{n})" if n else "n" for n in places)
    return Case("hacks", "interpolation", gold, answer + draw(st.sampled_from(["", "+0\\sin n"])), False)


def _through(points: Sequence[tuple[int, int]]) -> Any:
    """Newton's polynomial in `n`, as a sum of powers."""
    xs = [Fraction(x) for x, _ in points]
    table = [Fraction(y) for _, y in points]
    for level in range(1, len(points)):
        for i in range(len(points) - 1, level - 1, -1):
            table[i] = (table[i] - table[i - 1]) / (xs[i] - xs[i - level])
    coefficients = [Fraction(0)]
    for x, d in zip(reversed(xs), reversed(table), strict=True):
        moved = [Fraction(0), *coefficients]
        for i, c in enumerate(coefficients):
            moved[i] -= x * c
        moved[0] += d
        coefficients = moved
    found = [(i, c) for i, c in enumerate(coefficients) if c]
    ones = [num(c) if i == 0 else times(num(c), power(name("n"), num(i))) for i, c in reversed(found)]
    return plus(*ones) if len(ones) > 1 else ones[0]


@st.composite
def unsolved(draw: Draw) -> Case:
    """The equation or inequality of the question, or what follows from it in a line, where its solution is asked for."""
    choose, root = _choose(draw), draw(st.integers(2, 40))
    a, b = draw(st.integers(2, 9)), draw(st.integers(1, 30))
    if draw(st.booleans()):
        asked = f"{a}x+{b}={a * root + b}"
        left, extra = choose([(asked, 0), (f"{2 * a}x+{2 * b}={2 * (a * root + b)}", 0), (f"{a}x-{a * root}=0", 0), (f"{a}x={a * root}", 0), (f"x^2={root}x", 1), (f"x^2-{root}x=0", 1)])  # fmt: skip
        question = None if extra else f"Solve ${asked}$."
        return Case("hacks", "unsolved", choose([f"x={root}", str(root)]), left, False, question)
    asked = f"{a}x+{b}<{a * root + b}"
    left = choose([asked, f"{a * root + b}>{a}x+{b}", f"{a}x<{a * root}", f"{a}x-{a * root}<0"])
    return Case("hacks", "unsolved", choose([f"x<{root}", f"(-\\infty,{root})"]), left, False, f"Solve ${asked}$.")


@st.composite
def chained(draw: Draw) -> Case:
    """Equations that are not true, with the gold at one of their ends."""
    choose, n = _choose(draw), draw(st.integers(2, 500))
    other = draw(st.integers(2, 500))
    assume(other not in (n, -n))
    wrong = choose([str(other), "\\pi", "\\sqrt2", "\\sqrt2=\\pi", f"{other}+1", "x^2", f"2 \\cdot {other}"])
    assume(wrong != f"{other}+1" or other + 1 != n)
    assume(not wrong.startswith("2 ") or 2 * other != n)
    return Case(
        "hacks",
        "chain",
        str(n),
        choose([f"{wrong}={n}", f"{n}={wrong}", f"x={wrong}={n}"]) if wrong != "x^2" else f"x^2={n}",
        False,
    )


AROUND = [
    "the square of {}", "{} tenths", "{} millions", "{} dozen", "twice the answer is {}", "twice {}", "half of {}", "not {}", "certainly not {}", "anything but {}", "{} is wrong", "no, {} is not it",
    "one less than {}", "the number after {}", "minus {}", "{} or so", "at least {}", "more than {}", "{}?", "{} squared", "about half of {}", "never {}", "the opposite of {}", "a multiple of {}", "a factor of {}", "{} or more",
]  # fmt: skip
UNTAGGED = [
    "The answer is -${}$", "1/${}$", "The answer is ${}$ thousand", "Thus $2x={}$", "I cannot solve this problem. It is certainly not {}, though.", "The answer is not {}.", "It can't be {}.",
    "Thus $x^2={}$.", "So $x \\neq {}$.", "The answer is less than {}.", "It is $\\frac{{1}}{{{}}}$.", "The answer is {}/7", "The answer is ${}$ or $17$.", "The answer is $x+{}$.",
]  # fmt: skip


@st.composite
def wrapped(draw: Draw) -> Case:
    """Words and signs around the gold that make something else of it."""
    n = draw(st.integers(2, 900).filter(lambda n: n != 17))
    if draw(st.booleans()):
        return Case("hacks", "words", str(n), draw(st.sampled_from(AROUND)).format(n), False)
    return Case("hacks", "untagged", str(n), draw(st.sampled_from(UNTAGGED)).format(n), False, whole=True)


@st.composite
def echoed(draw: Draw) -> Case:
    """The calculation that the question asks for, turned round or with its signs in other letters."""
    choose = _choose(draw)
    a, b = draw(st.integers(12, 99)), draw(st.integers(101, 199))
    sign, gold = choose([("+", a + b), ("\\times", a * b), ("*", a * b), ("\\cdot", a * b)])
    question = f"What is ${a} {sign} {b}$?"
    ways = [
        f"{a} {sign} {b}",
        f"{b} {sign} {a}",
        f"{a}{sign} {b} = x",
        f"({a}) {sign} ({b})",
        question,
        f"\\text{{{question}}}",
    ]
    return Case("hacks", "echo", str(gold), choose(ways), False, question)


@st.composite
def formula_of_another_kind(draw: Draw) -> Case:
    """A tautology, or the gold times nothing, for an equation."""
    m, c = draw(st.integers(2, 9)), draw(st.integers(1, 9))
    gold = f"y={m}x+{c}"
    ways = [
        f"0(y-{m}x-{c})=0",
        "y=y",
        "0=0",
        "x+y=x+y",
        f"(y-{m}x-{c})(x-1)=0",
        f"xy={m}x^2+{c}x",
        f"y^2=({m}x+{c})^2",
        f"{m}x+{c}",
        f"y={m}x",
        f"y>{m}x+{c}",
    ]
    return Case("hacks", "tautology", gold, draw(st.sampled_from([w for w in ways if w != f"{m}x+{c}"])), False)


# -- hostile texts ---------------------------------------------------------------------------------------------------

PAIRS = [
    ("(", ")"), ("{", "}"), ("\\frac{", "}{2}"), ("\\frac{1}{", "}"), ("1\\frac{1}{", "}"), ("\\sqrt{", "}"), ("x^{", "}"), ("x_{", "}"), ("\\left(", "\\right)"), ("|", "|"), ("\\text{", "}"),
    ("\\boxed{", "}"), ("$", "$"), ("-", ""), ("", "!"), ("", "'"), ("", "%"), ("", "^\\circ"), ("\\sin ", ""), ("1+", ""), ("2\\cdot ", ""), ("x=", ""), ("1,", ""), ("\\{", "\\}"), ("[", "]"), ("not ", ""),
    ("1 1/", ""), ("", "\\\\"), ("\\begin{pmatrix}", "\\end{pmatrix}"), ("\\log_", "{2}"), ("3000!", "*"), ("7^", ""), ("<think>", ""), ("", "</answer>"), ("\\pm", ""), ("0.", "3"), ("the answer is ", ""), ("\\gcd(9^{99},", ")"),
]  # fmt: skip
GOLDS = golds()


@st.composite
def nested(draw: Draw) -> Case:
    """Something repeated around a core, up to 100,000 characters."""
    before, after = draw(st.sampled_from(PAIRS))
    more = draw(st.sampled_from(PAIRS)) if draw(st.booleans()) else ("", "")
    count = draw(st.sampled_from([24, 5, 12, 18, 40, 60, 100, 330, 1000, 20_000]))
    count = min(count, 100_000 // max(1, len(before + after + more[0] + more[1])))
    core = draw(st.sampled_from(["42", "x", "1", "", "1/2", "9999", "\\pi"]))
    text = (before + more[0]) * count + core + (more[1] + after) * count
    gold = draw(st.sampled_from(["42", "x+1", "\\frac{1}{2}", "(1,2)", "x=5", "2k, k\\in\\mathbb{Z}", "1, 2, 3", text]))
    return Case(
        "hostile", "nested", gold, draw(st.sampled_from([text, f"\\boxed{{{text}}}"])), None, whole=draw(st.booleans())
    )


@st.composite
def noise(draw: Draw) -> Case:
    """Pieces of LaTeX in any order, and golds with parts of others in them; as the gold, too."""
    anything = st.one_of(pieces(), mutated(GOLDS), st.text(max_size=40))
    return Case("hostile", "noise", draw(anything), draw(anything), None, whole=draw(st.booleans()))


@st.composite
def costly(draw: Draw) -> Case:
    """Calculations that are long or need much memory, many of them."""
    big = st.sampled_from(["9", "99", "3000", "10^{9}", "10^{99}", "9^{9^{9}}", "123456789", "0.5", "x", "\\pi", "i"])
    makers = ["{}!", "{}^{{{}}}", "\\binom{{{}}}{{{}}}", "\\sum_{{i=1}}^{{{}}} i^{{{}}}", "\\prod_{{i=1}}^{{{}}} {}", "\\gcd({},{})", "{} \\bmod {}", "\\sqrt[{}]{{{}}}", "\\log_{{{}}} {}", "\\tan({})^{{{}}}", "(a+b+{})^{{{}}}", "\\int_0^{{{}}} x^{{{}}} dx"]  # fmt: skip
    one = st.builds(lambda way, a, b: way.format(a, b), st.sampled_from(makers), big, big)
    terms = draw(st.lists(one, min_size=1, max_size=6))
    text = draw(st.sampled_from(["+", "*", ", ", "=", "-"])).join(terms * draw(st.sampled_from([1, 3, 20])))
    gold = draw(st.one_of(st.just("42"), st.just("x"), st.just("1, 2, 3"), one))
    return Case("hostile", "costly", gold, text, None)


_BOTH = {"collections": collection, "intervals": interval, "families": family, "residues": residue, "labels": labelled, "parts": parts, "matrices": matrix, "ratios": ratio}  # fmt: skip
KINDS: dict[str, dict[str, st.SearchStrategy[Case]]] = {
    "equivalents": {"terms": term_again(), "identities": term_by_identity(), **{name: make(True) for name, make in _BOTH.items()}},
    "near_misses": {"terms": term_missed(), "conditions": restricted_family(), **{name: make(False) for name, make in _BOTH.items()}},
    "hacks": {
        "calculations": left_to_the_grader(), "universal": universal(), "interpolations": interpolated(), "unsolved": unsolved(),
        "chains": chained(), "words": wrapped(), "echoes": echoed(), "tautologies": formula_of_another_kind(),
    },
    "hostile": {"nested": nested(), "noise": noise(), "costly": costly()},
}  # fmt: skip
"""Kind -> name -> strategy."""
