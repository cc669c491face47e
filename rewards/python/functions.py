"""The built-in functions that programs may call. What is not here, in `methods` or in `modules` does not exist."""

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from rewards.maths.limits import spend
from rewards.python.operators import (
    add,
    less,
    power,
    power_modulo,
)
from rewards.python.values import (
    NUMBERS,
    Callee,
    Caught,
    Lazy,
    Machine,
    Set,
    as_index,
    bits,
    checked,
    is_true,
    iterate,
    key,
    kind_of,
    listed,
    numbers,
    repr_of,
    text_of,
    weigh,
)

EXCEPTIONS: dict[str, tuple[type[Exception], ...]] = {
    kind.__name__: (kind,)
    for kind in (
        ArithmeticError, AssertionError, IndexError, KeyError, LookupError, NameError, OverflowError, RuntimeError, StopIteration, TypeError,
        ValueError, ZeroDivisionError,
    )
}  # fmt: skip
EXCEPTIONS["AttributeError"] = (AttributeError,)
CATCHABLE = tuple(kind for kinds in EXCEPTIONS.values() for kind in kinds)
"""What `except Exception` catches: no end of the budget, and nothing that is not supported."""
EXCEPTIONS |= {name: CATCHABLE for name in ("Exception", "BaseException")}

SPEC = re.compile(r"(?:.?[<>=^])?[-+ ]?#?0?(\d{0,3})[,_]?(?:\.(\d{1,3}))?[bcdeEfFgGosxX%]?", re.DOTALL)
Native = Callable[..., Any]


def call(machine: Machine, function: Any, *arguments: Any) -> Any:
    """What a program's function, or a built-in one, returns.

    Raises:
        TypeError: it is no function.
    """
    if type(function) is not Callee:
        raise TypeError(f"'{kind_of(function)}' object is not callable")
    spend(5)
    machine.enter()
    try:
        return function.call(machine, list(arguments), {})
    finally:
        machine.waiting -= 1


def formatted(value: Any, spec: str) -> str:
    """As `format` has it, no wider than 999."""
    if not spec:
        return text_of(value)
    if not SPEC.fullmatch(spec):
        raise ValueError(f"format {spec[:20]!r} is not supported")
    if type(value) not in (*NUMBERS, str):
        raise TypeError(f"'{kind_of(value)}' takes no format")
    spend(500)
    weigh(value)
    return format(float(value) if type(value) is Fraction else value, spec)


def callee(name: str, function: Native, types: tuple[type, ...] = ()) -> Callee:
    """A function of ours, whose first argument is the machine."""

    def called(machine: Machine, arguments: list[Any], named: dict[str, Any]) -> Any:
        return function(machine, *arguments, **named)

    return Callee(name, called, types)


def of_numbers(name: str, function: Native) -> Callee:
    """A function of Python's that takes numbers and is fast for all that are allowed."""

    def called(_: Machine, *values: Any) -> Any:
        numbers(*values)
        return checked(function(*values))

    return callee(name, called)


def _abs(_: Machine, value: Any) -> Any:
    numbers(value)
    return abs(value)


def _all(machine: Machine, values: Any) -> bool:
    return all(is_true(value) for value in iterate(machine, values))


def _any(machine: Machine, values: Any) -> bool:
    return any(is_true(value) for value in iterate(machine, values))


def _in_base(function: Callable[[int], str]) -> Native:
    def written(_: Machine, value: Any) -> str:
        if type(value) not in (int, bool):
            raise TypeError("must be a whole number")
        spend(1 + bits(value) / 4)
        return function(value)

    return written


def update(machine: Machine, whole: dict[Any, Any], pairs: Any = (), **named: Any) -> None:
    if type(pairs) is dict:
        spend(12 * len(pairs))
        whole.update(pairs)
    else:
        for pair in iterate(machine, pairs):
            place, value = listed(machine, pair)
            spend(12)
            whole[key(place)] = value
    whole.update(named)


