"""Commands and functions: fractions, roots, logarithms, absolute values, constants."""

from fractions import Fraction

from rewards.maths.errors import UnreadableError
from rewards.maths.numerals import FRACTIONS, Numerals
from rewards.maths.syntax import Group, Node, Number, Op, Symbol
from rewards.maths.words import CONSTANTS, DECORATIONS, FUNCTIONS, GREEK

NUMBER_SETS = frozenset("R Z N Q C R^+ R^- Z^+ Z^- N^+ Q^+ R^* Z^* N^* C^*".split())
"""Names of sets of numbers, as letters."""
_SETS = {"reals": "R", "integers": "Z", "naturals": "N", "rationals": "Q", "complexes": "C"}


class Functions(Numerals):
    """The part of the parser that reads what begins with a name."""

    def command(self, name: str) -> Node:
        if name in FRACTIONS:
            top = self.argument()
            return divided(top, self.argument())
        if name in ("binom", "dbinom", "tbinom"):
            top = self.argument()
            return Op("binom", (top, self.argument()))
        if name in ("sqrt", "√"):
            return self.root(whole=name == "√")
        if name in FUNCTIONS:
            return self.function(FUNCTIONS[name])
        if name in CONSTANTS:
            return Symbol(CONSTANTS[name])
        if name in GREEK:
            return Symbol(self.subscripted(name.removeprefix("var")))
        if name in ("imath", "jmath"):
            return Symbol(name[0])
        if name in ("emptyset", "varnothing"):
            return Group("{}", ())
        if name in ("ldots", "dots", "cdots", "dotsc", "vdots", "dotsb"):
            return Symbol("...")
        if name in _SETS:
            return Symbol(_SETS[name])
        if name in ("overline", "bar"):
            return _barred(self.argument())
        if name in DECORATIONS:
            return self.argument()
        if name == "boxed":
            return self.argument()
        raise UnreadableError(f"\\{name}")

    def root(self, whole: bool) -> Node:
        """`whole`: of the number behind it, as √12 has it, not of its first digit, as \\sqrt12 has it."""
        if self.accept("open", "["):
            index = self.sum()
            self.expect("close", "]")
            return Op("pow", (self.argument(), divided(Number(Fraction(1)), index)))
        if whole:
            return Op("sqrt", (self.primary(),))
        return Op("sqrt", (self.group() if self.at("open", "(") else self.argument(),))

    def function(self, name: str) -> Node:
        base = exponent = None
        while self.at("op", "_", "^"):
            if self.next().text == "_":
                base = self.argument()
            else:
                exponent = self.argument()
        if self.at("open", "(", "[", "{"):
            inside = self.group()
        elif self.at("op", "|"):
            inside = self.absolute()
        else:
            inside = self.function_argument()
        several = isinstance(inside, Group) and inside.brackets in ("()", "{}") and len(inside.items) > 1
        arguments = inside.items if several else (inside,)  # type: ignore[union-attr]
        if name == "log" and base is not None:
            arguments = (*arguments, base)
        if exponent == Number(Fraction(-1)) and not name.startswith("arc"):
            return Op("arc" + name, arguments)
        if name in ("min", "max") and all(isinstance(a, Number) for a in arguments):
            raise UnreadableError("a choice among numbers, not a value")
        node = Op(name, tuple(arguments))
        return node if exponent is None else Op("pow", (node, exponent))

    def function_argument(self) -> Node:
        r"""What stands behind a function without brackets: a product up to the next sign, bracket or function."""
        self.deeper()
        node = self.power() if not self.at("op", "-") else self.signed()
        while self.peek().kind in ("symbol", "number") or (
            self.peek().kind == "command"
            and self.peek().text not in FUNCTIONS
            and self.peek().text not in ("mod", "pmod")
        ):
            if self.at("number") and self.before().kind == "number":
                break
            node = Op("mul", (node, self.power()))
        if self.at("op", "/") and self.peek(1).kind in ("number", "symbol") and not self.before().spaced:
            self.next()
            node = divided(node, self.power())
        self.depth -= 1
        return node

    def absolute(self) -> Node:
        self.deeper()
        self.expect("op", "|")
        self.bars += 1
        inside = self.set_operation()
        self.bars -= 1
        self.expect("op", "|")
        self.depth -= 1
        return Op("abs", (inside,))


def _barred(node: Node) -> Node:
    """The complex conjugate; over capitals, a segment or a mean: no more than a name."""
    named = (
        isinstance(node, Op)
        and node.name == "mul"
        and all(isinstance(a, Symbol) and a.name.isupper() for a in node.args)
    )
    return node if named or isinstance(node, Number | Group) else Op("conj", (node,))


def divided(top: Node, bottom: Node) -> Node:
    if (
        isinstance(top, Number)
        and isinstance(bottom, Number)
        and bottom.value
        and top.places is None
        and bottom.places is None
    ):
        return Number(top.value / bottom.value)
    return Op("div", (top, bottom))
