"""The methods of values that programs may call."""

import string
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from rewards.maths.limits import spend
from rewards.python.functions import NOTHING, as_set, as_text, formatted, ordered, update
from rewards.python.operators import (
    both,
    contains,
    delete_item,
    either,
    equal,
    one_of,
    subtract,
)
from rewards.python.values import (
    Callee,
    Machine,
    Module,
    Set,
    as_index,
    iterate,
    key,
    kind_of,
    listed,
    repr_of,
)

Native = Callable[..., Any]


def _append(_: Machine, whole: list[Any], value: Any) -> None:
    spend(3)
    whole.append(value)


def _extend(machine: Machine, whole: list[Any], values: Any) -> None:
    whole += listed(machine, values)


def _insert(_: Machine, whole: list[Any], place: Any, value: Any) -> None:
    spend(3 + len(whole) / 8)
    whole.insert(as_index(place), value)


def _pop(_: Machine, whole: list[Any], place: Any = -1) -> Any:
    spend(1 + (0 if place == -1 else len(whole) / 8))
    return whole.pop(as_index(place))


def _place(machine: Machine, whole: Any, value: Any) -> int:
    for place, item in enumerate(iterate(machine, whole)):
        if equal(item, value):
            return place
    raise ValueError(f"{repr_of(value)[:100]} is not in {kind_of(whole)}")


def _remove(machine: Machine, whole: list[Any], value: Any) -> None:
    place = _place(machine, whole, value)
    delete_item(whole, place)


def _count(machine: Machine, whole: Any, value: Any) -> int:
    return sum(equal(item, value) for item in iterate(machine, whole))


def _sort(machine: Machine, whole: list[Any], *, key: Any = None, reverse: Any = False) -> None:
    whole[:] = ordered(machine, whole, key=key, reverse=reverse)


def _reverse(_: Machine, whole: list[Any]) -> None:
    spend(1 + len(whole) / 4)
    whole.reverse()


def _copy(_: Machine, whole: Any) -> Any:
    spend(4 + 12 * len(whole))
    return whole.copy() if type(whole) is not Set else Set(whole)


def _clear(_: Machine, whole: Any) -> None:
    whole.clear()


def _get(_: Machine, whole: dict[Any, Any], place: Any, default: Any = None) -> Any:
    return whole.get(key(place), default)


def _keys(machine: Machine, whole: dict[Any, Any]) -> list[Any]:
    return listed(machine, whole)


def _values(_: Machine, whole: dict[Any, Any]) -> list[Any]:
    spend(2 + len(whole))
    return list(whole.values())


def _items(_: Machine, whole: dict[Any, Any]) -> list[Any]:
    spend(2 + 5 * len(whole))
    return list(whole.items())


def _pop_key(_: Machine, whole: dict[Any, Any], place: Any, default: Any = NOTHING) -> Any:
    key(place)
    return whole.pop(place) if default is NOTHING else whole.pop(place, default)


def _pop_first(_: Machine, whole: Set) -> Any:
    if not whole:
        raise KeyError("pop from an empty set")
    first = next(iter(whole))
    del whole[first]
    return first


def _popitem(_: Machine, whole: dict[Any, Any]) -> Any:
    return whole.popitem()


def _setdefault(_: Machine, whole: dict[Any, Any], place: Any, default: Any = None) -> Any:
    spend(12)
    return whole.setdefault(key(place), default)


def _add(_: Machine, whole: Set, value: Any) -> None:
    spend(12)
    whole[key(value)] = None


def _discard(_: Machine, whole: Set, value: Any) -> None:
    whole.pop(key(value), None)


def _remove_from_set(_: Machine, whole: Set, value: Any) -> None:
    del whole[key(value)]


def _update_set(machine: Machine, whole: Set, *many: Any) -> None:
    for values in many:
        whole |= as_set(machine, values)


def _with_sets(operation: Callable[[Any, Any], Any]) -> Native:
    def done(machine: Machine, whole: Set, *many: Any) -> Any:
        for values in many:
            whole = operation(whole, as_set(machine, values))
        return whole

    return done


def _subset(machine: Machine, whole: Set, values: Any) -> bool:
    other = as_set(machine, values)
    return all(item in other for item in iterate(machine, whole))


def _superset(machine: Machine, whole: Set, values: Any) -> bool:
    return all(contains(machine, whole, item) for item in iterate(machine, values))


def _of_text(name: str, *, wide: bool = False) -> Native:
    """A method of Python's texts, of texts and whole numbers; `wide` where a number is a width."""
    method = getattr(str, name)

    def done(_: Machine, whole: str, *arguments: Any) -> Any:
        for argument in arguments:
            if type(argument) in (int, bool):
                spend(max(0, as_index(argument)) / 4 if wide else 1)
            elif argument is not None:
                for text in argument if type(argument) is tuple else (argument,):
                    spend(1 + len(as_text(text)) / 4)
        spend(4 + len(whole))
        return method(whole, *arguments)

    return done


