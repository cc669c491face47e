"""Operators of the interpreter: what they cost is drawn, and what they would make too large is refused, before they compute."""

import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from rewards.maths.limits import spend
from rewards.python.values import (
    MAX_BITS,
    NUMBERS,
    Machine,
    Set,
    as_index,
    bits,
    checked,
    key,
    kind_of,
    listed,
    weigh,
)

SEQUENCES = (str, list, tuple)


def _refuse(sign: str, a: Any, b: Any) -> TypeError:
    return TypeError(f"unsupported operand type(s) for {sign}: '{kind_of(a)}' and '{kind_of(b)}'")


def _draw(a: Any, b: Any) -> None:
    """For an operation on numbers; those that are slow are slow by the square of their length."""
    n = bits(a) + bits(b)
    spend(1 + n / 64 + n * n / (1e5 if Fraction in (type(a), type(b)) else 1e6))


def _are_numbers(a: Any, b: Any) -> bool:
    return type(a) in NUMBERS and type(b) in NUMBERS


def add(a: Any, b: Any) -> Any:
    """Numbers; two texts, lists or tuples."""
    if _are_numbers(a, b):
        _draw(a, b)
        return checked(a + b)
    if type(a) is type(b) and type(a) in SEQUENCES:
        spend(4 + (len(a) + len(b)) / (4 if type(a) is str else 2))
        return a + b
    raise _refuse("+", a, b)


def subtract(a: Any, b: Any) -> Any:
    """Numbers and sets."""
    if type(a) is type(b) is Set:
        spend(4 + 12 * len(a))
        return Set({item: None for item in a if item not in b})
    return _arithmetic("-", operator.sub, a, b)


def multiply(a: Any, b: Any) -> Any:
    """Numbers; a text, list or tuple so many times."""
    for many, times in ((a, b), (b, a)):
        if type(many) in SEQUENCES and type(times) in (int, bool):
            spend(4 + max(0, as_index(times)) * len(many) / (4 if type(many) is str else 2))
            return many * times
    return _arithmetic("*", operator.mul, a, b)


