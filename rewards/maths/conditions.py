r"""Conditions behind an answer: "k in Z", "n >= 1". An answer may add them where the gold is silent; none may contradict.

>>> from rewards.maths.parser import parse
>>> kernel, domains, bounds = split(parse(r"k\pi, k \in \mathbb{Z}"))
>>> kernel == parse(r"k\pi"), sorted(domains), bounds
(True, ['Z'], ())
"""

from rewards.maths.functions import NUMBER_SETS
from rewards.maths.syntax import Group, Node, Number, Relation, Such, Symbol, is_expression, symbols

_INEQUALITIES = frozenset({"<", "<=", ">", ">=", "!="})
_COUNTERS = frozenset("k n m l j r".split())
_NO_DOMAIN = frozenset({"R"})
"""Every variable is real unless said otherwise."""

Split = tuple[Node, frozenset[str], tuple[Node, ...]]
"""The answer itself, the sets that its parameters come from, and the inequalities that hold for them."""


def split(node: Node) -> Split:
    """An answer without its conditions, and these."""
    if isinstance(node, Such):
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
    counted = [b for b in bounds if _says_no_more_than_counting(b)]
    return kernel, frozenset(domains - _NO_DOMAIN), tuple(b for b in bounds if b not in counted)


def _written_out(node: Such) -> Node:
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


def _says_no_more_than_counting(bound: Node) -> bool:
    """n >= 1"""
    match bound:
        case Relation((Symbol(name), Number(start)), (">=" | ">",)):
            return name in _COUNTERS and abs(start) <= 2
    return False