def _splits(name: str) -> Native:
    plain = _of_text(name)

    def done(machine: Machine, whole: str, sep: Any = None, maxsplit: Any = -1) -> list[str]:
        spend(4 * len(whole))  # each piece is a text of its own
        return plain(machine, whole, sep, as_index(maxsplit))

    return done


def _join(machine: Machine, whole: str, values: Any) -> str:
    pieces = [as_text(piece) for piece in listed(machine, values)]
    spend(4 + (sum(map(len, pieces)) + len(whole) * len(pieces)) / 4)
    return whole.join(pieces)


def _replace(_: Machine, whole: str, old: Any, new: Any, count: Any = -1) -> str:
    spend(4 + len(whole) + len(as_text(old)))
    spend(len(as_text(new)) * (whole.count(old)) / 4)
    return whole.replace(old, new, as_index(count))


def _format_text(_: Machine, whole: str, *values: Any, **named: Any) -> str:
    """`str.format` for numbers and names of arguments: nothing is looked up in them."""
    spend(4 + len(whole))
    written, place = [], 0
    for literal, field, spec, conversion in string.Formatter().parse(whole):
        written.append(literal)
        if field is None:
            continue
        if "{" in (spec or "") or not (field == "" or field.isdecimal() or field in named):
            raise ValueError(f"format field {field[:40]!r} is not supported")
        value = named[field] if field in named else values[place if field == "" else int(field[:9])]
        place += field == ""
        written.append(formatted(repr_of(value) if conversion == "r" else value, spec or ""))
    spend(sum(map(len, written)) / 4)
    return "".join(written)


def _is_integer(_: Machine, value: Any) -> bool:
    return float(value).is_integer()


def _bit_length(_: Machine, value: int) -> int:
    return value.bit_length()


def _bit_count(_: Machine, value: int) -> int:
    return value.bit_count()


def _limit_denominator(_: Machine, value: Fraction, most: Any = 10**6) -> Fraction:
    spend(100)
    return value.limit_denominator(as_index(most))


_FOR_TEXTS = {
    name: _of_text(name)
    for name in (
        "upper", "lower", "title", "capitalize", "swapcase", "strip", "lstrip", "rstrip", "find", "rfind", "index", "rindex", "count",
        "startswith", "endswith", "isdigit", "isalpha", "isalnum", "isupper", "islower", "isspace", "isnumeric", "isdecimal", "partition",
        "rpartition", "removeprefix", "removesuffix",
    )
}  # fmt: skip
_FOR_TEXTS |= {name: _of_text(name, wide=True) for name in ("zfill", "ljust", "rjust", "center")}
_FOR_TEXTS |= {"split": _splits("split"), "rsplit": _splits("rsplit")}
_FOR_TEXTS |= {"join": _join, "replace": _replace, "format": _format_text}

METHODS: dict[type, dict[str, Native]] = {
    list: {
        "append": _append, "extend": _extend, "insert": _insert, "pop": _pop, "remove": _remove, "index": _place, "count": _count, "sort": _sort,
        "reverse": _reverse, "copy": _copy, "clear": _clear,
    },
    tuple: {"index": _place, "count": _count},
    dict: {
        "get": _get, "keys": _keys, "values": _values, "items": _items, "pop": _pop_key, "popitem": _popitem, "setdefault": _setdefault,
        "update": update, "copy": _copy, "clear": _clear,
    },
    Set: {
        "add": _add, "discard": _discard, "remove": _remove_from_set, "pop": _pop_first, "update": _update_set, "copy": _copy, "clear": _clear,
        "union": _with_sets(either), "intersection": _with_sets(both), "difference": _with_sets(subtract),
        "symmetric_difference": _with_sets(one_of), "issubset": _subset, "issuperset": _superset,
    },
    str: _FOR_TEXTS,
    int: {"bit_length": _bit_length, "bit_count": _bit_count},
    float: {"is_integer": _is_integer},
    Fraction: {"limit_denominator": _limit_denominator},
}  # fmt: skip


def attribute(value: Any, name: str) -> Any:
    """`value.name`: a member of a module, or a method.

    Raises:
        AttributeError: there is none.
    """
    if type(value) is Module and name in value.members:
        return value.members[name]
    if type(value) is Fraction and name in ("numerator", "denominator"):
        return value.numerator if name == "numerator" else value.denominator
    method = METHODS.get(type(value), {}).get(name)
    if method is None:
        whose = f"module '{value.name}'" if type(value) is Module else f"'{kind_of(value)}' object"
        raise AttributeError(f"{whose} has no attribute '{name}'")
    spend(4)
    return Callee(name, lambda machine, arguments, named: method(machine, value, *arguments, **named))
