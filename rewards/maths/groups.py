"""What brackets hold: tuples, intervals, sets, matrices, floor and ceiling."""

from rewards.maths.cursor import END
from rewards.maths.errors import UnreadableError
from rewards.maths.expressions import Expressions
from rewards.maths.syntax import Group, Matrix, Node, Op, Relation, Such, Words

_MATRICES = frozenset({"matrix", "pmatrix", "bmatrix", "smallmatrix", "array", "Bmatrix"})
_SYSTEMS = frozenset({"cases", "aligned", "align", "gathered", "split"})
_CLOSER = {"(": ")", "[": "]", "{": "}", "\\{": "\\}"}


class Groups(Expressions):
    """The part of the parser that reads brackets and environments."""

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
        if not self._bar_ahead():
            return None
        self.bars += 1
        variable: Node = self.sum() if self.peek().text != "(" else self.group()
        if self.accept("rel", "in"):
            variable = Relation((variable, self.set_operation()), ("in",))
        self.bars -= 1
        if not (self.accept("op", "|") or self.accept("op", ":")):
            raise UnreadableError("a set whose condition does not begin")
        return Such(variable, self.items())

    def _bar_ahead(self) -> bool:
        """Whether the set has a single bar or colon of its own, and what stands before it does not begin with one."""
        depth, bars = 0, 0
        for place in range(self.place, len(self.tokens)):
            token = self.tokens[place]
            depth += (token.kind == "open") - (token.kind == "close")
            if depth < 0:
                break
            bars += depth == 0 and token.kind == "op" and token.text in ("|", ":")
        return bars % 2 == 1 and self.peek().text != "|"

    def environment(self) -> Node:
        self.deeper()
        name = self.next().text
        if name not in _MATRICES and name not in _SYSTEMS:
            raise UnreadableError(f"environment {name}")
        self.brackets += 1
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
        self.brackets -= 1
        self.depth -= 1
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
