r"""Tokens to a syntax tree: a recursive-descent parser with bounds on everything.

>>> parse(r"3\frac{1}{2}")
Number(value=Fraction(7, 2), places=None)
>>> parse("x <= 2").ops
('<=',)

The levels, loosest first: list - relation - set operation - ratio (here) - sum - product - sign - power - single value
(`expressions`) - number (`numerals`). Brackets, which hold lists again, are read here.
"""

import re
from fractions import Fraction

from rewards.maths.cursor import END, nested
from rewards.maths.expressions import INFIX, Expressions, divided
from rewards.maths.lexer import Token, resolve_letters, separated, tokens
from rewards.maths.limits import MAX_DEPTH, UnreadableError
from rewards.maths.syntax import (
    COUNTED,
    UNNAMED,
    Group,
    Matrix,
    Node,
    Number,
    Op,
    Quantity,
    Relation,
    SetBuilder,
    SetOp,
    Symbol,
    Words,
    children,
    is_expression,
)
from rewards.maths.units import unit_name
from rewards.maths.vocabulary import QUALIFIERS
from rewards.maths.words import harmless_before, harmless_behind, label, scale

_DENIED = re.compile(r"\b(?:not|never|wrong|incorrect|false|isn't|one of|any of|some of)\b")
_EXCEPT = re.compile(r"(.+?)(?: \w)? (?:except|other than|but not|excluding)(?: for)?")
_ALL_REALS = frozenset(
    {
        "all real numbers",
        "all reals",
        "all real",
        "all real values",
        "real numbers",
        "any real number",
        "every real number",
    }
)
_NOTHING = frozenset(
    {
        "no solution",
        "no solutions",
        "no real solution",
        "no real solutions",
        "no solution exists",
        "no solutions exist",
        "empty set",
    }
)
_MONTHS = frozenset("january february march april may june july august september october november december".split())
_SPOKEN = frozenset({"union", "intersection", "|", "minus"})


def parse(text: str) -> Node:
    """The syntax tree of an answer.

    Raises:
        UnreadableError: the text is no mathematics, is malformed, or goes beyond a bound.
    """
    found = separated(_joined_inequalities(resolve_letters(tokens(text))))
    return _bounded(Parser(found).answer())


def _bounded(node: Node) -> Node:
    """The same tree, unless it is too deep for what walks it: 42!!!!!! and 1/2/3/4/5 nest without brackets."""
    level, depth = [node], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise UnreadableError("nested too deeply")
        level = [child for parent in level for child in children(parent)]
    return node


def _joined_inequalities(found: list[Token]) -> list[Token]:
    """x < -1 \\cup x > 3: here the sign of the union stands for "or"."""
    unions = {place: None for place, token in enumerate(found) if token.text == "union"}
    if not unions or any(t.kind == "open" and t.text != "{" for t in found):
        return found
    parts = [found[i + 1 : j] for i, j in zip([-1, *unions], [*unions, len(found)], strict=True)]
    if not all(any(t.kind == "rel" and t.text != "in" for t in part) for part in parts):
        return found
    return [t._replace(kind="sep", text="or") if place in unions else t for place, t in enumerate(found)]