def _dict(machine: Machine, pairs: Any = (), **named: Any) -> dict[Any, Any]:
    made: dict[Any, Any] = {}
    update(machine, made, pairs)
    made.update(named)
    return made


def _divmod(_: Machine, a: Any, b: Any) -> tuple[Any, Any]:
    numbers(a, b)
    return divmod(a, b)


def _enumerate(machine: Machine, values: Any, start: Any = 0) -> Lazy:
    return Lazy(enumerate(iterate(machine, values), as_index(start)))


def _filter(machine: Machine, function: Any, values: Any) -> Lazy:
    kept = (v for v in iterate(machine, values) if is_true(v if function is None else call(machine, function, v)))
    return Lazy(kept)


def _float(_: Machine, value: Any = 0.0) -> float:
    if type(value) is not str:
        numbers(value)
    else:
        spend(1 + len(value) / 4)
    return float(value)


def _format(_: Machine, value: Any, spec: Any = "") -> str:
    return formatted(value, as_text(spec))


def _int(_: Machine, value: Any = 0, base: Any = 10) -> int:
    if type(value) is str:
        spend(1 + len(value) + len(value) ** 2 / 1e4)
        return checked(int(value, as_index(base)))
    numbers(value)
    return checked(int(value))


def _isinstance(_: Machine, value: Any, kinds: Any) -> bool:
    for kind in kinds if type(kinds) is tuple else (kinds,):
        if type(kind) is not Callee or not kind.types:
            raise TypeError("isinstance() arg 2 must be a type or a tuple of types")
        if type(value) in kind.types:
            return True
    return False


def _iter(machine: Machine, values: Any) -> Lazy:
    return values if type(values) is Lazy else Lazy(iterate(machine, values))


def _len(_: Machine, value: Any) -> int:
    if type(value) not in (str, list, tuple, dict, Set, range):
        raise TypeError(f"object of type '{kind_of(value)}' has no len()")
    return len(value)


def _list(machine: Machine, values: Any = ()) -> list[Any]:
    return listed(machine, values)


def _map(machine: Machine, function: Any, *many: Any) -> Lazy:
    rows = zip(*(iterate(machine, values) for values in many), strict=False)
    return Lazy(call(machine, function, *row) for row in rows)


NOTHING = object()


def _extreme(better: Callable[[Any, Any], bool]) -> Native:
    def found(machine: Machine, *values: Any, key: Any = None, default: Any = NOTHING) -> Any:
        best, measure = NOTHING, None
        for value in iterate(machine, values[0] if len(values) == 1 else values):
            measured = value if key is None else call(machine, key, value)
            if best is NOTHING or better(measured, measure):
                best, measure = value, measured
        if best is NOTHING and default is NOTHING:
            raise ValueError("the largest or smallest of nothing")
        return default if best is NOTHING else best

    return found


def _next(machine: Machine, values: Any, default: Any = NOTHING) -> Any:
    if type(values) is not Lazy:
        raise TypeError(f"'{kind_of(values)}' object is not an iterator")
    for value in iterate(machine, values):
        return value
    if default is NOTHING:
        raise StopIteration
    return default


def _pow(_: Machine, a: Any, b: Any, modulus: Any = None) -> Any:
    return power(a, b) if modulus is None else power_modulo(a, b, modulus)


def _print(machine: Machine, *values: Any, sep: Any = " ", end: Any = "\n") -> None:
    sep, end = " " if sep is None else as_text(sep), "\n" if end is None else as_text(end)
    for place, value in enumerate(values):
        machine.write((sep if place else "") + text_of(value))
    machine.write(end)


def _range(_: Machine, *bounds: Any) -> range:
    return range(*(as_index(bound, "a bound of range()") for bound in bounds))


def _repr(_: Machine, value: Any) -> str:
    return repr_of(value)


