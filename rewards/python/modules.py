"""The modules that programs may import: parts of math, fractions, functools and itertools."""

import itertools
import math
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

from rewards.maths.limits import spend
from rewards.python.functions import NOTHING, call, callee, of_numbers
from rewards.python.operators import (
    add,
    multiply,
)
from rewards.python.values import (
    MAX_BITS,
    Callee,
    Lazy,
    Machine,
    Module,
    NotSupportedError,
    as_index,
    bits,
    checked,
    iterate,
    key,
    listed,
    numbers,
)

Native = Callable[..., Any]


def _fraction(_: Machine, a: Any = 0, b: Any = None) -> Fraction:
    if type(a) is str and b is None:
        if not re.fullmatch(r"\s*[-+]?\d{1,999}(?:/\d{1,999}|\.\d{0,999})?\s*", a):
            raise ValueError(f"Invalid literal for Fraction: {a[:20]!r}")
        return checked(Fraction(a))
    numbers(a, 1 if b is None else b)
    return checked(Fraction(a) if b is None else Fraction(a) / Fraction(b))


def _factorial(_: Machine, n: Any) -> int:
    if type(n) not in (int, bool):
        raise TypeError("factorial() takes a whole number")
    if n > 1600:
        raise OverflowError(f"a number of more than {MAX_BITS} bits")
    spend(1 + n)
    return checked(math.factorial(n))


def _choices(function: Callable[[int, int], int]) -> Native:
    def chosen(_: Machine, n: Any, k: Any = None) -> int:
        n = as_index(n)
        k = n if k is None else as_index(k)
        factors = min(k, n - k) if function is math.comb else k
        if (
            factors > 0
            and factors * (n.bit_length() - (factors.bit_length() if function is math.comb else 1)) > 2 * MAX_BITS
        ):
            raise OverflowError(f"a number of more than {MAX_BITS} bits")
        spend(1 + max(0, factors))
        return checked(function(n, k))

    return chosen


def _prod(machine: Machine, values: Any, start: Any = 1) -> Any:
    total = start
    for value in iterate(machine, values):
        total = multiply(total, value)
    return total


def _fsum(machine: Machine, values: Any) -> float:
    items = listed(machine, values)
    numbers(*items)
    return math.fsum(items)


def _whole_numbers(function: Callable[..., int]) -> Native:
    def done(_: Machine, *values: Any) -> int:
        total = 0 if function is math.gcd else 1
        for value in values:
            if type(value) not in (int, bool):
                raise TypeError("must be a whole number")
            n = bits(value) + bits(total)
            spend(2 + n / 8 + n * n / 1e5)
            total = checked(function(total, value))
        return total

    return done


def _isclose(_: Machine, a: Any, b: Any, rel_tol: Any = 1e-9, abs_tol: Any = 0.0) -> bool:
    numbers(a, b, rel_tol, abs_tol)
    return math.isclose(a, b, rel_tol=rel_tol, abs_tol=abs_tol)


_MATH = {
    name: of_numbers(name, getattr(math, name))
    for name in (
        "sqrt", "isqrt", "cbrt", "floor", "ceil", "trunc", "fabs", "fmod", "modf", "copysign", "exp", "expm1", "exp2", "log", "log2", "log10",
        "log1p", "pow", "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "degrees", "radians", "hypot",
        "isfinite", "isinf", "isnan", "gamma", "erf",
    )
}  # fmt: skip
_MATH |= {name: getattr(math, name) for name in ("pi", "e", "tau", "inf", "nan")}
_MATH |= {
    "factorial": callee("factorial", _factorial), "comb": callee("comb", _choices(math.comb)), "perm": callee("perm", _choices(math.perm)),
    "gcd": callee("gcd", _whole_numbers(math.gcd)), "lcm": callee("lcm", _whole_numbers(math.lcm)), "prod": callee("prod", _prod),
    "fsum": callee("fsum", _fsum), "isclose": callee("isclose", _isclose),
}  # fmt: skip


def _rows(length: int, rows: Iterator[tuple[Any, ...]]) -> Lazy:
    def counted() -> Iterator[tuple[Any, ...]]:
        for row in rows:
            spend(2 + length)
            yield row

    return Lazy(counted())


