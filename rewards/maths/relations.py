"""Equations and inequalities: the values that they give names, multiples of each other, and conditions on parameters."""

from collections.abc import Callable
from fractions import Fraction

from rewards.maths.evaluate import exact
from rewards.maths.syntax import (
    COUNTED,
    Group,
    Node,
    Number,
    Op,
    Quantity,
    Relation,
    SetBuilder,
    Symbol,
    Words,
    is_expression,
    is_name,
    rename,
    replaced,
    symbols,
)
from rewards.maths.vocabulary import FUNCTIONS, NUMBER_SETS
from rewards.maths.zero_testing import same_value

Same = Callable[[Node, Node], bool]
"""The comparison of parts; handed in, because parts may be anything."""


def same_inequality(a: Relation, g: Relation, same: Same) -> bool:
    """One is the other times a number; a negative number turns the sign around."""
    if len(a.ops) != len(g.ops):
        return False
    if len(a.ops) > 1:
        straight = a.ops == g.ops and all(map(same, a.sides, g.sides))
        turned = tuple({"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(op, op) for op in reversed(a.ops))
        return straight or (turned == g.ops and all(map(same, reversed(a.sides), g.sides)))
    factor = _factor(_difference(a), _difference(g))
    if factor is None:
        return False
    turn = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
    return (a.ops[0] if factor > 0 else turn.get(a.ops[0], a.ops[0])) == g.ops[0]


def same_relations(a: Node, g: Node, same: Same) -> bool:
    """An equation may leave out what it names ("x = 5" for 5), and two equations may be multiples of each other."""
    if (spoken := _stated(a)) is not None and is_expression(g) and not symbols(g):
        return same(spoken, g)
    named_a, named_g = named(a), named(g)
    if named_a and named_g:
        if _same_name(named_a, named_g):
            return same(_to_variables_of(named_a, named_g), named_g[1])
        return _same_equation(a, g)
    if named_a:
        return same(named_a[1], g) if not isinstance(g, Relation) else _same_equation(a, g)
    if named_g:
        if isinstance(a, Relation):
            return _same_equation(a, g)
        return same(a, named_g[1]) if not _is_equation_of_several(named_g[0]) else False
    if isinstance(a, Relation) and isinstance(g, Relation):
        return _same_equation(a, g)
    return isinstance(g, Relation) and _solved_for_missing(a, g)


def _stated(node: Node) -> Node | None:
    """The value of a quantity made of several letters, or of a function: m + n = 25, sin A = 3/5.

    Only an answer may say so much; as a gold, x + y = 3 is a line, and so is 2x - y + 3 = 0, whose zero is no value.
    """
    if not isinstance(node, Relation) or node.ops != ("=",):
        return None
    quantity, value = node.sides
    if not is_expression(value) or symbols(value) or not is_expression(quantity):
        return None
    if isinstance(quantity, Op) and quantity.name == "add" and not all(map(symbols, quantity.args)):
        return None
    if exact(value) == 0 and len(symbols(quantity)) > 1:
        return None
    of_name = isinstance(quantity, Op) and quantity.name in FUNCTIONS and all(map(is_name, quantity.args))
    return value if of_name or len(symbols(quantity)) > 1 else None


def _is_equation_of_several(name: Node) -> bool:
    """xy in "xy = 6" is no name but a product; AB in "AB = 6" is a segment."""
    return isinstance(name, Op) and name.name in ("mul", "div") and any(n.islower() for n in symbols(name))


def named(node: Node) -> tuple[Node, Node] | None:
    """The name that an equation defines, and its value; None for any other node."""
    if not isinstance(node, Relation) or len(node.sides) != 2 or node.ops[0] not in ("=", "in"):
        return None
    left, right = node.sides
    if is_name(left):
        return left, right
    return (right, left) if is_name(right) else None


def _same_name(a: tuple[Node, Node], g: tuple[Node, Node]) -> bool:
    """f(x) and f(t), y and f(x), N and n where they are numbers."""
    name, other = a[0], g[0]
    if isinstance(name, Op) and isinstance(other, Op) and name.name == other.name == "call":
        same = name.args[0] == other.args[0] and len(name.args) == len(other.args)
        return same and all(
            x == z or (_is_variable(x) and _is_variable(z)) for x, z in zip(name.args, other.args, strict=True)
        )
    if isinstance(name, Symbol) and isinstance(other, Symbol) and not symbols(a[1]) and not symbols(g[1]):
        return name.name.lower() == other.name.lower()
    y = Symbol("y")
    return name == other or (name == y and _is_call(other)) or (other == y and _is_call(name))


def _is_variable(node: Node) -> bool:
    """The n of f(n), which may have another letter; not the A of P(A), nor the 2 of f(2)."""
    return isinstance(node, Symbol) and len(node.name) == 1 and node.name.islower()


def _is_call(node: Node) -> bool:
    """f(x), for which people write y, too."""
    return isinstance(node, Op) and node.name == "call" and len(node.args) == 2


def _to_variables_of(a: tuple[Node, Node], g: tuple[Node, Node]) -> Node:
    """The value of f(m) = ... in the letters of f(n) = ..., or of y = ..., which has one letter."""
    old, new = (
        [x.name for x in name.args[1:] if isinstance(x, Symbol)] if isinstance(name, Op) else sorted(symbols(value))
        for name, value in (a, g)
    )
    if any(isinstance(name, Op) and name.name == "call" for name in (a[0], g[0])) and len(old) == len(new):
        return rename(a[1], dict(zip(old, new, strict=True)))
    return a[1]


def _difference(node: Relation) -> Node:
    return Op("add", (node.sides[0], Op("neg", (node.sides[-1],))))


def _same_equation(a: Node, g: Node) -> bool:
    if (
        not (isinstance(a, Relation) and isinstance(g, Relation))
        or a.ops != g.ops
        or len(a.ops) != 1
        or a.ops[0] not in ("=", "!=")
    ):
        return False
    return _factor(_difference(a), _difference(g)) is not None or _monomial_factor(_difference(a), _difference(g))


def _monomial_factor(a: Node, g: Node) -> bool:
    """True where one is the other times a product of powers of the variables, as xy - 1 is x (y - 1/x).

    A variable may be multiplied in only where the other divides by it: xy = 2x^2 is not y = 2x, for it has the line x = 0 too.
    """
    names = sorted(symbols(a) | symbols(g))
    if not (is_expression(a) and is_expression(g)) or symbols(a) != symbols(g) or not names:
        return False
    powers = []
    for name in names:
        ratios = {_growth(a, g, names, name, start) for start in (3, 7)}
        if len(ratios) != 1 or (growth := ratios.pop()) is None:
            return False
        power = growth.numerator.bit_length() - growth.denominator.bit_length()
        if growth != Fraction(2) ** power or abs(power) > 3:
            return False
        if power and not _divides_by(g if power > 0 else a, name):
            return False
        powers.append(Op("pow", (Symbol(name), Number(Fraction(power)))))
    return _factor(a, Op("mul", (g, *powers))) is not None


def _divides_by(node: Node, name: str) -> bool:
    """True where an expression has no value if this variable is 0."""
    others = sorted(symbols(node) - {name})
    return exact(_at(replaced(node, name, Number(Fraction(0))), others, 5)) is None


def _growth(a: Node, g: Node, names: list[str], name: str, start: int) -> Fraction | None:
    """By how much a / g grows when one variable doubles."""
    values = [
        exact(_at(replaced(n, name, scaled), names, start)) for n in (a, g) for scaled in (_twice(name), Symbol(name))
    ]
    if any(v is None or v == 0 for v in values):
        return None
    above, above_before, below, below_before = (v or Fraction(1) for v in values)
    return above * below_before / (above_before * below)


def _twice(name: str) -> Node:
    return Op("mul", (Number(Fraction(2)), Symbol(name)))


def _factor(a: Node, g: Node) -> Fraction | None:
    """The number c, not 0, with a = c g; None if there is none."""
    names = symbols(a) | symbols(g)
    if not (is_expression(a) and is_expression(g)) or symbols(a) != symbols(g) or not names:
        return None
    for start in (3, 7, 11):
        values = [exact(_at(node, sorted(names), start)) for node in (a, g)]
        if values[0] and values[1]:
            factor = values[0] / values[1]
            return factor if same_value(a, Op("mul", (Number(factor), g))) else None
    return Fraction(1) if same_value(a, g) else Fraction(-1) if same_value(a, Op("neg", (g,))) else None


def _at(node: Node, names: list[str], start: int) -> Node:
    for place, name in enumerate(names):
        node = replaced(node, name, Number(Fraction(start + 2 * place, 2)))
    return node


def _solved_for_missing(a: Node, g: Relation) -> bool:
    """The gold is an equation in x and y, the answer the expression that y equals."""
    missing = symbols(g) - symbols(a)
    if not is_expression(a) or not symbols(a) or len(missing) != 1:
        return False
    name = next(iter(missing))
    difference = _difference(g)
    if not is_expression(difference):
        return False
    at = [replaced(difference, name, Number(Fraction(value))) for value in (0, 1, 2)]
    slope = Op("add", (at[1], Op("neg", (at[0],))))
    zero = Number(Fraction(0))
    linear = same_value(Op("add", (at[2], Op("neg", (at[1],)))), slope) and not same_value(slope, zero)
    return linear and same_value(replaced(difference, name, a), zero)


# Lists of named parts ("x = 3, y = 4", "5 apples and 3 pears"), and the tuples that are equal to them.


def as_tuples(a: Node, g: Node) -> tuple[Node, Node] | None:
    """ "x = 3, y = 4" and (3, 4), or (x, y) = (3, 4): both as tuples; None for anything else."""
    if (spread := (_spread(a), _spread(g))) != (a, g):
        return spread
    for one, other in ((a, g), (g, a)):
        if not (isinstance(one, Group) and one.brackets == "" and len(one.items) > 1 and all_named(one)):
            continue
        pairs = [pair for pair in map(named, one.items) if pair]
        target = other.sides[0] if isinstance(other, Relation) and other.ops == ("=",) else None
        if isinstance(target, Group) and isinstance(other, Relation):
            if {n for n, _ in pairs} != set(target.items):
                return None
            pairs.sort(key=lambda pair: target.items.index(pair[0]))
            other = other.sides[1]
        elif all(isinstance(n, Symbol) and len(n.name) == 1 for n, _ in pairs):
            pairs.sort(key=lambda pair: pair[0].name)  # type: ignore[union-attr]
        if not (isinstance(other, Group) and other.brackets == "()"):
            continue
        values = Group("()", tuple(value for _, value in pairs))
        return (values, other) if one is a else (other, values)
    return None


def _spread(node: Node) -> Node:
    """ "(y, x) = (1, 2)" as "y = 1, x = 2", since x goes before y."""
    match node:
        case Relation((Group("()", names), Group("()", values)), ("=",)) if len(names) == len(values):
            letters = [n.name for n in names if isinstance(n, Symbol)]
            if letters != sorted(letters) and set(letters) <= {"x", "y", "z"}:
                return Group("", tuple(Relation(pair, ("=",)) for pair in zip(names, values, strict=True)))
    return node


def all_named(group: Group) -> bool:
    """True where every part has a name of its own."""
    names = [pair[0] for pair in map(named_part, group.items) if pair]
    return len(names) == len(group.items) == len(set(names))


def named_part(node: Node) -> tuple[Node, Node] | None:
    """Name and value of a part of a list: x = 5, or 5 apples."""
    if isinstance(node, Quantity) and node.unit.startswith(COUNTED):
        return Words(node.unit.removeprefix(COUNTED)), node.value
    return named(node)


# Conditions of an answer: "k in Z", "n >= 1". An answer may add them where the gold has none, but not contradict it.


_INEQUALITIES = frozenset({"<", "<=", ">", ">=", "!="})
_COUNTERS = frozenset("k n m l j r".split())
_NO_DOMAIN = frozenset({"R"})
"""Every variable is real unless said otherwise."""

Split = tuple[Node, frozenset[str], tuple[Node, ...]]
"""The answer itself, the sets that its parameters come from, and the inequalities that hold for them."""


def split_conditions(node: Node) -> Split:
    """An answer without its conditions, and these."""
    if isinstance(node, SetBuilder):
        node = _written_out(node)
    if not isinstance(node, Group) or node.brackets != "" or len(node.items) < 2:
        return node, frozenset(), ()
    values = [i for i in node.items if is_expression(i) or isinstance(i, Group) or _is_equation(i)]
    free = frozenset().union(*(symbols(_value(v)) for v in values))
    domains: set[str] = set()
    bounds: list[Node] = []
    kept: list[Node] = []
    for item in node.items:
        domain = _domain(item)
        if domain and (symbols(item) - NUMBER_SETS <= free or domain in _NO_DOMAIN):
            domains.add(domain)
        elif _is_bound(item) and symbols(item) <= free:
            bounds.append(item)
        else:
            kept.append(item)
    if not kept or not (domains or bounds):
        return node, frozenset(), ()
    kernel = kept[0] if len(kept) == 1 else Group("", tuple(kept), node.joined_by_or)
    return kernel, frozenset(domains), tuple(bounds)


def _written_out(node: SetBuilder) -> Node:
    """{2k | k in Z} and {x | x = 2k, k in Z} as lists of the value and its conditions."""
    conditions = node.condition.items if isinstance(node.condition, Group) else (node.condition,)
    if isinstance(node.variable, Symbol):
        equations = [
            c for c in conditions if _is_equation(c) and isinstance(c, Relation) and c.sides[0] == node.variable
        ]
        return Group("", conditions) if equations and len(conditions) > 1 else node
    return node if isinstance(node.variable, Relation) else Group("", (node.variable, *conditions))


def _is_equation(node: Node) -> bool:
    return isinstance(node, Relation) and node.ops == ("=",)


def _value(node: Node) -> Node:
    return node.sides[1] if isinstance(node, Relation) else node


def _domain(node: Node) -> str:
    """The Z of "k in Z"."""
    if not (isinstance(node, Relation) and node.ops == ("in",) and isinstance(node.sides[1], Symbol)):
        return ""
    return node.sides[1].name if node.sides[1].name in NUMBER_SETS else ""


def _is_bound(node: Node) -> bool:
    return isinstance(node, Relation) and set(node.ops) <= _INEQUALITIES and all(map(is_expression, node.sides))


def only_counts(bound: Node) -> bool:
    """n >= 1: says no more than that n counts."""
    match bound:
        case Relation((Symbol(name), Number(start)), (">=" | ">",)):
            return name in _COUNTERS and abs(start) <= 2
    return False


def hardly_restricts(bound: Node) -> bool:
    """x > 0, x != -1, 0 < x < 1: what goes without saying where a formula is defined, or counts; n > 100 is a restriction."""
    return isinstance(bound, Relation) and all(abs(v) <= 2 for v in map(exact, bound.sides) if v is not None)
