"""Compare two syntax trees: the rules for lists, tuples, sets, equations, units and approximations.

Every rule is about what an answer may leave out or write otherwise without saying something else. What no rule covers is
different: nothing is paid for a doubt.
"""

from rewards.maths.evaluate import exact
from rewards.maths.families import is_family, same_family
from rewards.maths.limits import spend
from rewards.maths.piecewise import is_piecewise, same_function
from rewards.maths.relations import (
    all_named,
    as_tuples,
    hardly_restricts,
    named_part,
    only_counts,
    same_inequality,
    same_relations,
    split_conditions,
)
from rewards.maths.sets import NoSetError, is_plainly_a_set, real_set, same_set
from rewards.maths.simplify import simplify, without_signs
from rewards.maths.syntax import (
    COUNTED,
    UNNAMED,
    BasedNumber,
    Group,
    Matrix,
    Node,
    Number,
    Op,
    Quantity,
    Relation,
    Symbol,
    Words,
    is_expression,
    is_op,
    symbols,
)
from rewards.maths.units import size
from rewards.maths.values import renamed_parameter, same_expressions
from rewards.maths.vectors import components, is_array, same_line
from rewards.maths.vocabulary import number_word
from rewards.maths.words import label
from rewards.maths.zero_testing import same_value, sign_of_infinity

_IDLE_WORDS = frozenset("the a an it is on in at".split())
_INFINITE_WORDS = frozenset({"infinity", "infinitely many", "infinite", "infinitely many solutions"})


def same_answer(answer: Node, gold: Node) -> bool:
    """True where an answer means the same as the gold. Not symmetric: a gold in decimals allows for rounding.

    Two answers that can't be compared are not the same.

    Raises:
        OutOfWorkError: the caller's budget is used up.
    """
    simple_answer, simple_gold = simplify(answer), simplify(gold)
    if simple_answer is None or simple_gold is None:
        return False
    return _same_under_conditions(without_signs(simple_answer), without_signs(simple_gold))


def _same_under_conditions(a: Node, g: Node) -> bool:
    """The answer may say where its parameters come from when the gold is silent, but nothing else than the gold.

    A gold that stands for a set of numbers, one for each integer, is compared as one.
    """
    a, domains_a, bounds_a = split_conditions(a)
    g, domains_g, bounds_g = split_conditions(g)
    if domains_a and domains_g and domains_a != domains_g:
        return False
    if is_family(g, "Z" in domains_g, "Z" in domains_a):
        if bounds_a or bounds_g:
            return _same_bounds(bounds_a, bounds_g) and _same(a, g)
        if (decided := same_family(a, g)) is not None:
            return decided
    stated = tuple(b for b in bounds_g if not only_counts(b))
    said = tuple(b for b in bounds_a if not only_counts(b))
    if stated and not _same_bounds(said, stated):
        return False
    if not stated and not all(map(hardly_restricts, said)):
        return False
    return _same(a, g)


def _same_bounds(a: tuple[Node, ...], g: tuple[Node, ...]) -> bool:
    return len(a) == len(g) and _same_in_any_order(a, g)


def _same(a: Node, g: Node) -> bool:
    spend(10)
    if a == g:
        return True
    if isinstance(a, Quantity) or isinstance(g, Quantity):
        return _same_measured(a, g)
    if isinstance(a, Words) or isinstance(g, Words):
        return _same_words(a, g)
    if (tuples := as_tuples(a, g)) is not None:
        return _same(*tuples)
    if is_piecewise(a) or is_piecewise(g):
        return (
            same_function(a, g)
            or (isinstance(a, Group) and isinstance(g, Group) and _same_groups(a, g))
            or same_relations(a, g, _same)
        )
    if is_plainly_a_set(a) or is_plainly_a_set(g):
        return _same_sets(a, g)
    if isinstance(a, Relation) or isinstance(g, Relation):
        return same_relations(a, g, _same)
    if isinstance(a, Matrix) or isinstance(g, Matrix):
        return _same_matrices(a, g)
    if isinstance(a, Group) and a.joined_by_or and is_expression(g) and _is_one_value(a):
        return all(_same(part, g) for part in a.items)  # 1/2 or 0.5
    if isinstance(a, Group) or isinstance(g, Group):
        return _same_groups(a, g)
    if isinstance(a, BasedNumber) or isinstance(g, BasedNumber):
        return _same_numerals(a, g)
    return is_expression(a) and is_expression(g) and same_expressions(a, g)


