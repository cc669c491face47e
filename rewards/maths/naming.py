"""Lists whose parts have names ("x = 3, y = 4", "5 apples and 3 pears"), and the tuples that say the same."""

from rewards.maths.relations import named
from rewards.maths.syntax import COUNTED, Group, Measured, Node, Relation, Symbol, Words


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
    """Whether every part has a name of its own."""
    names = [pair[0] for pair in map(named_part, group.items) if pair]
    return len(names) == len(group.items) == len(set(names))


def named_part(node: Node) -> tuple[Node, Node] | None:
    """What a part of a list names: x = 5, or 5 apples."""
    if isinstance(node, Measured) and node.unit.startswith(COUNTED):
        return Words(node.unit), node.value
    return named(node)
