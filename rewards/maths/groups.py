"""What brackets hold: tuples, intervals, sets, matrices, floor and ceiling."""

from rewards.maths.cursor import END
from rewards.maths.errors import UnreadableError
from rewards.maths.expressions import Expressions
from rewards.maths.syntax import Group, Matrix, Node, Op, Relation, Such, Symbol

_MATRICES = frozenset({"matrix", "pmatrix", "bmatrix", "vmatrix", "smallmatrix", "array", "Bmatrix"})
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
            if self.peek() is END:
                raise UnreadableError("a matrix without end")
        self.next()
        self.brackets -= 1
        self.depth -= 1
        if row:
            rows.append(tuple(row))
        if not rows or len({len(r) for r in rows}) != 1:
            raise UnreadableError("rows of different lengths")
        return Matrix(tuple(rows))


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
