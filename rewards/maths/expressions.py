"""The tighter levels of the grammar: sums, products, powers, single values, and the commands and functions of LaTeX."""

from fractions import Fraction

from rewards.maths.cursor import nested
from rewards.maths.lexer import Token
from rewards.maths.limits import MAX_BITS, UnreadableError, size, spend_on_bits
from rewards.maths.numerals import FRACTIONS, Numerals, read_number
from rewards.maths.syntax import Group, Node, Number, Op, SetBuilder, SetOp, Symbol, is_op
from rewards.maths.vocabulary import CONSTANTS, DECORATIONS, FUNCTIONS, GREEK, NUMBER_SETS

INFIX = {"over": "div", "choose": "binom"}
"""Commands of TeX that stand between their arguments, with all that is in the braces."""


class Expressions(Numerals):
    """From sums down to single values."""

    def sum(self) -> Node:
        """Terms side by side in one `add`, so that long sums are no deep trees."""
        if self.at("op", "pm", "mp"):
            name = self.next().text
            terms: list[Node] = [Op(name, (Number(Fraction(0)), self.product()))]
        else:
            terms = [self.product()]
        while self.at("op", "+", "-", "pm", "mp") and not self.set_difference(terms[0]):
            name = self.next().text
            right = self.product()
            if name in ("pm", "mp"):
                terms = [Op(name, (_joined("add", terms), right))]
            else:
                terms.append(_negated(right) if name == "-" else right)
        return self.modulo(_joined("add", terms))

    def modulo(self, node: Node) -> Node:
        """x + 1 (mod 7), of all that stands before."""
        if self.accept("command", "pmod", "mod"):
            return Op("mod", (node, self.signed()))
        if self.at("open", "(") and self.peek(1).text == "mod":
            self.place += 2
            node = Op("mod", (node, self.signed()))
            self.expect("close", ")")
        return node

    def product(self) -> Node:
        factors = [self.signed()]
        while True:
            if self.accept("op", "*"):
                factors.append(self.signed())
            elif self.accept("op", "/"):
                factors = [divided(_joined("mul", factors), self.signed())]
            elif self.accept("command", "bmod"):
                factors = [Op("mod", (_joined("mul", factors), self.signed()))]
            elif self.juxtaposed():
                factors.append(self.power())
            else:
                return _joined("mul", factors)

    def juxtaposed(self) -> bool:
        """True where the next factor is multiplied without a sign."""
        token = self.peek()
        if self.bare_union():
            return False
        if token.text in ("mod", "pmod", *INFIX) or (token.kind == "open" and self.peek(1).text == "mod"):
            return False
        if token.kind in ("symbol", "command", "number", "begin"):
            return not (token.kind == "number" and self.before().kind == "number")
        if token.kind == "open":
            return self.peek(1).kind != "word" and not self.condition_ahead()
        return token.kind == "op" and token.text == "|" and not self.bars

    def condition_ahead(self) -> bool:
        """A relation in parentheses behind a value: (k in Z), (x > 0), (mod 7)."""
        return self.at("open", "(") and self.bracket_at[self.place].has_relation

    def bare_union(self) -> bool:
        """The letter U between two brackets."""
        before = self.before()
        return self.at("symbol", "U", "u") and before.kind == "close" and self.peek(1).kind == "open"

    def set_difference(self, left: Node) -> bool:
        named = isinstance(left, Symbol) and left.name in NUMBER_SETS
        is_set = named or isinstance(left, SetBuilder | SetOp) or (isinstance(left, Group) and bool(left.brackets))
        return is_set and self.at("op", "-") and self.peek(1).text == "\\{"

    def signed(self) -> Node:
        if self.accept("op", "-"):
            return _negated(self.signed_operand())
        if self.accept("op", "+"):
            return self.signed_operand()
        return self.power()

    @nested
    def signed_operand(self) -> Node:
        return self.signed() if self.at("op", "-", "+") else self.power()

    def power(self) -> Node:
        base = self.postfix(self.primary())
        while self.at("op", "^"):
            self.next()
            if self.at("op", "degree"):
                base = self.degrees(base)
            elif self.at("open", "{") and self.peek(1).text == "degree" and self.peek(2).text == "}":
                self.next()
                base = self.degrees(base, braced=True)
            elif self._ordinal():
                self.skip_argument()
            elif isinstance(base, Symbol) and (primes := self._braced_primes()):
                base = Symbol(base.name + "'" * primes)
            elif (sign := self._lone_sign()) and isinstance(base, Symbol):
                base = Symbol(base.name + "^" + sign)
            elif self.at("op", "'"):
                self.next()
            else:
                base = Op("pow", (base, self.exponent()))
            base = self.postfix(base)
        return base

    @nested
    def exponent(self) -> Node:
        """2^3^2 is 2^(3^2)."""
        node = self.argument()
        if not self.at("op", "^") or self.peek(1).text == "degree":
            return node
        self.next()
        return Op("pow", (node, self.exponent()))

    def _ordinal(self) -> bool:
        """5^{th}"""
        return self.peek(self.at("open", "{")).text in ("th", "st", "nd", "rd")

    def _braced_primes(self) -> int:
        """How many primes B^{\\prime\\prime} has, past which we are then."""
        if not (self.at("open", "{") and self.peek(1).text == "'"):
            return 0
        start = self.place + 1
        self.skip_argument()
        inside = self.tokens[start : self.place - 1]
        if any(token.text != "'" for token in inside):
            raise UnreadableError("primes and something else")
        return len(inside)

    def _lone_sign(self) -> str:
        """The sign of R^+ and Z_{>0}^{+}, behind which no value stands."""
        braces = self.at("open", "{")
        sign, after = self.peek(braces), self.peek(1 + braces)
        if sign.kind != "op" or sign.text not in ("+", "-", "*"):
            return ""
        if after.kind not in (("close",) if braces else ("end", "close", "sep", "rel", "op")):
            return ""
        self.place += 1 + 2 * braces
        return sign.text

    def postfix(self, node: Node) -> Node:
        while True:
            if self.at("op", "!"):
                self.next()
                double = self.at("op", "!") and not self.peek().spaced
                node = Op("fact2" if double and self.next() else "fact", (node,))
            elif self.at("op", "%", "degree") and (is_op(node, "percent") or is_op(node, "degree")):
                raise UnreadableError("a percentage of a percentage")
            elif self.at("op", "%"):
                self.next()
                node = Op("percent", (node,))
            elif self.at("op", "degree"):
                node = self.degrees(node)
            elif self.at("op", "'"):
                self.next()
            else:
                return node

    def argument(self) -> Node:
        """The argument of `^`, `\\frac` or `\\sqrt`: a group in braces, or a single digit, letter or command."""
        if self.at("open", "{"):
            return self.braced()
        token = self.peek()
        if token.kind == "op" and token.text in "+-":
            return self.signed_argument()
        if token.kind == "number" and self._after_command() and len(token.text) > 1 and token.text.isdecimal():
            self.tokens[self.place] = Token("number", token.text[1:])
            return read_number(token.text[0])
        return self.primary()

    @nested
    def signed_argument(self) -> Node:
        minus = self.next().text == "-"
        value = self.argument()
        return _negated(value) if minus else value

    def _after_command(self) -> bool:
        """LaTeX takes one digit: \\frac12 is a half. After "^" we take the whole number, as people mean it."""
        before = self.before()
        return not (before.kind == "op" and before.text in "^_+-")

    def primary(self) -> Node:
        if self.kept is not None and self.kept[0] == self.place:
            _, node, self.place = self.kept
            return node
        token = self.peek()
        if token.kind == "number":
            return self.number()
        if token.kind == "symbol":
            self.next()
            return Symbol(self.subscripted(token.text))
        if token.kind == "command":
            return self.command(self.next().text)
        if token.kind == "open":
            if self.peek(1).kind == "number" and self.peek(2).text == ")" and self.peek(3).text == "_":
                digits = self.peek(1).text  # (11)_2
                self.place += 3
                return self.based(digits)
            return self.group()
        if token.kind == "begin":
            return self.environment()
        if token.kind == "op" and token.text == "|":
            return self.absolute()
        if token.kind == "word" and self.peek(1).text == "_" and token.text.isalnum():
            return self.based(self.next().text)  # A5_11
        raise UnreadableError(f"a value expected, not {token.text!r}")

    def subscripted(self, name: str) -> str:
        if self.at("op", "_"):
            self.next()
            start = self.place
            self.skip_argument()
            name += "_" + "".join(t.text for t in self.tokens[start : self.place] if t.text not in "{}")
        while self.at("op", "'"):
            self.next()
            name += "'"
        return name

    # Commands and functions.

    @nested
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
        if name in ("ldots", "dots", "cdots", "dotsc", "vdots", "dotsb", "dotsm"):
            return Symbol("...")
        if name in _SETS:
            return Symbol(_SETS[name])
        if name in ("overline", "bar"):
            return _barred(self.argument())
        if name in DECORATIONS:
            marked = self.argument()
            return Symbol(self.subscripted(marked.name)) if isinstance(marked, Symbol) else marked
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

    @nested
    def function_argument(self) -> Node:
        r"""The argument of a function without brackets: a product up to the next sign, bracket or function."""
        factors = [self.power() if not self.at("op", "-") else self.signed()]
        while self.peek().kind in ("symbol", "number") or (
            self.peek().kind == "command"
            and self.peek().text not in FUNCTIONS
            and self.peek().text not in ("mod", "pmod")
        ):
            if self.at("number") and self.before().kind == "number":
                break
            factors.append(self.power())
        node = _joined("mul", factors)
        if self.at("op", "/") and self.peek(1).kind in ("number", "symbol") and not self.before().spaced:
            self.next()
            node = divided(node, self.power())
        return node

    @nested
    def absolute(self) -> Node:
        self.expect("op", "|")
        self.bars += 1
        inside = self.set_operation()
        self.bars -= 1
        self.expect("op", "|")
        return Op("abs", (inside,))


