"""Whether two answers say the same: the rules for lists, tuples, sets, equations, units and approximations.

Every rule is about what an answer may leave out or write otherwise without saying something else. What no rule covers is
different: nothing is paid for a doubt.
"""

from rewards.maths.equal import sign_of_infinity
from rewards.maths.realsets import NoSetError, is_plainly_a_set, real_set, same_set
from rewards.maths.relations import named, same_inequality, same_relations
from rewards.maths.simplify import simplify, without_signs
from rewards.maths.syntax import (
    Based,
    Group,
    Matrix,
    Measured,
    Node,
    Number,
    Relation,
    Symbol,
    Words,
    is_expression,
    symbols,
)
from rewards.maths.values import is_op, renamed_parameter, same_expressions

MAX_UNORDERED = 60
_INFINITE_WORDS = frozenset({"infinity", "infinitely many", "infinite", "infinitely many solutions"})


def same_answer(answer: Node, gold: Node) -> bool:
    """Whether an answer says what the gold says. Not symmetric: a gold in decimals allows for rounding.

    Raises:
        NoSetError: never; UndecidedError: never. Whatever can't be decided is not the same.
    """
    simple_answer, simple_gold = simplify(answer), simplify(gold)
    if simple_answer is None or simple_gold is None:
        return False
    return _same(without_signs(simple_answer), without_signs(simple_gold))


def _same(a: Node, g: Node) -> bool:
    if a == g:
        return True
    if isinstance(a, Measured) or isinstance(g, Measured):
        return _same_measured(a, g)
    if isinstance(a, Words) or isinstance(g, Words):
        return _same_words(a, g)
    if is_plainly_a_set(a) or is_plainly_a_set(g):
        return _same_sets(a, g)
    if isinstance(a, Relation) or isinstance(g, Relation):
        return same_relations(a, g, _same)
    if isinstance(a, Matrix) or isinstance(g, Matrix):
        return _same_matrices(a, g)
    if isinstance(a, Group) or isinstance(g, Group):
        return _same_groups(a, g)
    if isinstance(a, Based) or isinstance(g, Based):
        return _same_numerals(a, g)
    return is_expression(a) and is_expression(g) and same_expressions(a, g)


def _same_measured(a: Node, g: Node) -> bool:
    """A unit that both name must be the same; a unit that only one names goes without saying."""
    units = tuple(n.unit if isinstance(n, Measured) else "" for n in (a, g))
    if all(units) and units[0] != units[1]:
        return False
    if any(is_op(n, "degree") for n in (a, g)) and not {*units} <= {"", "degree", "radian"}:
        return False
    values = tuple(n.value if isinstance(n, Measured) else n for n in (a, g))
    return _same(*values)


def _same_words(a: Node, g: Node) -> bool:
    if isinstance(a, Words) and isinstance(g, Words):
        return _plain(a.text) == _plain(g.text)
    words, other = (a, g) if isinstance(a, Words) else (g, a)
    return words.text in _INFINITE_WORDS and sign_of_infinity(other) == 1  # type: ignore[union-attr]


def _plain(text: str) -> str:
    words = [w for w in "".join(c if c.isalnum() else " " for c in text.lower()).split() if w not in ("the", "a", "an")]
    return " ".join(words)


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
        names = [s.name for s in node.sides if isinstance(s, Symbol) and symbols(s)]
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
    a, g = (
        n.items[0] if isinstance(n, Group) and n.brackets in ("", "{}") and len(n.items) == 1 else n for n in (a, g)
    )
    if not (isinstance(a, Group) and isinstance(g, Group)):
        return _same(a, g) if not isinstance(a, Group) and not isinstance(g, Group) else False
    if len(a.items) != len(g.items) or len(a.items) > MAX_UNORDERED:
        return False
    unordered = a.brackets in ("", "{}"), g.brackets in ("", "{}")
    if unordered[0] != unordered[1]:
        return False
    if unordered[0]:
        return (
            _same_by_name(a.items, g.items) if _all_named(a) and _all_named(g) else _same_in_any_order(a.items, g.items)
        )
    if a.brackets != g.brackets and len(a.items) == 2:
        return False
    return all(map(_same, _parameters_of(a, g).items, g.items)) or all(map(_same, a.items, g.items))


def _all_named(group: Group) -> bool:
    names = [pair[0] for pair in map(named, group.items) if pair]
    return len(names) == len(group.items) == len(set(names))


def _same_by_name(a: tuple[Node, ...], g: tuple[Node, ...]) -> bool:
    of_a, of_g = (dict(n for n in map(named, items) if n) for items in (a, g))
    if of_a.keys() == of_g.keys():
        return all(_same(of_a[name], value) for name, value in of_g.items())
    if of_a.keys() & of_g.keys():
        return False
    return _same_in_any_order(tuple(of_a.values()), tuple(of_g.values()))


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
    if isinstance(a, Based) and isinstance(g, Based):
        return a.base == g.base and a.digits.lstrip("0") == g.digits.lstrip("0")
    based, other = (a, g) if isinstance(a, Based) else (g, a)
    digits = based.digits  # type: ignore[union-attr]
    return isinstance(other, Number) and other.places is None and digits.isdigit() and other.value == int(digits)