def _reversed(machine: Machine, values: Any) -> Lazy:
    if type(values) not in (str, list, tuple, dict, Set, range):
        raise TypeError(f"'{kind_of(values)}' object is not reversible")
    return Lazy(iterate(machine, values[::-1] if type(values) is range else listed(machine, values)[::-1]))


def _round(_: Machine, value: Any, digits: Any = None) -> Any:
    numbers(value)
    if digits is None:
        return round(value)
    return round(value, max(-5000, min(as_index(digits), 5000)))


def as_set(machine: Machine, values: Any = ()) -> Set:
    made = Set()
    for value in iterate(machine, values):
        spend(12)
        made[key(value)] = None
    return made


class _Ordered:
    """A value that is sorted by what comparing costs, and by the order that programs have."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: "_Ordered") -> bool:
        return less(self.value, other.value)


def ordered(machine: Machine, values: Any, *, key: Any = None, reverse: Any = False) -> list[Any]:
    items = listed(machine, values)
    measured = items if key is None else [call(machine, key, item) for item in items]
    spend(4 * len(items))
    order = sorted(range(len(items)), key=lambda place: _Ordered(measured[place]), reverse=is_true(reverse))
    return [items[place] for place in order]


def _str(_: Machine, value: Any = "") -> str:
    return text_of(value)


def _sum(machine: Machine, values: Any, start: Any = 0) -> Any:
    if type(start) is str:
        raise TypeError("sum() can't sum strings [use ''.join(seq) instead]")
    total = start
    for value in iterate(machine, values):
        total = add(total, value)
    return total


def _tuple(machine: Machine, values: Any = ()) -> tuple[Any, ...]:
    return values if type(values) is tuple else tuple(listed(machine, values))


def _zip(machine: Machine, *many: Any, strict: Any = False) -> Lazy:
    return Lazy(zip(*(iterate(machine, values) for values in many), strict=is_true(strict)))


def _bool(_: Machine, value: Any = False) -> bool:
    return is_true(value)


def _ord(_: Machine, value: Any) -> int:
    return ord(as_text(value))


def _chr(_: Machine, value: Any) -> str:
    return chr(as_index(value))


def as_text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError(f"must be a text, not {kind_of(value)}")
    return value


def _raises(name: str) -> Callee:
    def made(_: Machine, *values: Any) -> Caught:
        kind = EXCEPTIONS[name][0] if len(EXCEPTIONS[name]) == 1 else ValueError
        return Caught(kind, text_of(values[0]) if values else "")

    return callee(name, made)


BUILT_IN: dict[str, Any] = {
    name: callee(name, function, types)
    for name, function, types in (
        ("abs", _abs, ()), ("all", _all, ()), ("any", _any, ()), ("bin", _in_base(bin), ()), ("bool", _bool, (bool,)), ("chr", _chr, ()),
        ("dict", _dict, (dict,)), ("divmod", _divmod, ()), ("enumerate", _enumerate, ()), ("filter", _filter, ()), ("float", _float, (float,)),
        ("format", _format, ()), ("hex", _in_base(hex), ()), ("int", _int, (int, bool)), ("isinstance", _isinstance, ()), ("iter", _iter, ()),
        ("len", _len, ()), ("list", _list, (list,)), ("map", _map, ()), ("max", _extreme(lambda a, b: less(b, a)), ()), ("min", _extreme(less), ()),
        ("next", _next, ()), ("oct", _in_base(oct), ()), ("ord", _ord, ()), ("pow", _pow, ()), ("print", _print, ()), ("range", _range, (range,)),
        ("repr", _repr, ()), ("reversed", _reversed, ()), ("round", _round, ()), ("set", as_set, (Set,)), ("sorted", ordered, ()),
        ("str", _str, (str,)), ("sum", _sum, ()), ("tuple", _tuple, (tuple,)), ("zip", _zip, ()),
    )
}  # fmt: skip
BUILT_IN |= {name: _raises(name) for name in EXCEPTIONS}
