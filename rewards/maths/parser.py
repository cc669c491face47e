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
from rewards.maths.lexer import tokens
from rewards.maths.names import resolve_letters
from rewards.maths.syntax import Group, Measured, Node, Op, Relation, SetOp, Symbol, Words
from rewards.maths.words import NEGATIONS, QUALIFIERS, unit_name


def parse(text: str) -> Node:
    """The syntax tree of an answer.

    Raises:
        UnreadableError: the text is no mathematics, is malformed, or goes beyond a bound.
    """
    return _Parser(resolve_letters(tokens(text))).answer()


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
        if self.peek() is END or self.at("sep") or self.at("close"):
            return Words(words.lower())
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
        while self.peek() is not END:
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

    def ratio(self) -> Node:
        parts = [self.sum()]
        while self.at("op", ":") and self.peek(1).kind not in ("end", "word"):
            self.next()
            parts.append(self.sum())
        return Op("ratio", tuple(parts)) if len(parts) > 1 else parts[0]


def _restrained(words: str) -> bool:
    """Whether words beside a number leave it the plain statement of that number."""
    found = re.findall(r"[\w'’-]+", words.lower().replace("’", "'"))
    return len(found) <= 12 and not any(w in NEGATIONS or w.endswith("n't") for w in found)