def _product(machine: Machine, *many: Any, repeat: Any = 1) -> Lazy:
    pools = [listed(machine, values) for values in many]
    length = len(pools) * max(0, as_index(repeat))
    spend(4 + 4 * length + sum(map(len, pools)) * max(0, as_index(repeat)))
    return _rows(length, itertools.product(*pools, repeat=repeat))


def _arranged(function: Callable[[list[Any], int], Iterator[tuple[Any, ...]]]) -> Native:
    def arranged(machine: Machine, values: Any, r: Any = None) -> Lazy:
        pool = listed(machine, values)
        length = len(pool) if r is None else as_index(r)
        if length > len(pool) and function is not itertools.combinations_with_replacement:
            return Lazy(iter(()))
        spend(4 + 2 * max(0, length))
        return _rows(length, function(pool, length))

    return arranged


def _chain(machine: Machine, *many: Any) -> Lazy:
    return Lazy(item for values in many for item in iterate(machine, values))


def _count_from(_: Machine, start: Any = 0, step: Any = 1) -> Lazy:
    numbers(start, step)

    def counting() -> Iterator[Any]:
        now = start
        while True:
            yield now
            now = add(now, step)

    return Lazy(counting())


def _islice(machine: Machine, values: Any, *bounds: Any) -> Lazy:
    limits = [None if bound is None else as_index(bound) for bound in bounds]
    return Lazy(itertools.islice(iterate(machine, values), *limits))


def _accumulate(machine: Machine, values: Any, function: Any = None) -> Lazy:
    def grown(a: Any, b: Any) -> Any:
        return add(a, b) if function is None else call(machine, function, a, b)

    return Lazy(itertools.accumulate(iterate(machine, values), grown))


def _reduce(machine: Machine, function: Any, values: Any, start: Any = NOTHING) -> Any:
    total = start
    for value in iterate(machine, values):
        total = value if total is NOTHING else call(machine, function, total, value)
    if total is NOTHING:
        raise TypeError("reduce() of empty iterable with no initial value")
    return total


def _cache(_: Machine, function: Any) -> Callee:
    """A function that remembers what it returned."""
    if type(function) is not Callee:
        raise TypeError("the first argument must be callable")
    known: dict[tuple[Any, ...], Any] = {}

    def remembered(machine: Machine, arguments: list[Any], named: dict[str, Any]) -> Any:
        given = key((*arguments, *named.items()))
        if given not in known:
            spend(16 + len(given))
            known[given] = function.call(machine, arguments, named)
        return known[given]

    return Callee(function.name, remembered)


def _lru_cache(machine: Machine, function: Any = None, maxsize: Any = None) -> Callee:
    if type(function) is Callee:
        return _cache(machine, function)
    return callee("cache", _cache)  # all is remembered, which the budget bounds


MODULES: dict[str, Module] = {
    "math": Module("math", _MATH),
    "fractions": Module("fractions", {"Fraction": callee("Fraction", _fraction, (Fraction,))}),
    "functools": Module(
        "functools",
        {"reduce": callee("reduce", _reduce), "cache": callee("cache", _cache), "lru_cache": callee("lru_cache", _lru_cache)},
    ),
    "itertools": Module(
        "itertools",
        {
            "product": callee("product", _product), "chain": callee("chain", _chain), "count": callee("count", _count_from),
            "islice": callee("islice", _islice), "accumulate": callee("accumulate", _accumulate),
            **{
                function.__name__: callee(function.__name__, _arranged(function))
                for function in (itertools.permutations, itertools.combinations, itertools.combinations_with_replacement)
            },
        },
    ),
}  # fmt: skip


def member(module: str, name: str) -> Any:
    """`from module import name`.

    Raises:
        NotSupportedError: there is no such module or name.
    """
    made = imported(module)
    if name not in made.members:
        raise NotSupportedError(f"can't import {name} from {module}; there are: {', '.join(sorted(made.members))}")
    return made.members[name]


def imported(module: str) -> Module:
    """`import module`.

    Raises:
        NotSupportedError: there is no such module.
    """
    if module not in MODULES:
        raise NotSupportedError(f"can't import {module}; there are: {', '.join(MODULES)}")
    return MODULES[module]
