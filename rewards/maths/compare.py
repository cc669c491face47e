"""Whether two answers say the same: the rules for lists, tuples, sets, equations, units and approximations.

Every rule is about what an answer may leave out or write otherwise without saying something else. What no rule covers is
different: nothing is paid for a doubt.
"""

from fractions import Fraction
from itertools import product
from math import prod

from rewards.maths.equal import same_value, sign_of_infinity
from rewards.maths.evaluate import exact
from rewards.maths.realsets import NoSetError, is_plainly_a_set, real_set, same_set, substitute
from rewards.maths.rounding import same_up_to_rounding
from rewards.maths.syntax import (
    Based,
    Group,
    Matrix,
    Measured,
    Node,
    Number,
    Op,
    Relation,
    Symbol,
    Words,
    contains,
    is_expression,
    rename,
    symbols,
)

MAX_SIGNS = 16
MAX_UNORDERED = 60
_INFINITE_WORDS = frozenset({"infinity", "infinitely many", "infinite", "infinitely many solutions"})
_PARAMETERS = frozenset("k n m l t c C s j r x K N".split())


def same_answer(answer: Node, gold: Node) -> bool:
    """Whether an answer says what the gold says. Not symmetric: a gold in decimals allows for rounding.

    Raises:
        NoSetError: never; UndecidedError: never. Whatever can't be decided is not the same.
    """
    simple_answer, simple_gold = _simplify(answer), _simplify(gold)
    if simple_answer is None or simple_gold is None:
        return False
    return _same(_without_signs(simple_answer), _without_signs(simple_gold))


# -- one form ----------------------------------------------------------------------------------------------------------


def _simplify(node: Node) -> Node | None:
    """Without approximations, intermediate steps and plus-minus signs; None for "41 = 42"."""
    if isinstance(node, Relation):
        short = _cut(node)
        if short is None:
            return None
        node = short
    if isinstance(node, Measured):
        value = _simplify(node.value)
        return None if value is None else _measured(value, node.unit)
    if isinstance(node, Group):
        items = [_simplify(item) for item in node.items]
        if any(item is None for item in items):
            return None
        node = Group(node.brackets, tuple(i for i in items if i is not None), node.joined_by_or)
    return node


def _measured(value: Node, unit: str) -> Node:
    """The unit of the whole list is each part's: "5 and 7 meters" """
    if isinstance(value, Group) and value.brackets == "":
        return Group("", tuple(_measured(i, unit) for i in value.items), value.joined_by_or)
    return Measured(value, unit)


def _cut(node: Relation) -> Node | None:
    """Of "x = 3 + 4 = 7 ~ 7.0" remains "x = 7". A chain of numbers that differ, "41 = 42", says nothing."""
    sides, ops = node.sides, node.ops
    if "~" in ops:
        place = ops.index("~")
        sides, ops = sides[: place + 1], ops[:place]
    if ops and set(ops) == {"="}:
        values = [v for v in map(exact, sides) if v is not None]
        if len(set(values)) > 1 and not _is_name(sides[0]):
            return None
        if all(is_expression(s) and not symbols(s) for s in sides):
            return sides[-1]  # a calculation: what it comes to
        sides, ops = (sides[0], sides[-1]), ("=",)
    return Relation(sides, ops) if ops else sides[0]


def _without_signs(node: Node) -> Node:
    """Plus-minus written out: a list of both."""
    if not contains(node, "pm", "mp"):
        return node
    if isinstance(node, Group) and node.brackets in ("", "{}"):
        items = tuple(choice for item in node.items for choice in _choices(item))
        return Group(node.brackets, items, node.joined_by_or)
    choices = _choices(node)
    return choices[0] if len(choices) == 1 else Group("", tuple(choices))


def _choices(node: Node) -> list[Node]:
    """A node for each choice of signs. In one expression all signs go together; parts of a tuple choose freely."""
    if not contains(node, "pm", "mp"):
        return [node]
    if isinstance(node, Group):
        parts = [_choices(item) for item in node.items]
        if prod(len(p) for p in parts) > MAX_SIGNS:
            return [node]
        return [Group(node.brackets, items, node.joined_by_or) for items in product(*parts)]
    return [_signed(node, upper) for upper in (True, False)]