class Parser(Expressions):
    """The loosest levels: lists, the words around values, relations, set operations, ratios."""

    def answer(self) -> Node:
        node = self.contents()
        if self.peek() is not END:
            raise UnreadableError(f"what is {self.peek().text!r}?")
        return node

    def contents(self) -> Node:
        """What there is in braces, or at all: a list; or two parts with \\over or \\choose between them."""
        node = self.items()
        if not self.at("command", *INFIX):
            return node
        name = INFIX[self.next().text]
        below = self.items()
        return divided(node, below) if name == "div" else Op(name, (node, below))

    def items(self) -> Node:
        """Parts between commas, semicolons, "and" and "or"; one part stands for itself."""
        parts: list[Node] = []
        either = False
        while True:
            while self.at("sep", ",", ";", "and", "or", "\\\\"):
                either |= self.next().text == "or"
            if self.peek() is END or self.at("close"):
                break
            parts.append(self.item())
            if self.condition_ahead():
                parts.append(self.condition())
            if not self.at("sep", ",", ";", "and", "or", "\\\\") and not self._next_measure(parts[-1]):
                break
        if not parts:
            raise UnreadableError("nothing there")
        if len(parts) == 1:
            return _unlabelled(parts[0])
        return Group("", tuple(map(_labelled, parts)), either)

    @nested
    def condition(self) -> Node:
        self.next()
        node = self.items()
        self.expect("close", ")")
        return node

    def _next_measure(self, last: Node) -> bool:
        """2 hours 30 minutes: a number straight behind a unit."""
        return isinstance(last, Quantity) and bool(last.unit) and self.at("number")

    def item(self) -> Node:
        """A relation or expression with the words around it."""
        self.skip_sentence_opening()
        if (self.at("word") and self.peek(1).text != "_") or self._article():
            return self.words_first()
        return self.with_words(self.relation())

    def skip_sentence_opening(self) -> None:
        """A sign that says only that an answer follows: "= 5", "≈ 3.14", "+infinity"."""
        if self.at("op", "+") and self.peek(1).kind == "command" and self.peek(1).text == "infty":
            self.next()
        if self.place == 0:
            self.accept("rel", "=", "~")

    @nested
    def words_first(self) -> Node:
        """Words alone; a label before "=" or ":"; or a sentence that names one number."""
        words = self.run_of_words()
        if words.lower() in ("negative", "minus"):
            return self.with_words(Op("neg", (self.product(),)))
        if _DENIED.search(words.lower()):
            raise UnreadableError("not an answer")
        if self.at("rel", "=") or self.at("op", ":"):
            if not harmless_before(words):
                raise UnreadableError("not a label")
            self.next()
            return _named(Words(words.lower()), self.item())
        if self.peek() is END or self.at("sep") or self.at("close"):
            return named_set(words) or Words(words.lower())
        if (start := _EXCEPT.fullmatch(words.lower())) and (whole := named_set(start[1])):
            return SetOp("minus", whole, _excluded(self.items()))
        called = self.at("open") and not self.peek().spaced
        if harmless_before(words) and not called:
            value = self.with_words(self.relation())
            return Relation((Words(words.lower()), value), (LABELLED,)) if label(words) else value
        raise UnreadableError("a sentence")

    def run_of_words(self) -> str:
        found: list[str] = []
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

    @nested
    def with_words(self, node: Node) -> Node:
        """A value with the words behind it: a unit, what is counted, or a condition."""
        words = self.run_of_words() or self.aside()
        if not words:
            return node
        first = words.lower().split()[0]
        if first in QUALIFIERS:
            self.skip_qualifier(first)
            return node
        unit = unit_name(words)
        if unit:
            return self.with_words(Quantity(node, self.rest_of_unit(unit)))
        factor, rest = scale(words)
        if factor != 1 and is_expression(node):
            node, words = _scaled(node, factor), rest
            if not words:
                return node
            if unit := unit_name(words):
                return Quantity(node, unit)
        if words == "to" and self.at("number"):
            return Op("ratio", (node, self.sum()))
        if not harmless_behind(words) or _MONTHS & set(words.lower().split()):
            raise UnreadableError(f"{words!r} beside a value")
        return node if isinstance(node, Quantity) else Quantity(node, COUNTED + words.lower())

    def rest_of_unit(self, unit: str) -> str:
        """A unit with its exponent, and what it is divided by."""
        if self.accept("op", "^"):
            power = {"2": "square ", "3": "cubic "}.get(self.next_exponent(), "")
            above, per, below = unit.partition(" per ")
            unit = above + per + power + below if per else power + unit
        if self.accept("op", "/"):
            below = unit_name(self.next().text) if self.at("symbol", "s", "h") else unit_name(self.run_of_words())
            if not below:
                raise UnreadableError("a unit divided by nothing")
            if self.accept("op", "^"):
                below = {"2": "square ", "3": "cubic "}.get(self.next_exponent(), "") + below
            unit += " per " + below
        return unit

    def next_exponent(self) -> str:
        braces = self.accept("open", "{")
        text = self.next().text
        if braces:
            self.expect("close", "}")
        return text

    def skip_qualifier(self, first: str) -> None:
        """Past the condition, up to the next part; "where" and its like qualify all that went before."""
        depth = 0
        while self.peek() is not END:
            token = self.peek()
            if depth == 0 and (token.kind == "close" or (token.kind == "sep" and first in ("for", "if", "when"))):
                return
            depth += (token.kind == "open") - (token.kind == "close")
            self.next()

    def relation(self) -> Node:
        name = self.function_name() or self.described()
        if name is None and self.at("rel", "<", "<=", ">", ">=", "!="):
            name = Symbol(UNNAMED)
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
        if self.at("op", "^") and self.peek(1).text == "{" and self.peek(2).text in ("-", "("):
            start_of_inverse = self.place
            self.next()
            self.skip_argument()
            function += "".join(t.text for t in self.tokens[start_of_inverse : self.place])
        if not self.at("open", "("):
            self.place = start
            return None
        self.next()
        arguments = []
        while self.peek().kind in ("symbol", "number", "sep") or self.at("op", "+", "-"):
            token = self.next()
            if token.kind != "sep":
                arguments.append(Symbol(token.text))
        if self.accept("close", ")") and self.at("rel", "="):
            return Op("call", (Symbol(function), *arguments))
        self.place = start
        return None

    def described(self) -> Node | None:
        """`P(X > 2)` or `P(A | B)` before "=": a name, whatever it says inside."""
        start = self.place
        if self.peek().kind not in ("symbol", "word") or self.peek(1).text not in ("(", "["):
            return None
        name = self.next().text
        self.skip_argument()
        if self.at("rel", "=", "~"):
            inside = self.tokens[start + 2 : self.place - 1]
            if any(t.kind in ("rel", "word") or t.text in _SPOKEN for t in inside):
                return Op("call", (Symbol(name), Words(" ".join(t.text for t in inside))))
        self.place = start
        return None

    def set_operation(self) -> Node:
        left = self.ratio()
        while self.at("op", "union", "intersection", "minus") or self.bare_union() or self.set_difference(left):
            name = self.next().text
            name = {"-": "minus"}.get(name, name) if name in ("union", "intersection", "minus", "-") else "union"
            left = SetOp(name, left, self.ratio())
        return left

    def ratio(self) -> Node:
        parts = [self.sum()]
        while self.at("op", ":") and not self.bars and self.peek(1).kind not in ("end", "word"):
            self.next()
            parts.append(self.sum())
        return Op("ratio", tuple(parts)) if len(parts) > 1 else parts[0]

    # Brackets and environments.

    @nested
    def group(self, may_be_set: bool = True) -> Node:
        """Parentheses around an expression; a tuple, interval or set; floor and ceiling. LaTeX braces group, and models write
        sets with them."""
        opening = self.next().text
        bars, self.bars = self.bars, 0
        if may_be_set and opening in ("{", "\\{") and self._bar_ahead():
            node = self.set_builder()
        else:
            node = Group("", ()) if self.at("close") and opening != "{" else self.contents()
        closing = self.expect("close", *(("}",) if opening == "{" else ())).text
        self.bars = bars
        return _closed(opening, node, closing)

    def braced(self) -> Node:
        """The braces of a command's argument; a list in them is a set."""
        return self.group(may_be_set=False)

    def set_builder(self) -> Node:
        """x | condition, or x : condition."""
        self.bars += 1
        variable: Node = self.sum() if self.peek().text != "(" else self.group()
        if self.accept("rel", "in"):
            variable = Relation((variable, self.set_operation()), ("in",))
        self.bars -= 1
        if not (self.accept("op", "|") or self.accept("op", ":")):
            raise UnreadableError("a set whose condition does not begin")
        return SetBuilder(variable, self.items())

    def _bar_ahead(self) -> bool:
        """True where the set has a single bar or colon of its own, and the text before it does not begin with one."""
        return self.bracket_at[self.place - 1].bars % 2 == 1 and self.peek().text != "|"

    @nested
    def environment(self) -> Node:
        name = self.next().text
        if name not in _MATRICES and name not in _SYSTEMS:
            raise UnreadableError(f"environment {name}")
        rows: list[tuple[Node, ...]] = []
        row: list[Node] = []
        while not self.at("end_environment"):
            if self.accept("sep", "\\\\"):
                rows.append(tuple(row))
                row = []
            elif not self.accept("sep", "&", ",", ";"):
                row.append(self.cell() if name in _SYSTEMS else self.relation())
            if self.peek() is END:
                raise UnreadableError("a matrix without end")
        self.next()
        if row:
            rows.append(tuple(row))
        rows = [r for r in rows if r]
        if not rows or len({len(r) for r in rows}) != 1:
            raise UnreadableError("rows of different lengths")
        if name in _SYSTEMS or (len(rows[0]) == 1 and all(isinstance(r[0], Relation) for r in rows)):
            parts = [r[0] if len(r) == 1 else Group("()", r) for r in rows]
            return parts[0] if len(parts) == 1 else Group("", tuple(parts))
        return Matrix(tuple(rows))

    def cell(self) -> Node:
        """An equation, or a case with what it holds for: "x & if x > 0"."""
        if self.at("word") and self.peek().text.lower() in ("if", "for", "when", "where"):
            self.next()
        if self.at("word"):
            return Words(self.run_of_words().lower())
        return self.relation()


