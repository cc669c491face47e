"""Expressions: sums, products, powers, functions."""

from fractions import Fraction

from rewards.maths.cursor import END
from rewards.maths.errors import UnreadableError
from rewards.maths.lexer import Token
from rewards.maths.numerals import FRACTIONS, Numerals, read_number
from rewards.maths.syntax import Group, Node, Number, Op, SetOp, Such, Symbol
from rewards.maths.words import CONSTANTS, DECORATIONS, FUNCTIONS, GREEK


class Expressions(Numerals):
    """From sums down to single values."""

    def sum(self) -> Node:
        """Terms side by side in one `add`, so that long sums are no deep trees."""
        if self.at("op", "pm", "mp"):
            name = self.next().text
            terms: list[Node] = [Op(name, (Number(Fraction(0)), self.product()))]
        else:
            terms = [self.product()]
        while self.at("op", "+", "-", "pm", "mp") and not self._set_difference(terms[0]):
            name = self.next().text
            right = self.product()
            if name in ("pm", "mp"):
                terms = [Op(name, (_joined("add", terms), right))]
            else:
                terms.append(_negated(right) if name == "-" else right)
        return _joined("add", terms)

    def product(self) -> Node:
        factors = [self.signed()]
        while True:
            if self.accept("op", "*"):
                factors.append(self.signed())
            elif self.accept("op", "/"):
                factors = [_divided(_joined("mul", factors), self.signed())]
            elif self.at("command", "pmod", "bmod", "mod"):
                self.next()
                factors = [Op("mod", (_joined("mul", factors), self.signed()))]
            elif self.juxtaposed():
                factors.append(self.power())
            else:
                return _joined("mul", factors)

    def juxtaposed(self) -> bool:
        """Whether what follows is multiplied without a sign."""
        token = self.peek()
        if token.kind in ("symbol", "command", "number", "begin"):
            return not (token.kind == "number" and self.tokens[self.place - 1].kind == "number")
        if token.kind == "open":
            return self.peek(1).kind != "word"
        return token.kind == "op" and token.text == "|" and not self.bars

    def _bare_union(self) -> bool:
        """The letter U between two brackets."""
        before = self.tokens[self.place - 1] if self.place else END
        return self.at("symbol", "U", "u") and before.kind == "close" and self.peek(1).kind == "open"

    def _set_difference(self, left: Node) -> bool:
        is_set = isinstance(left, Such | SetOp) or (isinstance(left, Group) and bool(left.brackets))
        return is_set and self.at("op", "-") and self.peek(1).text == "\\{"

    def signed(self) -> Node:
        if self.accept("op", "-"):
            return _negated(self.signed_operand())
        if self.accept("op", "+"):
            return self.signed_operand()
        return self.power()

    def signed_operand(self) -> Node:
        self.deeper()
        node = self.signed() if self.at("op", "-", "+") else self.power()
        self.depth -= 1
        return node

    def power(self) -> Node:
        base = self.postfix(self.primary())
        while self.at("op", "^"):
            self.next()
            if self.at("op", "degree") or self._braced_degree():
                base = self.degrees(base)
            elif self.at("op", "'"):
                self.next()
            else:
                base = Op("pow", (base, self.argument()))
            base = self.postfix(base)
        return base

    def _braced_degree(self) -> bool:
        if self.at("open", "{") and self.peek(1).text == "degree" and self.peek(2).text == "}":
            self.place += 1
            self.tokens[self.place + 1] = Token("op", "")  # the brace that closes; read as nothing
            return True
        return False

    def postfix(self, node: Node) -> Node:
        while True:
            if self.at("op", "!"):
                self.next()
                node = Op("fact", (node,))
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
        """What `^`, `\\frac` and `\\sqrt` take: a group in braces, or a single digit, letter or command."""
        if self.at("open", "{"):
            return self.braced()
        token = self.peek()
        if token.kind == "op" and token.text in "+-":
            self.next()
            value = self.argument()
            return _negated(value) if token.text == "-" else value
        if token.kind == "number" and self._after_command() and len(token.text) > 1 and "." not in token.text:
            self.tokens[self.place] = Token("number", token.text[1:])
            return read_number(token.text[0])
        return self.primary()

    def _after_command(self) -> bool:
        """LaTeX takes one digit: \\frac12 is a half. After "^" we take the whole number, as people mean it."""
        before = self.tokens[self.place - 1] if self.place else END
        return not (before.kind == "op" and before.text in "^+-")

    def primary(self) -> Node:
        token = self.peek()
        if token.kind == "number":
            return self.number()
        if token.kind == "symbol":
            self.next()
            return Symbol(self.subscripted(token.text))
        if token.kind == "command":
            self.deeper()
            node = self.command(self.next().text)
            self.depth -= 1
            return node
        if token.kind == "open":
            return self.group()
        if token.kind == "begin":
            return self.environment()
        if token.kind == "op" and token.text == "|":
            return self.absolute()
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

    def skip_argument(self) -> None:
        depth = 0
        while True:
            token = self.next()
            if token is END:
                raise UnreadableError("a subscript without end")
            depth += (token.kind == "open") - (token.kind == "close")
            if depth == 0:
                return

    def command(self, name: str) -> Node:
        if name in FRACTIONS:
            top = self.argument()
            return _divided(top, self.argument())
        if name in ("binom", "dbinom", "tbinom"):
            top = self.argument()
            return Op("binom", (top, self.argument()))
        if name == "sqrt":
            return self.root()
        if name in FUNCTIONS:
            return self.function(FUNCTIONS[name])
        if name in CONSTANTS:
            return Symbol(CONSTANTS[name])
        if name in GREEK:
            return Symbol(self.subscripted(name.removeprefix("var")))
        if name in ("emptyset", "varnothing"):
            return Group("{}", ())
        if name in ("ldots", "dots", "cdots", "dotsc", "vdots", "dotsb"):
            return Symbol("...")
        if name in ("reals", "integers"):
            return Symbol({"reals": "R", "integers": "Z"}[name])
        if name in DECORATIONS:
            return self.argument()
        if name == "boxed":
            return self.argument()
        raise UnreadableError(f"\\{name}")

    def root(self) -> Node:
        if self.accept("open", "["):
            index = self.sum()
            self.expect("close", "]")
            return Op("pow", (self.argument(), _divided(Number(Fraction(1)), index)))
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
        arguments = inside.items if isinstance(inside, Group) and inside.brackets == "()" else (inside,)
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
            if self.at("number") and self.tokens[self.place - 1].kind == "number":
                break
            node = Op("mul", (node, self.power()))
        if self.at("op", "/") and self.peek(1).kind in ("number", "symbol") and not self.tokens[self.place - 1].spaced:
            self.next()
            node = _divided(node, self.power())
        self.depth -= 1
        return node

    def absolute(self) -> Node:
        self.deeper()
        self.expect("op", "|")
        self.bars += 1
        inside = self.sum()
        self.bars -= 1
        self.expect("op", "|")
        self.depth -= 1
        return Op("abs", (inside,))


def _negated(node: Node) -> Node:
    if isinstance(node, Number):
        return Number(-node.value, node.places)
    if isinstance(node, Op) and node.name == "percent" and isinstance(node.args[0], Number):
        return Op("percent", (_negated(node.args[0]),))
    return Op("neg", (node,))


def _joined(name: str, parts: list[Node]) -> Node:
    return parts[0] if len(parts) == 1 else Op(name, tuple(parts))


def _divided(top: Node, bottom: Node) -> Node:
    if (
        isinstance(top, Number)
        and isinstance(bottom, Number)
        and bottom.value
        and top.places is None
        and bottom.places is None
    ):
        return Number(top.value / bottom.value)
    return Op("div", (top, bottom))