def _signed(node: Node, upper: bool) -> Node:
    match node:
        case Op("pm" | "mp" as name, (left, right)):
            right = _signed(right, upper)
            return Op("add", (_signed(left, upper), right if (name == "pm") == upper else Op("neg", (right,))))
        case Op(name, args):
            return Op(name, tuple(_signed(a, upper) for a in args))
        case Relation(sides, ops):
            return Relation(tuple(_signed(s, upper) for s in sides), ops)
        case Measured(value, unit):
            return Measured(_signed(value, upper), unit)
    return node


# -- the rules -----------------------------------------------------------------------------------------------------------


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
        return _same_relations(a, g)
    if isinstance(a, Matrix) or isinstance(g, Matrix):
        return _same_matrices(a, g)
    if isinstance(a, Group) or isinstance(g, Group):
        return _same_groups(a, g)
    if isinstance(a, Based) or isinstance(g, Based):
        return _same_numerals(a, g)
    return is_expression(a) and is_expression(g) and _same_expressions(a, g)


def _same_measured(a: Node, g: Node) -> bool:
    """A unit that both name must be the same; a unit that only one names goes without saying."""
    units = tuple(n.unit if isinstance(n, Measured) else "" for n in (a, g))
    if all(units) and units[0] != units[1]:
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
    return isinstance(a, Relation) and isinstance(g, Relation) and _same_inequality(a, g)


def _subject(node: Node) -> str:
    """The variable that an inequality is about."""
    if isinstance(node, Relation):
        names = [s.name for s in node.sides if isinstance(s, Symbol) and symbols(s)]
        return names[0] if len(names) == 1 else ""
    return ""