def named_set(words: str) -> Node | None:
    """ "all real numbers" and "no solution" as sets."""
    plain = re.sub(r"^(?:the (?:set of )?|there (?:is|are) )", "", words.lower().strip(" ."))
    if plain in _ALL_REALS:
        return Symbol("R")
    return Group("{}", ()) if plain in _NOTHING else None


def _excluded(items: Node) -> Node:
    """The numbers behind "all real numbers except"."""
    parts = items.items if isinstance(items, Group) and items.brackets in ("", "{}") else (items,)
    values = (p.sides[1] if isinstance(p, Relation) and p.ops == ("=",) else p for p in parts)
    return Group("{}", tuple(values))


def _named(name: Words, value: Node) -> Relation:
    """total = 6 * 7 = 42: one chain."""
    if isinstance(value, Relation) and set(value.ops) == {"="}:
        return Relation((name, *value.sides), ("=", *value.ops))
    return Relation((name, value), ("=",))


def _scaled(node: Node, factor: Fraction) -> Node:
    return Number(node.value * factor) if isinstance(node, Number) else Op("mul", (Number(factor), node))


LABELLED = ":"
"""The relation of a value to the words before it, while it is not known whether it has others beside it."""


def _unlabelled(node: Node) -> Node:
    """A value alone needs no label: "the total is 5"."""
    return node.sides[1] if isinstance(node, Relation) and node.ops == (LABELLED,) else node


def _labelled(node: Node) -> Node:
    """In a list a label says which part is which: "maximum 5, minimum -3"."""
    return Relation(node.sides, ("=",)) if isinstance(node, Relation) and node.ops == (LABELLED,) else node


_MATRICES = frozenset({"matrix", "pmatrix", "bmatrix", "smallmatrix", "array", "Bmatrix"})
_SYSTEMS = frozenset({"cases", "aligned", "align", "gathered", "split"})
_CLOSER = {"(": ")", "[": "]", "{": "}", "\\{": "\\}"}


def _closed(opening: str, node: Node, closing: str) -> Node:
    if opening in ("lfloor", "lceil"):
        return Op(opening.removeprefix("l"), (node,))
    if isinstance(node, SetBuilder):
        return node
    plain = isinstance(node, Group) and node.brackets == ""
    if opening == "\\{":
        return Group("{}", node.items if plain else (node,))  # type: ignore[union-attr]
    if plain:
        return Group(opening + closing, node.items)  # type: ignore[union-attr]
    if _CLOSER[opening] != closing:
        raise UnreadableError("brackets that do not match")
    return Group("[]", (node,)) if isinstance(node, Group | Relation) and opening == "[" else node
