"""Random expressions for the property tests: how to make them, write them as LaTeX or ASCII, and compute them.

`value` uses Python's own complex numbers, and nothing of the engine that is tested.
"""

import cmath
from fractions import Fraction

from hypothesis import strategies as st

from rewards.maths.syntax import Node, Number, Op, Symbol

POINTS = ({"x": 0.83, "y": 1.37, "z": 2.11}, {"x": 1.71, "y": 0.59, "z": 0.37})
NAMES = ("x", "y", "z")
FUNCTIONS = ("sin", "cos", "ln", "exp")
LOOSE, TERM, FACTOR, POWER, ATOM = range(5)


def number(value: int | Fraction) -> Number:
    return Number(Fraction(value))


numbers = st.one_of(
    st.integers(0, 12).map(number),
    st.fractions(min_value=Fraction(1, 9), max_value=9, max_denominator=9).map(number),
)
leaves = st.one_of(numbers, st.sampled_from(NAMES).map(Symbol), st.just(Symbol("pi")))


def _grown(parts: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    several = st.lists(parts, min_size=2, max_size=3).map(tuple)
    return st.one_of(
        several.map(lambda args: Op("add", args)),
        several.map(lambda args: Op("mul", args)),
        parts.map(lambda arg: Op("neg", (arg,))),
        st.tuples(parts, parts).map(lambda args: Op("div", args)),
        st.tuples(parts, st.integers(-2, 3).map(number)).map(lambda args: Op("pow", args)),
        parts.map(lambda arg: Op("sqrt", (arg,))),
        st.tuples(st.sampled_from(FUNCTIONS), parts).map(lambda both: Op(both[0], (both[1],))),
    )


trees = st.recursive(leaves, _grown, max_leaves=6)
rational_trees = st.recursive(
    leaves,
    lambda parts: st.one_of(
        st.lists(parts, min_size=2, max_size=3).map(lambda args: Op("add", tuple(args))),
        st.lists(parts, min_size=2, max_size=3).map(lambda args: Op("mul", tuple(args))),
        parts.map(lambda arg: Op("neg", (arg,))),
        st.tuples(parts, parts).map(lambda args: Op("div", args)),
    ),
    max_leaves=6,
)


def value(node: Node, point: dict[str, float]) -> complex:
    """The value at a point; raises ZeroDivisionError, ValueError or OverflowError where there is none."""
    match node:
        case Number(number):
            return complex(number)
        case Symbol(name):
            return cmath.pi if name == "pi" else point[name]
        case Op(name, args):
            values = [value(a, point) for a in args]
            result = 1 + 0j
            if name == "add":
                return sum(values)
            if name == "mul":
                for v in values:
                    result *= v
                return result
            if name == "pow" and values[0] == 0 and values[1].real <= 0:
                raise ZeroDivisionError
            return {
                "neg": lambda v: -v, "div": lambda v, w: v / w, "pow": lambda v, w: v**w, "sqrt": cmath.sqrt,
                "sin": cmath.sin,
                "cos": cmath.cos, "ln": cmath.log, "exp": cmath.exp,
            }[name](*values)  # fmt: skip
    raise TypeError(node)


def tame(node: Node) -> bool:
    """True where every part of an expression has a real value of ordinary size at all points."""
    parts = [node, *(node.args if isinstance(node, Op) else ())]
    try:
        values = [value(part, point) for part in parts for point in POINTS]
    except (ZeroDivisionError, ValueError, OverflowError):
        return False
    ordinary = all(abs(v.imag) < 1e-12 and 1e-4 < abs(v) < 1e6 for v in values)
    return ordinary and all(map(tame, parts[1:]))


def latex(node: Node, room: int = LOOSE) -> str:
    r"""As LaTeX: \frac, \sqrt, juxtaposed products, \left and \right."""
    match node:
        case Number(v) if v.denominator == 1:
            return str(v) if v >= 0 else _latex_brackets(str(v), room > LOOSE)
        case Number(v):
            return (
                rf"\frac{{{v.numerator}}}{{{v.denominator}}}"
                if room < POWER
                else rf"\left(\frac{{{v.numerator}}}{{{v.denominator}}}\right)"
            )
        case Symbol(name):
            return rf"\{name} " if name == "pi" else name
        case Op("add", args):
            return _latex_brackets(_sum([latex(a, TERM) for a in args]), room > LOOSE)
        case Op("mul", args):
            return _latex_brackets(r" \cdot ".join(latex(a, FACTOR) for a in args), room > TERM)
        case Op("neg", (arg,)):
            return _latex_brackets(f"-{latex(arg, FACTOR)}", room > LOOSE)
        case Op("div", (top, bottom)):
            return _latex_brackets(rf"\frac{{{latex(top)}}}{{{latex(bottom)}}}", room > FACTOR)
        case Op("pow", (base, exponent)):
            return _latex_brackets(f"{latex(base, ATOM)}^{{{latex(exponent)}}}", room > FACTOR)
        case Op("sqrt", (arg,)):
            return rf"\sqrt{{{latex(arg)}}}"
        case Op("exp", (arg,)):
            return _latex_brackets(f"e^{{{latex(arg)}}}", room > FACTOR)
        case Op(name, (arg,)):
            return _latex_brackets(rf"\{name}\left({latex(arg)}\right)", room > FACTOR)
    raise TypeError(node)


def ascii_text(node: Node, room: int = LOOSE) -> str:
    """As a programmer writes it: *, /, ^, sqrt(...)."""
    match node:
        case Number(v):
            text = str(v) if v.denominator == 1 else f"{v.numerator}/{v.denominator}"
            return _brackets(text, (v < 0 and room > LOOSE) or (v.denominator > 1 and room > TERM))
        case Symbol(name):
            return name
        case Op("add", args):
            return _brackets(_sum([ascii_text(a, TERM) for a in args]), room > LOOSE)
        case Op("mul", args):
            return _brackets("*".join(ascii_text(a, FACTOR) for a in args), room > TERM)
        case Op("neg", (arg,)):
            return _brackets(f"-{ascii_text(arg, FACTOR)}", room > LOOSE)
        case Op("div", (top, bottom)):
            return _brackets(f"{ascii_text(top, FACTOR)}/{ascii_text(bottom, POWER)}", room > TERM)
        case Op("pow", (base, exponent)):
            return _brackets(f"{ascii_text(base, ATOM)}^{ascii_text(exponent, ATOM)}", room > POWER)
        case Op(name, (arg,)):
            return f"{name}({ascii_text(arg)})"
    raise TypeError(node)


def _sum(terms: list[str]) -> str:
    return " + ".join(terms)


def _brackets(text: str, needed: bool) -> str:
    return f"({text})" if needed else text


def _latex_brackets(text: str, needed: bool) -> str:
    return rf"\left({text}\right)" if needed else text