def _same_measured(a: Node, g: Node) -> bool:
    """A unit that only one names goes without saying; two of one kind are converted, other two are different."""
    units = [_unit(n) for n in (a, g)]
    if set(units) == {"degree", "radian"}:
        angles = [n.value if isinstance(n, Quantity) else n for n in (a, g)]
        return all(map(is_expression, angles)) and same_value(
            _in_degrees(angles[0], units[0]), _in_degrees(angles[1], units[1])
        )
    values = [n.value if isinstance(n, Quantity) else n for n in (a, g)]
    if all(units) and units[0] != units[1]:
        sizes = size(units[0]), size(units[1])
        if sizes[0] is None or sizes[1] is None or sizes[0][0] != sizes[1][0] or not is_expression(values[0]):
            return False
        return _same(Op("mul", (values[0], Number(sizes[0][1] / sizes[1][1]))), values[1])
    if set(units) & {"percent", "degree"}:
        values = [
            Op(u, (v,)) if u in _OPERATIONS and not is_op(v, u) else v for u, v in zip(units, values, strict=True)
        ]
    return _same(*values)


def _in_degrees(angle: Node, unit: str) -> Node:
    return Op("degree", (angle,)) if unit == "degree" and not is_op(angle, "degree") else angle


_OPERATIONS = ("percent", "degree")


def _unit(node: Node) -> str:
    """The name of the unit; "" without one, or where words say what is counted."""
    if isinstance(node, Quantity):
        return "" if node.unit.startswith(COUNTED) else node.unit
    return next((name for name in _OPERATIONS if is_op(node, name)), "")


def _same_words(a: Node, g: Node) -> bool:
    if isinstance(a, Words) and isinstance(g, Words):
        return _plain(a.text) == _plain(g.text)
    words, other = (a.text, g) if isinstance(a, Words) else (g.text, a)  # type: ignore[union-attr]
    if words in _INFINITE_WORDS:
        return sign_of_infinity(other) == 1
    if (number := number_word(words)) is not None:
        return is_expression(other) and exact(other) == number
    letters = tuple(map(Symbol, words))
    return (
        1 < len(words) <= 3 and words.isalpha() and is_expression(other) and same_expressions(Op("mul", letters), other)
    )


def _plain(text: str) -> str:
    words = "".join(c if c.isalnum() else " " for c in text.lower()).split()
    return " ".join(w for w in words if w not in _IDLE_WORDS) or text


def _same_sets(a: Node, g: Node) -> bool:
    names = [n for n in (_subject(a), _subject(g)) if n]
    if len(set(names)) > 1:
        return False
    try:
        if same_set(real_set(a), real_set(g)):
            return True
    except NoSetError:
        pass
    return isinstance(a, Relation) and isinstance(g, Relation) and same_inequality(a, g, _same)


def _subject(node: Node) -> str:
    """The variable that an inequality is about."""
    if isinstance(node, Relation):
        names = [s.name for s in node.sides if isinstance(s, Symbol) and symbols(s) and s.name != UNNAMED]
        return names[0] if len(names) == 1 else ""
    return ""


def _same_matrices(a: Node, g: Node) -> bool:
    """Entry by entry; a column or row may be written as a tuple."""
    left, right = _rows(a), _rows(g)
    if left is None or right is None:
        return False
    if not (isinstance(a, Matrix) and isinstance(g, Matrix)):
        left, right = _upright(left), _upright(right)
    if len(left) != len(right) or len(left[0]) != len(right[0]):
        return False
    return all(_same(x, y) for p, q in zip(left, right, strict=True) for x, y in zip(p, q, strict=True))


def _upright(rows: tuple[tuple[Node, ...], ...]) -> tuple[tuple[Node, ...], ...]:
    """A single row as a column."""
    return tuple((entry,) for entry in rows[0]) if len(rows) == 1 else rows


