r"""Tokens into a syntax tree: a recursive-descent parser with bounds on everything.

>>> parse(r"3\frac{1}{2}")
Number(value=Fraction(7, 2), places=None)
>>> parse("x <= 2").ops
('<=',)

The levels, loosest first: list - relation - set operation - ratio - sum - product - sign - power - primary.
"""

import re
from fractions import Fraction

from rewards.maths.errors import UnreadableError
from rewards.maths.lexer import Token, tokens
from rewards.maths.names import resolve_letters
from rewards.maths.syntax import Based, Group, Matrix, Measured, Node, Number, Op, Relation, SetOp, Such, Symbol, Words
from rewards.maths.words import CONSTANTS, DECORATIONS, FUNCTIONS, GREEK, NEGATIONS, QUALIFIERS, unit_name

MAX_DEPTH = 32
MAX_POWER_OF_TEN = 5000

_END = Token("end", "")
_FRACTIONS = frozenset({"frac", "dfrac", "tfrac", "cfrac", "sfrac", "nicefrac", "rfrac"})
_MATRICES = frozenset({"matrix", "pmatrix", "bmatrix", "vmatrix", "smallmatrix", "array", "Bmatrix"})
_CLOSER = {"(": ")", "[": "]", "{": "}", "\\{": "\\}"}


def parse(text: str) -> Node:
    """The syntax tree of an answer.

    Raises:
        UnreadableError: the text is no mathematics, is malformed, or goes beyond a bound.
    """
    return _Parser(resolve_letters(tokens(text))).answer()