def _arithmetic(sign: str, compute: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    if not _are_numbers(a, b):
        raise _refuse(sign, a, b)
    _draw(a, b)
    return checked(compute(a, b))


def remainder(a: Any, b: Any) -> Any:
    """Numbers alone: no formatting of texts, which could ask for any width."""
    if type(a) is str:
        raise TypeError("% formats no texts here; take an f-string")
    return _arithmetic("%", operator.mod, a, b)


def power(a: Any, b: Any) -> Any:
    """A power that is not too large."""
    if not _are_numbers(a, b):
        raise _refuse("**", a, b)
    _draw(a, b)
    if type(b) is Fraction:  # which would be taken as a whole number where it is one
        b = b.numerator if b.denominator == 1 else float(b)
    grows = type(b) in (int, bool) and (type(a) is Fraction or (type(a) is not float and b > 0))
    if grows and a not in (-1, 0, 1):
        grown = bits(a) * abs(b)
        if grown > 2 * MAX_BITS:
            raise OverflowError(f"a number of more than {MAX_BITS} bits")
        spend(grown**2 / 1e6)
    return checked(a**b)


def power_modulo(a: Any, b: Any, modulus: Any) -> Any:
    """`pow` with a modulus."""
    for value in (a, b, modulus):
        if type(value) not in (int, bool):
            raise TypeError("pow() with a modulus takes whole numbers")
    n = bits(modulus)
    spend(2 + bits(a) / 64 + (1 + bits(b)) * (1 + n / 64 + n * n / 1e6))
    return pow(a, b, modulus)


def shift_left(a: Any, b: Any) -> Any:
    """A whole number times a power of two."""
    if type(a) in (int, bool) and type(b) in (int, bool) and a and bits(a) + b > MAX_BITS:
        raise OverflowError(f"a number of more than {MAX_BITS} bits")
    return _whole("<<", operator.lshift, a, b)


def _whole(sign: str, compute: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    if type(a) not in (int, bool) or type(b) not in (int, bool):
        raise _refuse(sign, a, b)
    spend(1 + (bits(a) + bits(b)) / 64)
    return compute(a, b)


def either(a: Any, b: Any) -> Any:
    """`|`: whole numbers, sets, dicts."""
    if type(a) is type(b) and type(a) in (Set, dict):
        spend(4 + 12 * (len(a) + len(b)))
        return Set({**a, **b}) if type(a) is Set else {**a, **b}
    return _whole("|", operator.or_, a, b)


def both(a: Any, b: Any) -> Any:
    """`&`: whole numbers and sets."""
    if type(a) is type(b) is Set:
        spend(4 + 12 * len(a))
        return Set({item: None for item in a if item in b})
    return _whole("&", operator.and_, a, b)


def one_of(a: Any, b: Any) -> Any:
    """`^`: whole numbers and sets."""
    if type(a) is type(b) is Set:
        return either(subtract(a, b), subtract(b, a))
    return _whole("^", operator.xor, a, b)


def _floor(a: Any, b: Any) -> Any:
    return _arithmetic("//", operator.floordiv, a, b)


def _divide(a: Any, b: Any) -> Any:
    return _arithmetic("/", operator.truediv, a, b)


def _shift_right(a: Any, b: Any) -> Any:
    return _whole(">>", operator.rshift, a, b)


BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": add, "Sub": subtract, "Mult": multiply, "Div": _divide, "FloorDiv": _floor, "Mod": remainder, "Pow": power,
    "LShift": shift_left, "RShift": _shift_right, "BitOr": either, "BitAnd": both, "BitXor": one_of,
}  # fmt: skip
"""By the names of `ast`'s nodes."""


def negate(value: Any) -> Any:
    """`-`."""
    return _of_number("-", operator.neg, value)


def _plus(value: Any) -> Any:
    return _of_number("+", operator.pos, value)


def _of_number(sign: str, compute: Callable[[Any], Any], value: Any) -> Any:
    if type(value) not in NUMBERS:
        raise TypeError(f"bad operand type for unary {sign}: '{kind_of(value)}'")
    spend(1 + bits(value) / 128)
    return checked(compute(value))


def _invert(value: Any) -> Any:
    if type(value) not in (int, bool):
        raise TypeError(f"bad operand type for unary ~: '{kind_of(value)}'")
    return checked(-value - 1)


UNARY: dict[str, Callable[[Any], Any]] = {"USub": negate, "UAdd": _plus, "Invert": _invert}


def equal(a: Any, b: Any) -> bool:
    """`==`, of all that is in two lists, too."""
    weigh(a)
    weigh(b)
    return bool(a == b)


def _same(a: Any, b: Any) -> bool:
    """`is`: what is a number or text is the same where it is equal."""
    if type(a) in (int, float, str, Fraction):
        return type(a) is type(b) and equal(a, b)
    return a is b


def order(sign: str, compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """`<` and its like: of numbers, texts, lists, tuples and sets."""
    of_sets = {"<": lambda a, b: a.keys() < b.keys(), "<=": lambda a, b: a.keys() <= b.keys()}
    of_sets |= {">": lambda a, b: a.keys() > b.keys(), ">=": lambda a, b: a.keys() >= b.keys()}

    def ordered(a: Any, b: Any) -> bool:
        weigh(a)
        weigh(b)
        if type(a) is type(b) is Set:
            return of_sets[sign](a, b)
        if not (_are_numbers(a, b) or (type(a) is type(b) and type(a) in SEQUENCES)):
            raise TypeError(f"'{sign}' not supported between instances of '{kind_of(a)}' and '{kind_of(b)}'")
        return bool(compare(a, b))

    return ordered


less = order("<", operator.lt)
_at_most, _more, _at_least = order("<=", operator.le), order(">", operator.gt), order(">=", operator.ge)


def contains(machine: Machine, whole: Any, item: Any) -> bool:
    """`item in whole`."""
    kind = type(whole)
    if kind in (dict, Set):
        return key(item) in whole
    if kind is str and type(item) is str:
        spend(1 + (len(whole) + len(item)) / 4)
        return item in whole
    if kind is range:
        numbers = type(item) in NUMBERS and item == item // 1  # of anything else, it would be looked for one by one
        return numbers and int(item) in whole
    if kind in (list, tuple):
        weigh(whole)
        spend(len(whole) * 0.25)
        weigh(item)
        return item in whole
    return any(equal(other, item) for other in listed(machine, whole))


COMPARE: dict[str, Callable[[Machine, Any, Any], bool]] = {
    "Eq": lambda _, a, b: equal(a, b),
    "NotEq": lambda _, a, b: not equal(a, b),
    "Is": lambda _, a, b: _same(a, b),
    "IsNot": lambda _, a, b: not _same(a, b),
    "In": lambda machine, a, b: contains(machine, b, a),
    "NotIn": lambda machine, a, b: not contains(machine, b, a),
    "Lt": lambda _, a, b: less(a, b),
    "LtE": lambda _, a, b: _at_most(a, b),
    "Gt": lambda _, a, b: _more(a, b),
    "GtE": lambda _, a, b: _at_least(a, b),
}


def item_of(whole: Any, place: Any) -> Any:
    """`whole[place]`."""
    kind = type(whole)
    if kind is dict:
        return whole[key(place)]
    if kind not in (list, tuple, str, range):
        raise TypeError(f"'{kind_of(whole)}' object is not subscriptable")
    if type(place) is slice:
        spend(4 + (0 if kind is range else _sliced(whole, place) / 2))
        return whole[place]
    return whole[as_index(place)]


def _sliced(whole: Any, place: slice) -> int:
    """Items of a slice."""
    return len(range(*place.indices(len(whole))))


def set_item(machine: Machine, whole: Any, place: Any, value: Any) -> None:
    """`whole[place] = value`."""
    if type(whole) is dict:
        spend(12)
        whole[key(place)] = value
    elif type(whole) is list and type(place) is slice:
        items = listed(machine, value)
        spend(4 + _sliced(whole, place) + len(items) / 2 + (0 if place.step else len(whole) / 16))
        whole[place] = items
    elif type(whole) is list:
        whole[as_index(place)] = value
    else:
        raise TypeError(f"'{kind_of(whole)}' object does not support item assignment")


def delete_item(whole: Any, place: Any) -> None:
    """`del whole[place]`."""
    if type(whole) is dict:
        del whole[key(place)]
    elif type(whole) is list:
        spend(1 + len(whole) / 4)
        del whole[place if type(place) is slice else as_index(place)]
    else:
        raise TypeError(f"'{kind_of(whole)}' object doesn't support item deletion")


def add_in_place(machine: Machine, a: Any, b: Any) -> Any:
    """`a += b`: a list stays the list that it is."""
    if type(a) is list:
        items = listed(machine, b)
        spend(len(items))
        a += items
        return a
    return add(a, b)