def _rows(node: Node) -> tuple[tuple[Node, ...], ...] | None:
    if isinstance(node, Matrix):
        return node.rows
    if isinstance(node, Group) and node.brackets in ("()", "[]"):
        if all(isinstance(i, Group) and i.brackets == "[]" for i in node.items):
            return tuple(i.items for i in node.items)  # type: ignore[union-attr]
        return (node.items,)
    return None


def _same_groups(a: Node, g: Node) -> bool:
    """Tuples in order; bare lists and sets in any order; "{5}" is 5."""
    if _is_single(a) and _is_single(g):
        return _same(a.items[0], g.items[0])  # type: ignore[union-attr]
    a, g = (n.items[0] if _is_single(n) and not isinstance(n.items[0], Group) else n for n in (a, g))  # type: ignore[union-attr]
    if not (isinstance(a, Group) and isinstance(g, Group)):
        return _same(a, g) if not isinstance(a, Group) and not isinstance(g, Group) else _same_vector(a, g)
    if len(a.items) != len(g.items):
        return False
    unordered = a.brackets in ("", "{}"), g.brackets in ("", "{}")
    if unordered[0] != unordered[1]:
        return False
    if unordered[0]:
        return (
            _same_by_name(a.items, g.items) if all_named(a) and all_named(g) else _same_in_any_order(a.items, g.items)
        )
    if a.brackets != g.brackets and len(a.items) == 2:
        return False
    return all(map(_same, _parameters_of(a, g).items, g.items)) or all(map(_same, a.items, g.items)) or same_line(a, g)


def _is_one_value(group: Group) -> bool:
    values = set(map(exact, group.items))
    return len(values) == 1 and None not in values


def _is_single(node: Node) -> bool:
    return isinstance(node, Group) and node.brackets in ("", "{}") and len(node.items) == 1


def _same_vector(a: Node, g: Node) -> bool:
    """3i - 2j + k and (3, -2, 1)."""
    vector, other = (a, g) if isinstance(a, Group) else (g, a)
    if not is_array(vector) or len(vector.items) > 3:  # type: ignore[union-attr]
        return False
    parts = components(other, len(vector.items))  # type: ignore[union-attr]
    return parts is not None and all(map(_same, parts, vector.items))  # type: ignore[union-attr]


def _same_by_name(a: tuple[Node, ...], g: tuple[Node, ...]) -> bool:
    """Parts with names, each compared with its namesake; parts whose names have nothing in common, in order."""
    of_a, of_g = (dict(n for n in map(named_part, items) if n) for items in (a, g))
    if of_a.keys() == of_g.keys():
        return all(_same(of_a[name], value) for name, value in of_g.items())
    if of_a.keys() & of_g.keys():
        return False
    labels = [[label(n.text) if isinstance(n, Words) else frozenset() for n in side] for side in (of_a, of_g)]
    pairs = [(i, j) for i, x in enumerate(labels[0]) for j, y in enumerate(labels[1]) if x & y]
    if not pairs:
        return all(map(_same, of_a.values(), of_g.values()))
    values = list(of_a.values()), list(of_g.values())
    one_to_one = len(pairs) == len(of_a) == len({i for i, _ in pairs}) == len({j for _, j in pairs})
    return one_to_one and all(_same(values[0][i], values[1][j]) for i, j in pairs)


def _same_in_any_order(a: tuple[Node, ...], g: tuple[Node, ...]) -> bool:
    left = list(g)
    for part in a:
        match = next((other for other in left if _same(renamed_parameter(part, other), other)), None)
        if match is None:
            return False
        left.remove(match)
    return True


def _parameters_of(a: Group, g: Group) -> Group:
    renamed = renamed_parameter(a, g)
    return renamed if isinstance(renamed, Group) else a


def _same_numerals(a: Node, g: Node) -> bool:
    """The base may go without saying; another base is another answer."""
    if isinstance(a, BasedNumber) and isinstance(g, BasedNumber):
        return a.base == g.base and a.digits.lstrip("0") == g.digits.lstrip("0")
    based, other = (a, g) if isinstance(a, BasedNumber) else (g, a)
    digits = based.digits  # type: ignore[union-attr]
    return isinstance(other, Number) and other.places is None and digits.isdigit() and other.value == int(digits)