class _Parser:
    def __init__(self, found: list[Token]) -> None:
        self.tokens = found
        self.place = 0
        self.depth = 0
        self.brackets = 0
        self.bars = 0

    # -- moving ------------------------------------------------------------------------------------------------------

    def peek(self, ahead: int = 0) -> Token:
        place = self.place + ahead
        return self.tokens[place] if place < len(self.tokens) else _END

    def next(self) -> Token:
        token = self.peek()
        self.place += 1
        return token

    def at(self, kind: str, *texts: str) -> bool:
        token = self.peek()
        return token.kind == kind and (not texts or token.text in texts)

    def accept(self, kind: str, *texts: str) -> bool:
        if self.at(kind, *texts):
            self.place += 1
            return True
        return False

    def expect(self, kind: str, *texts: str) -> Token:
        if not self.at(kind, *texts):
            raise UnreadableError(f"{texts or kind} expected, not {self.peek().text!r}")
        return self.next()

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise UnreadableError("nested too deeply")

    # -- answers: lists and relations --------------------------------------------------------------------------------

    def answer(self) -> Node:
        node = self.items()
        if self.peek() is not _END:
            raise UnreadableError(f"what is {self.peek().text!r}?")
        return node

    def items(self) -> Node:
        """Parts between commas, semicolons, "and" and "or"; one part stands for itself."""
        parts: list[Node] = []
        either = False
        while True:
            while self.at("sep", ",", ";", "and", "or", "\\\\"):
                either |= self.next().text == "or"
            if self.peek() is _END or self.at("close"):
                break
            parts.append(self.item())
            if not self.at("sep", ",", ";", "and", "or", "\\\\"):
                break
        if not parts:
            raise UnreadableError("nothing there")
        return parts[0] if len(parts) == 1 else Group("", tuple(parts), either)

    def item(self) -> Node:
        """A relation or expression with the words around it."""
        self.skip_sentence_opening()
        if self.at("word") or self._article():
            return self.words_first()
        return self.with_words(self.relation())

    def skip_sentence_opening(self) -> None:
        if self.at("op", "+") and self.peek(1).kind == "command" and self.peek(1).text == "infty":
            self.next()

    def words_first(self) -> Node:
        """Words alone; a label before "=" or ":"; or a sentence that names one number."""
        words = self.run_of_words()
        if self.accept("rel", "=") or self.accept("op", ":"):
            return Relation((Words(words.lower()), self.item()), ("=",))
        if self.peek() is _END or self.at("sep") or self.at("close"):
            return Words(words.lower())
        if _restrained(words):
            return self.with_words(self.relation())
        raise UnreadableError("a sentence")

    def run_of_words(self) -> str:
        found = []
        while self.at("word") or self._article() or (found and self.at("op", "'", "-") and self.peek(1).kind == "word"):
            found.append(self.next().text)
        return " ".join(found)

    def _article(self) -> bool:
        """The word "a" in a sentence."""
        return self.at("symbol", "a", "A", "I") and self.peek(1).kind == "word" and self.peek(1).spaced

    def aside(self) -> str:
        """Words in parentheses behind a value."""
        start = self.place
        if self.accept("open", "("):
            words = self.run_of_words()
            if words and self.accept("close", ")"):
                return words
        self.place = start
        return ""

    def with_words(self, node: Node) -> Node:
        """What words after a value say of it: a unit, what is counted, or when it holds."""
        words = self.run_of_words() or self.aside()
        if not words:
            return node
        first = words.lower().split()[0]
        if first in QUALIFIERS:
            self.skip_qualifier(first)
            return node
        unit = unit_name(words)
        if unit:
            if self.accept("op", "^"):
                unit = {"2": "square ", "3": "cubic "}.get(self.next_exponent(), "") + unit
            elif self.accept("op", "/"):
                unit += " per " + unit_name(self.run_of_words())
            return self.with_words(Measured(node, unit))
        if not _restrained(words):
            raise UnreadableError(f"{words!r} beside a value")
        return node if isinstance(node, Measured) else Measured(node, "")

    def next_exponent(self) -> str:
        braces = self.accept("open", "{")
        text = self.next().text
        if braces:
            self.expect("close", "}")
        return text

    def skip_qualifier(self, first: str) -> None:
        """Past the condition, up to the next part; "where" and its like qualify all that went before."""
        depth = 0
        while self.peek() is not _END:
            token = self.peek()
            if depth == 0 and (token.kind == "close" or (token.kind == "sep" and first in ("for", "if", "when"))):
                return
            depth += (token.kind == "open") - (token.kind == "close")
            self.next()

    def relation(self) -> Node:
        name = self.function_name()
        sides, ops = [name if name is not None else self.set_operation()], []
        while self.at("rel"):
            ops.append(self.next().text)
            sides.append(self.labelled_side() if self.at("word") else self.set_operation())
        return Relation(tuple(sides), tuple(ops)) if ops else sides[0]

    def labelled_side(self) -> Node:
        return Words(self.run_of_words().lower())

    def function_name(self) -> Node | None:
        """`f(x)` before "=": a name, not a product."""
        first, start = self.peek(), self.place
        if first.kind != "symbol":
            return None
        self.next()
        function = self.subscripted(first.text)
        if not self.at("open", "("):
            self.place = start
            return None
        self.next()
        arguments = []
        while self.peek().kind in ("symbol", "number", "sep") or self.at("op", "+", "-"):
            token = self.next()
            if token.kind == "symbol":
                arguments.append(Symbol(token.text))
        if self.accept("close", ")") and self.at("rel", "="):
            return Op("call", (Symbol(function), *arguments))
        self.place = start
        return None

    def set_operation(self) -> Node:
        left = self.ratio()
        while self.at("op", "union", "intersection", "minus") or self._bare_union() or self._set_difference(left):
            name = self.next().text
            name = {"-": "minus"}.get(name, name) if name in ("union", "intersection", "minus", "-") else "union"
            left = SetOp(name, left, self.ratio())
        return left

    def _bare_union(self) -> bool:
        """The letter U between two brackets."""
        before = self.tokens[self.place - 1] if self.place else _END
        return self.at("symbol", "U", "u") and before.kind == "close" and self.peek(1).kind == "open"

    def _set_difference(self, left: Node) -> bool:
        is_set = isinstance(left, Such | SetOp) or (isinstance(left, Group) and bool(left.brackets))
        return is_set and self.at("op", "-") and self.peek(1).text == "\\{"

    def ratio(self) -> Node:
        parts = [self.sum()]
        while self.at("op", ":") and self.peek(1).kind not in ("end", "word"):
            self.next()
            parts.append(self.sum())
        return Op("ratio", tuple(parts)) if len(parts) > 1 else parts[0]

    # -- expressions -------------------------------------------------------------------------------------------------

    def sum(self) -> Node:
        if self.at("op", "pm", "mp"):
            name = self.next().text
            left: Node = Op(name, (Number(Fraction(0)), self.product()))
        else:
            left = self.product()
        while self.at("op", "+", "-", "pm", "mp") and not self._set_difference(left):
            name = self.next().text
            right = self.product()
            left = Op({"+": "add", "-": "add"}.get(name, name), (left, _negated(right) if name == "-" else right))
        return left

    def product(self) -> Node:
        left = self.signed()
        while True:
            if self.accept("op", "*"):
                left = Op("mul", (left, self.signed()))
            elif self.accept("op", "/"):
                left = _divided(left, self.signed())
            elif self.at("command", "pmod", "bmod", "mod"):
                self.next()
                left = Op("mod", (left, self.signed()))
            elif self.juxtaposed():
                left = Op("mul", (left, self.power()))
            else:
                return left

    def juxtaposed(self) -> bool:
        """Whether what follows is multiplied without a sign."""
        token = self.peek()
        if token.kind in ("symbol", "command", "number", "begin"):
            return not (token.kind == "number" and self.tokens[self.place - 1].kind == "number")
        if token.kind == "open":
            return self.peek(1).kind != "word"
        return token.kind == "op" and token.text == "|" and not self.bars

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

    def degrees(self, base: Node) -> Node:
        self.expect("op", "degree")
        self.accept("op", "")
        minutes = self.sixtieths("'", 60)
        seconds = self.sixtieths('"', 3600)
        parts = [base, *(p for p in (minutes, seconds) if p is not None)]
        return Op("degree", (parts[0] if len(parts) == 1 else Op("add", tuple(parts)),))

    def sixtieths(self, mark: str, share: int) -> Node | None:
        marks = 2 if mark == '"' and self.peek(1).text == "'" == self.peek(2).text else 1
        if not (self.at("number") and (self.peek(1).text == mark or marks == 2)):
            return None
        value = _number(self.next().text)
        self.place += marks
        return Number(value.value / share)

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
            return _number(token.text[0])
        return self.primary()

    def _after_command(self) -> bool:
        """LaTeX takes one digit: \\frac12 is a half. After "^" we take the whole number, as people mean it."""
        before = self.tokens[self.place - 1] if self.place else _END
        return not (before.kind == "op" and before.text in "^+-")

    def braced(self) -> Node:
        self.deeper()
        self.expect("open", "{")
        self.brackets += 1
        bars, self.bars = self.bars, 0
        node = self.items()
        self.expect("close", "}")
        self.brackets -= 1
        self.bars = bars
        self.depth -= 1
        return Group("{}", node.items) if isinstance(node, Group) and node.brackets == "" else node

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

    def number(self) -> Node:
        text = self.next().text
        if "," in text and self.brackets:
            return self.split_number(text)
        text = text.replace(",", "")
        if self.at("command", "overline") and self.peek(1).text == "{" and self.peek(2).kind == "number":
            return self.repeating(text)
        if self.at("op", "_"):
            return self.based(text)
        return self.mixed(_number(text))

    def split_number(self, text: str) -> Node:
        """Within brackets a comma separates: (1,234) is a pair."""
        first, *rest = text.split(",")
        new = [t for part in rest for t in (Token("sep", ","), Token("number", part))]
        self.tokens[self.place : self.place] = new
        return _number(first)

    def repeating(self, text: str) -> Node:
        self.next()
        digits = self.braced()
        if not isinstance(digits, Number) or "." not in text:
            raise UnreadableError("a repeating decimal has a point")
        repeated = self.tokens[self.place - 2].text
        start = Number(Fraction(text + "0"))
        shift = 10 ** len(text.split(".")[1])
        return Number(start.value + Fraction(int(repeated), (10 ** len(repeated) - 1) * shift))

    def based(self, text: str) -> Node:
        self.next()
        base = self.argument()
        if isinstance(base, Number) and 2 <= base.value <= 36 and base.value.denominator == 1:
            return Based(text, int(base.value))
        raise UnreadableError("a numeral with a subscript that is no base")

    def mixed(self, whole: Number) -> Node:
        """3\\frac{1}{2} and 3 1/2 are sums."""
        if whole.places is not None:
            return self.scientific(whole) if self.at("symbol", "e", "E") and not self.peek().spaced else whole
        if self.at("command", *_FRACTIONS):
            start, saved = self.place, list(self.tokens)
            fraction = self.primary()
            proper = _proper(fraction)
            if proper is not None:
                return Number(whole.value + proper)
            self.place, self.tokens = start, saved
        elif self.at("number") and self.peek().spaced and self.peek(1).text == "/" and self.peek(2).kind == "number":
            top, bottom = self.peek().text, self.peek(2).text
            if top.isdigit() and bottom.isdigit() and 0 < int(top) < int(bottom):
                self.place += 3
                return Number(whole.value + Fraction(int(top), int(bottom)))
        elif self.at("symbol", "e", "E") and not self.peek().spaced:
            return self.scientific(whole)
        return whole

    def scientific(self, whole: Number) -> Node:
        ahead = 2 if self.peek(1).text in ("+", "-") else 1
        digits = self.peek(ahead)
        if digits.kind != "number" or not digits.text.isdigit() or digits.spaced or int(digits.text) > MAX_POWER_OF_TEN:
            return whole
        power = -int(digits.text) if self.peek(1).text == "-" else int(digits.text)
        self.place += ahead + 1
        return Number(whole.value * Fraction(10) ** power)

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
            if token is _END:
                raise UnreadableError("a subscript without end")
            depth += (token.kind == "open") - (token.kind == "close")
            if depth == 0:
                return

    def command(self, name: str) -> Node:
        if name in _FRACTIONS:
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
        node = Op(name, tuple(arguments))
        return node if exponent is None else Op("pow", (node, exponent))

    def function_argument(self) -> Node:
        r"""What stands behind a function without brackets: a product up to the next sign, bracket or function."""
        self.deeper()
        node = self.power() if not self.at("op", "-") else self.signed()
        while self.peek().kind in ("symbol", "number") or (
            self.peek().kind == "command" and self.peek().text not in FUNCTIONS and self.peek().text not in ("mod", "pmod")
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

    # -- groups ------------------------------------------------------------------------------------------------------

    def group(self) -> Node:
        """Parentheses around an expression; a tuple, interval or set; floor and ceiling."""
        opening = self.peek().text
        if opening == "{":
            return self.braced_set()
        self.deeper()
        self.next()
        self.brackets += 1
        bars, self.bars = self.bars, 0
        empty = self.at("close")
        node = Group("", ()) if empty else (self.set_builder() if opening == "\\{" else None) or self.items()
        closing = self.expect("close").text
        self.brackets -= 1
        self.bars = bars
        self.depth -= 1
        return _closed(opening, node, closing)

    def braced_set(self) -> Node:
        """LaTeX braces group; models also write sets with them."""
        start = self.place
        self.place += 1
        built = self.set_builder()
        if built is not None and self.accept("close", "}"):
            return built
        self.place = start
        return self.braced()

    def set_builder(self) -> Node | None:
        """x | condition, or x : condition; None where it is no such thing."""
        start = self.place
        if self.peek().kind != "symbol":
            return None
        variable: Node = Symbol(self.subscripted(self.next().text))
        if self.accept("rel", "in"):
            variable = Relation((variable, self.sum()), ("in",))
        if not (self.accept("op", "|") or self.accept("op", ":")):
            self.place = start
            return None
        return Such(variable, self.items())

    def environment(self) -> Node:
        self.deeper()
        name = self.next().text
        if name not in _MATRICES:
            raise UnreadableError(f"environment {name}")
        self.brackets += 1
        rows: list[tuple[Node, ...]] = []
        row: list[Node] = []
        while not self.at("end_environment"):
            if self.accept("sep", "\\\\"):
                rows.append(tuple(row))
                row = []
            elif not self.accept("sep", "&"):
                row.append(self.relation())
            if self.peek() is _END:
                raise UnreadableError("a matrix without end")
        self.next()
        self.brackets -= 1
        self.depth -= 1
        if row:
            rows.append(tuple(row))
        if not rows or len({len(r) for r in rows}) != 1:
            raise UnreadableError("rows of different lengths")
        return Matrix(tuple(rows))


def _restrained(words: str) -> bool:
    """Whether words beside a number leave it the plain statement of that number."""
    found = re.findall(r"[\w'’-]+", words.lower().replace("’", "'"))
    return len(found) <= 12 and not any(w in NEGATIONS or w.endswith("n't") for w in found)


def _negated(node: Node) -> Node:
    if isinstance(node, Number):
        return Number(-node.value, node.places)
    if isinstance(node, Op) and node.name == "percent" and isinstance(node.args[0], Number):
        return Op("percent", (_negated(node.args[0]),))
    return Op("neg", (node,))


def _divided(top: Node, bottom: Node) -> Node:
    if isinstance(top, Number) and isinstance(bottom, Number) and bottom.value and top.places is None and bottom.places is None:
        return Number(top.value / bottom.value)
    return Op("div", (top, bottom))


def _proper(fraction: Node) -> Fraction | None:
    return fraction.value if isinstance(fraction, Number) and 0 < fraction.value < 1 else None


def _number(text: str) -> Number:
    whole, point, decimals = text.partition(".")
    return Number(Fraction(f"{whole or '0'}.{decimals}" if decimals else whole or "0"), len(decimals) if decimals else None)


def _closed(opening: str, node: Node, closing: str) -> Node:
    if opening in ("lfloor", "lceil"):
        return Op(opening.removeprefix("l"), (node,))
    if isinstance(node, Such):
        return node
    plain = isinstance(node, Group) and node.brackets == ""
    if opening == "\\{":
        return Group("{}", node.items if plain else (node,))  # type: ignore[union-attr]
    if plain:
        return Group(opening + closing, node.items)  # type: ignore[union-attr]
    if _CLOSER[opening] != closing:
        raise UnreadableError("brackets that do not match")
    return Group("[]", (node,)) if isinstance(node, Group | Relation) and opening == "[" else node


__all__ = ["parse", "Measured"]
