r"""Tokens into a syntax tree: a recursive-descent parser with bounds on everything.

>>> parse(r"3\frac{1}{2}")
Number(value=Fraction(7, 2), places=None)
>>> parse("x <= 2").ops
('<=',)

The levels, loosest first: list - relation - set operation - ratio - sum - product - sign - power - primary.
"""

import re

from rewards.maths.cursor import END
from rewards.maths.errors import UnreadableError
from rewards.maths.groups import Groups
from rewards.maths.lexer import Token, tokens
from rewards.maths.names import resolve_letters
from rewards.maths.syntax import COUNTED, UNNAMED, Group, Measured, Node, Op, Relation, SetOp, Symbol, Words
from rewards.maths.words import NEGATIONS, QUALIFIERS, unit_name

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
_NOTHING = frozenset({"no solution", "no solutions", "no solution exists", "no solutions exist", "empty set"})
_MONTHS = frozenset("january february march april may june july august september october november december".split())
_SPOKEN = frozenset({"union", "intersection", "|", "minus"})


def parse(text: str) -> Node:
    """The syntax tree of an answer.

    Raises:
        UnreadableError: the text is no mathematics, is malformed, or goes beyond a bound.
    """
    return _Parser(_joined_inequalities(resolve_letters(tokens(text)))).answer()


def _joined_inequalities(found: list[Token]) -> list[Token]:
    """x < -1 \\cup x > 3: here the sign of the union stands for "or"."""
    unions = [place for place, token in enumerate(found) if token.text == "union"]
    if not unions or any(t.kind == "open" and t.text != "{" for t in found):
        return found
    parts = [found[i + 1 : j] for i, j in zip([-1, *unions], [*unions, len(found)], strict=True)]
    if not all(any(t.kind == "rel" and t.text != "in" for t in part) for part in parts):
        return found
    return [t._replace(kind="sep", text="or") if place in unions else t for place, t in enumerate(found)]


class _Parser(Groups):
    """The loosest levels: lists, the words around values, relations, set operations, ratios."""

    def answer(self) -> Node:
        node = self.items()
        if self.peek() is not END:
            raise UnreadableError(f"what is {self.peek().text!r}?")
        return node

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
                self.next()
                parts.append(self.items())
                self.expect("close", ")")
            if not self.at("sep", ",", ";", "and", "or", "\\\\") and not self._next_measure(parts[-1]):
                break
        if not parts:
            raise UnreadableError("nothing there")
        return parts[0] if len(parts) == 1 else Group("", tuple(parts), either)

    def _next_measure(self, last: Node) -> bool:
        """2 hours 30 minutes: a number straight behind a unit."""
        return isinstance(last, Measured) and bool(last.unit) and self.at("number")

    def item(self) -> Node:
        """A relation or expression with the words around it."""
        self.skip_sentence_opening()
        if (self.at("word") and self.peek(1).text != "_") or self._article():
            return self.words_first()
        return self.with_words(self.relation())

    def skip_sentence_opening(self) -> None:
        """A sign that says no more than that an answer follows: "= 5", "≈ 3.14", "+infinity"."""
        if self.at("op", "+") and self.peek(1).kind == "command" and self.peek(1).text == "infty":
            self.next()
        if self.place == 0:
            self.accept("rel", "=", "~")

    def words_first(self) -> Node:
        """Words alone; a label before "=" or ":"; or a sentence that names one number."""
        words = self.run_of_words()
        if words.lower() in ("negative", "minus"):
            return self.with_words(Op("neg", (self.product(),)))
        if _DENIED.search(words.lower()):
            raise UnreadableError("not an answer")
        if self.accept("rel", "=") or self.accept("op", ":"):
            return Relation((Words(words.lower()), self.item()), ("=",))
        if self.peek() is END or self.at("sep") or self.at("close"):
            return named_set(words) or Words(words.lower())
        if (start := _EXCEPT.fullmatch(words.lower())) and (whole := named_set(start[1])):
            return SetOp("minus", whole, _excluded(self.items()))
        if _restrained(words):
            return self.with_words(self.relation())
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
            return self.with_words(Measured(node, self.rest_of_unit(unit)))
        if words == "to" and self.at("number"):
            return Op("ratio", (node, self.sum()))
        if not _restrained(words) or _MONTHS & set(words.lower().split()):
            raise UnreadableError(f"{words!r} beside a value")
        return node if isinstance(node, Measured) else Measured(node, COUNTED + words.lower())

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
        inside = self.tokens[start + 2 : self.place - 1]
        if self.at("rel", "=", "~") and any(t.kind in ("rel", "word") or t.text in _SPOKEN for t in inside):
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


def named_set(words: str) -> Node | None:
    """ "all real numbers" and "no solution" as sets."""
    plain = re.sub(r"^(?:the (?:set of )?|there (?:is|are) )", "", words.lower().strip(" ."))
    if plain in _ALL_REALS:
        return Symbol("R")
    return Group("{}", ()) if plain in _NOTHING else None


def _excluded(items: Node) -> Node:
    """What stands behind "all real numbers except"."""
    parts = items.items if isinstance(items, Group) and items.brackets in ("", "{}") else (items,)
    values = (p.sides[1] if isinstance(p, Relation) and p.ops == ("=",) else p for p in parts)
    return Group("{}", tuple(values))


def _restrained(words: str) -> bool:
    """Whether words beside a number leave it the plain statement of that number."""
    found = re.findall(r"[\w'’-]+", words.lower().replace("’", "'"))
    return len(found) <= 12 and not any(w in NEGATIONS or w.endswith("n't") for w in found)