def _same_inequality(a: Relation, g: Relation) -> bool:
    """One is the other times a number; a negative number turns the sign around."""
    if len(a.ops) != len(g.ops):
        return False
    if len(a.ops) > 1:
        straight = a.ops == g.ops and all(map(_same, a.sides, g.sides))
        turned = tuple({"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(op, op) for op in reversed(a.ops))
        return straight or (turned == g.ops and all(map(_same, reversed(a.sides), g.sides)))
    factor = _factor(_difference(a), _difference(g))
    if factor is None:
        return False
    turn = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
    return (a.ops[0] if factor > 0 else turn.get(a.ops[0], a.ops[0])) == g.ops[0]


def _same_relations(a: Node, g: Node) -> bool:
    """An equation may leave out what it names ("x = 5" for 5), and two equations may be multiples of each other."""
    named_a, named_g = _named(a), _named(g)
    if named_a and named_g:
        if _same_name(named_a[0], named_g[0]):
            return _same(_to_variables_of(named_a, named_g), named_g[1])
        return _same_equation(a, g)
    if named_a:
        return _same(named_a[1], g) if not isinstance(g, Relation) else _same_equation(a, g)
    if named_g:
        return _same(a, named_g[1]) if not isinstance(a, Relation) else _same_equation(a, g)
    if isinstance(a, Relation) and isinstance(g, Relation):
        return _same_equation(a, g)
    return isinstance(g, Relation) and _solved_for_missing(a, g)


def _named(node: Node) -> tuple[Node, Node] | None:
    """What an equation names, and the value that it gives it."""
    if not isinstance(node, Relation) or len(node.sides) != 2 or node.ops[0] not in ("=", "in"):
        return None
    left, right = node.sides
    if _is_name(left):
        return left, right
    return (right, left) if _is_name(right) else None


def _is_name(node: Node) -> bool:
    """x, x_1, f(x), AB, |AB|, NO/BO, (p, q, r), "maximum": letters that stand for something."""
    match node:
        case Symbol(name):
            return name not in ("pi", "oo", "i")
        case Words():
            return True
        case Op("call", _):
            return True
        case Op("mul" | "div" | "abs" | "ratio", args):
            return all(map(_is_name, args))
        case Group("()", items):
            return all(isinstance(i, Symbol) for i in items)
        case Measured(value, _):
            return _is_name(value)
    return False


def _same_name(a: Node, g: Node) -> bool:
    if isinstance(a, Op) and isinstance(g, Op) and a.name == g.name == "call":
        return a.args[0] == g.args[0] and len(a.args) == len(g.args)
    return a == g


def _to_variables_of(a: tuple[Node, Node], g: tuple[Node, Node]) -> Node:
    """The value of f(m) = ... in the letters of f(n) = ..."""
    if isinstance(a[0], Op) and isinstance(g[0], Op) and a[0].name == "call":
        old, new = ([x.name for x in n.args[1:] if isinstance(x, Symbol)] for n in (a[0], g[0]))
        if len(old) == len(new):
            return rename(a[1], dict(zip(old, new, strict=True)))
    return a[1]


def _difference(node: Relation) -> Node:
    return Op("add", (node.sides[0], Op("neg", (node.sides[-1],))))


def _same_equation(a: Node, g: Node) -> bool:
    if not (isinstance(a, Relation) and isinstance(g, Relation)) or a.ops != g.ops or len(a.ops) != 1 or a.ops[0] not in ("=", "!="):
        return False
    return _factor(_difference(a), _difference(g)) is not None


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
        node = substitute(node, name, Fraction(start + 2 * place, 2))
    return node


def _solved_for_missing(a: Node, g: Relation) -> bool:
    """The gold is an equation in x and y, the answer the expression that y equals."""
    missing = symbols(g) - symbols(a)
    if not is_expression(a) or not symbols(a) or len(missing) != 1:
        return False
    return _same_equation(Relation((Symbol(next(iter(missing))), a), ("=",)), g)


def _same_matrices(a: Node, g: Node) -> bool:
    """Entry by entry; a column or row may be written as a tuple."""
    rows = [_rows(node) for node in (a, g)]
    if rows[0] is None or rows[1] is None:
        return False
    left, right = rows
    if not (isinstance(a, Matrix) and isinstance(g, Matrix)):
        left, right = (tuple(e for r in m for e in r) if 1 in (len(m), len(m[0])) else m for m in rows)  # type: ignore[assignment,union-attr]
        return len(left) == len(right) and all(not isinstance(x, tuple) and not isinstance(y, tuple) and _same(x, y) for x, y in zip(left, right, strict=True))
    if len(left) != len(right) or len(left[0]) != len(right[0]):
        return False
    return all(_same(x, y) for p, q in zip(left, right, strict=True) for x, y in zip(p, q, strict=True))


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
    a, g = (n.items[0] if isinstance(n, Group) and n.brackets in ("", "{}") and len(n.items) == 1 else n for n in (a, g))
    if not (isinstance(a, Group) and isinstance(g, Group)):
        return _same(a, g) if not isinstance(a, Group) and not isinstance(g, Group) else False
    if len(a.items) != len(g.items) or len(a.items) > MAX_UNORDERED:
        return False
    unordered = a.brackets in ("", "{}"), g.brackets in ("", "{}")
    if unordered[0] != unordered[1]:
        return False
    if unordered[0]:
        return _same_by_name(a.items, g.items) if _all_named(a) and _all_named(g) else _same_in_any_order(a.items, g.items)
    if a.brackets != g.brackets and len(a.items) == 2:
        return False
    return all(map(_same, _parameters_of(a, g).items, g.items)) or all(map(_same, a.items, g.items))


def _all_named(group: Group) -> bool:
    names = [named[0] for named in map(_named, group.items) if named]
    return len(names) == len(group.items) == len(set(names))


def _same_by_name(a: tuple[Node, ...], g: tuple[Node, ...]) -> bool:
    of_a, of_g = (dict(n for n in map(_named, items) if n) for items in (a, g))
    if of_a.keys() == of_g.keys():
        return all(_same(of_a[name], value) for name, value in of_g.items())
    if of_a.keys() & of_g.keys():
        return False
    return _same_in_any_order(tuple(of_a.values()), tuple(of_g.values()))


def _same_in_any_order(a: tuple[Node, ...], g: tuple[Node, ...]) -> bool:
    left = list(g)
    for part in a:
        match = next((other for other in left if _same(_parameter_of(part, other), other)), None)
        if match is None:
            return False
        left.remove(match)
    return True


def _parameters_of(a: Group, g: Group) -> Group:
    renamed = _parameter_of(a, g)
    return renamed if isinstance(renamed, Group) else a


def _parameter_of(a: Node, g: Node) -> Node:
    """A free parameter may have another letter: (-32 + 3t, 64 - 5t) for (-32 + 3x, 64 - 5x)."""
    only_a, only_g = symbols(a) - symbols(g), symbols(g) - symbols(a)
    if len(only_a) == len(only_g) == 1 and only_a <= _PARAMETERS and only_g <= _PARAMETERS:
        return rename(a, {next(iter(only_a)): next(iter(only_g))})
    return a


def _same_numerals(a: Node, g: Node) -> bool:
    """The base may go without saying; another base is another answer."""
    if isinstance(a, Based) and isinstance(g, Based):
        return a.base == g.base and a.digits.lstrip("0") == g.digits.lstrip("0")
    based, other = (a, g) if isinstance(a, Based) else (g, a)
    digits = based.digits  # type: ignore[union-attr]
    return isinstance(other, Number) and other.places is None and digits.isdigit() and other.value == int(digits)


# -- values --------------------------------------------------------------------------------------------------------------


def _same_expressions(a: Node, g: Node) -> bool:
    if any(map(sign_of_infinity, (a, g))):
        return sign_of_infinity(a) == sign_of_infinity(g)
    if isinstance(a, Op) and isinstance(g, Op) and a.name == g.name == "ratio":
        return _same_ratio(a, g)
    if _is(a, "percent") or _is(g, "percent"):
        return _same_percentage(a, g)
    if _is(a, "degree") or _is(g, "degree"):
        return _same_angle(a, g)
    if same_value(a, g) or same_up_to_rounding(a, g):
        return True
    renamed = _parameter_of(a, g)
    return renamed is not a and contains(g, "mul") and _mentions_period(g) and same_value(renamed, g)


def _mentions_period(node: Node) -> bool:
    """Families such as pi/6 + k pi, whose k is only a counter."""
    return node == Symbol("pi") or (isinstance(node, Op) and any(map(_mentions_period, node.args)))


def _is(node: Node, name: str) -> bool:
    return isinstance(node, Op) and node.name == name


def _same_ratio(a: Op, g: Op) -> bool:
    if len(a.args) != len(g.args) or any(exact(part) == 0 for part in (*a.args, *g.args)):
        return False
    return all(same_value(Op("mul", (x, g.args[0])), Op("mul", (y, a.args[0]))) for x, y in zip(a.args[1:], g.args[1:], strict=True))


def _same_percentage(a: Node, g: Node) -> bool:
    """40% is 40% and 0.4. Where only one of them has the sign, it may be the unit of the question: 40 (percent)."""
    inner = [n.args[0] if _is(n, "percent") else n for n in (a, g)]  # type: ignore[union-attr]
    if _is(a, "percent") and _is(g, "percent"):
        return _same_expressions(inner[0], inner[1])
    bare = exact(inner[1] if _is(a, "percent") else inner[0])
    if (bare is None or abs(bare) > 1) and _same_expressions(inner[0], inner[1]):
        return True
    if _is(g, "percent"):
        return _same_expressions(Op("mul", (a, Number(Fraction(100)))), inner[1])
    return _same_expressions(Op("div", (inner[0], Number(Fraction(100)))), g)


def _same_angle(a: Node, g: Node) -> bool:
    """90 degrees are 90, and pi/2."""
    if _is(a, "degree") and _is(g, "degree"):
        return _same_expressions(a.args[0], g.args[0])  # type: ignore[union-attr]
    if _mentions_period(a) or _mentions_period(g):
        return same_value(a, g)
    inner = [n.args[0] if _is(n, "degree") else n for n in (a, g)]  # type: ignore[union-attr]
    return _same_expressions(inner[0], inner[1])