def _negated(node: Node) -> Node:
    if isinstance(node, Number):
        return Number(-node.value, node.places)
    if isinstance(node, Op) and node.name in ("percent", "degree") and isinstance(node.args[0], Number):
        return Op(node.name, (_negated(node.args[0]),))
    return Op("neg", (node,))


def _joined(name: str, parts: list[Node]) -> Node:
    return parts[0] if len(parts) == 1 else Op(name, tuple(parts))


_SETS = {"reals": "R", "integers": "Z", "naturals": "N", "rationals": "Q", "complexes": "C"}


def _barred(node: Node) -> Node:
    """The complex conjugate; over capitals (a segment or a mean) only a name."""
    named = (
        isinstance(node, Op)
        and node.name == "mul"
        and all(isinstance(a, Symbol) and a.name.isupper() for a in node.args)
    )
    return node if named or isinstance(node, Number | Group) else Op("conj", (node,))


def divided(top: Node, bottom: Node) -> Node:
    """A fraction of whole numbers is a number, unless it becomes very long, or comes out even: that is a division to do."""
    if isinstance(top, Number) and isinstance(bottom, Number) and top.places is None and bottom.places is None:
        bits = size(top.value) + size(bottom.value)
        whole = top.value.denominator == bottom.value.denominator == 1
        if whole and bottom.value and bits <= MAX_BITS and top.value % bottom.value:
            spend_on_bits(bits)
            return Number(top.value / bottom.value)
    return Op("div", (top, bottom))
