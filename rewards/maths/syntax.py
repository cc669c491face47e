"""The syntax tree of an answer. Plain data: nothing here evaluates anything.

An expression is a `Number`, `Symbol` or `Op`. An answer may also be a `Relation` ("x < 3"), a `Group` (list, tuple, set,
interval), a `SetOp` (unions), a `Matrix`, or `Words`.

What walks a tree pays for its nodes (`limits.spend`), so that no list of many expressions is walked again and again.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias, TypeGuard

from rewards.maths.limits import spend


@dataclass(frozen=True, slots=True)
class Number:
    """A rational number as written.

    Attributes:
        value: exact.
        places: digits after the decimal point; None for anything else than a decimal.
    """

    value: Fraction
    places: int | None = None


@dataclass(frozen=True, slots=True)
class Symbol:
    """A letter with its subscript, or a constant: `pi`, `e`, `i`, `oo`."""

    name: str


@dataclass(frozen=True, slots=True)
class Op:
    """An operation or a function.

    `name` is one of add, mul, div, neg, pow, pm, mp, ratio, percent, degree, fact, binom, mod, or a function's name.
    """

    name: str
    args: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Relation:
    """A chain of relations: `sides[0] ops[0] sides[1] ops[1] ...`; ops among = != < <= > >= in ~."""

    sides: tuple["Node", ...]
    ops: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """Several parts. `brackets` is "" for a bare list, "{}" for a set, "()" for a tuple or open interval, "[)" and so on."""

    brackets: str
    items: tuple["Node", ...]
    joined_by_or: bool = False


@dataclass(frozen=True, slots=True)
class SetOp:
    """union, intersection or minus of two sets."""

    name: str
    left: "Node"
    right: "Node"


@dataclass(frozen=True, slots=True)
class SetBuilder:
    """{variable | condition}."""

    variable: "Node"
    condition: "Node"


@dataclass(frozen=True, slots=True)
class Matrix:
    """Rows of entries."""

    rows: tuple[tuple["Node", ...], ...]


@dataclass(frozen=True, slots=True)
class Quantity:
    """A value with a unit, or with words that say what it counts."""

    value: "Node"
    unit: str


@dataclass(frozen=True, slots=True)
class BasedNumber:
    """A numeral in a base, such as 2516_8."""

    digits: str
    base: int


@dataclass(frozen=True, slots=True)
class Words:
    """Text, in lower case, words separated by single spaces."""

    text: str


Node: TypeAlias = Number | Symbol | Op | Relation | Group | SetOp | SetBuilder | Matrix | Quantity | BasedNumber | Words

COUNTED = "~"
"""Before a unit that is no unit but says what is counted: 5 apples. It goes without saying."""
UNNAMED = "?"
"""The variable of an inequality that leaves it out: "> 3"."""
CONSTANTS = frozenset({"pi", "e", "i", "oo"})


def children(node: Node) -> tuple[Node, ...]:
    """The parts of a node, in order."""
    spend(1)
    match node:
        case Op(_, args):
            return args
        case Relation(sides, _):
            return sides
        case Group(_, items, _):
            return items
        case SetOp(_, left, right) | SetBuilder(left, right):
            return (left, right)
        case Matrix(rows):
            return tuple(entry for row in rows for entry in row)
        case Quantity(value, _):
            return (value,)
    return ()


def is_expression(node: Node) -> bool:
    """True for a node with a value: numbers, symbols and operations all the way down."""
    return isinstance(node, Number | Symbol) or (isinstance(node, Op) and all(map(is_expression, children(node))))


def is_op(node: Node, name: str) -> TypeGuard[Op]:
    """True for the operation of this name."""
    return isinstance(node, Op) and node.name == name


def symbols(node: Node) -> frozenset[str]:
    """The names of the variables in a node; constants are none."""
    if isinstance(node, Symbol):
        return frozenset() if node.name in CONSTANTS else frozenset({node.name})
    if isinstance(node, Number):
        return frozenset()
    return frozenset().union(*map(symbols, children(node)))


def rename(node: Node, names: dict[str, str]) -> Node:
    """The same tree with variables renamed."""
    spend(1)
    match node:
        case Symbol(name):
            return Symbol(names.get(name, name))
        case Op(name, args):
            return Op(name, tuple(rename(a, names) for a in args))
        case Relation(sides, ops):
            return Relation(tuple(rename(s, names) for s in sides), ops)
        case Group(brackets, items, either):
            return Group(brackets, tuple(rename(i, names) for i in items), either)
        case SetOp(name, left, right):
            return SetOp(name, rename(left, names), rename(right, names))
        case SetBuilder(variable, condition):
            return SetBuilder(rename(variable, names), rename(condition, names))
        case Matrix(rows):
            return Matrix(tuple(tuple(rename(e, names) for e in row) for row in rows))
        case Quantity(value, unit):
            return Quantity(rename(value, names), unit)
    return node


def replaced(node: Node, name: str, value: Node) -> Node:
    """An expression with another in the place of a symbol."""
    spend(1)
    if isinstance(node, Symbol):
        return value if node.name == name else node
    return Op(node.name, tuple(replaced(a, name, value) for a in node.args)) if isinstance(node, Op) else node


def contains(node: Node, *names: str) -> bool:
    """True where an operation of one of these names is anywhere in the node."""
    return (isinstance(node, Op) and node.name in names) or any(contains(c, *names) for c in children(node))


def is_name(node: Node) -> bool:
    """x, x_1, f(x), AB, |AB|, NO/BO, (p, q, r), "maximum": letters that stand for something."""
    match node:
        case Symbol(name):
            return name not in ("pi", "oo", "i")
        case Words():
            return True
        case Op("call", _):
            return True
        case Op("mul" | "div" | "abs" | "ratio" | "conj" | "det", args):
            return all(map(is_name, args))
        case SetOp(_, left, right):
            return is_name(left) and is_name(right)
        case Group("()", items):
            return all(isinstance(i, Symbol) for i in items)
        case Quantity(value, _):
            return is_name(value)
    return False
