"""What a program of a model can hold, and what it costs.

Values are exact Python numbers, texts, lists, tuples, dicts and ranges, `Fraction`s, and the classes below; never an object of anybody
else's, so that no attribute leads out. Steps come from the thread's budget (`rewards.maths.limits`), always before the work is done: one
is a node of the syntax tree, or 16 bytes that are kept. Nothing is given back, so that steps bound memory, too.

Left out: sets as Python has them. Their order changes from process to process, and with it what a model reads.
"""

from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from typing import Any

from rewards.maths.limits import size, spend

MAX_BITS = 14_000
"""Of a whole number: about as many as Python prints (4,300 digits)."""
MAX_NESTING = 50
"""Of lists in lists."""
MAX_CALLS = 200
"""Functions that wait for one another, and iterators that do."""

NUMBERS = frozenset({bool, int, float, Fraction})
PLAIN = frozenset({bool, int, float, type(None)})


class NotSupportedError(Exception):
    """The program asks for something that there is not. No `except` of a program catches it."""


class Machine:
    """What a running program has beside its values.

    Attributes:
        line: that it is on.
        waiting: functions and iterators that wait for one another.
        printed: pieces of its output.
        room: characters that it may still print.
    """

    def __init__(self, room: int) -> None:
        self.line = 0
        self.waiting = 0
        self.printed: list[str] = []
        self.room = room

    def enter(self) -> None:
        """Begin a call or an iterator's next item; `waiting` is lowered at its end."""
        if self.waiting >= MAX_CALLS:
            raise NotSupportedError(f"more than {MAX_CALLS} calls within one another")
        self.waiting += 1

    def write(self, text: str) -> None:
        """Print. Raises NotSupportedError where the output is full; what fits is kept."""
        spend(1 + len(text) / 4)
        self.printed.append(text[: self.room])
        self.room -= len(text)
        if self.room < 0:
            raise NotSupportedError("more output than is read")


class Set(dict[Any, None]):
    """A set in the order in which its items came."""

    def __eq__(self, other: object) -> bool:
        return type(other) is Set and self.keys() == other.keys()

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None

    def __repr__(self) -> str:
        return "{" + ", ".join(map(repr, self)) + "}" if self else "set()"


class Callee:
    """Something that can be called: `call(machine, arguments, named)`.

    Attributes:
        name: for messages.
        types: classes of Python that `isinstance` takes it for.
    """

    __slots__ = ("call", "name", "types")

    def __init__(
        self, name: str, call: Callable[[Machine, list[Any], dict[str, Any]], Any], types: tuple[type, ...] = ()
    ) -> None:
        self.name, self.call, self.types = name, call, types

    def __repr__(self) -> str:
        return f"<function {self.name}>"


class Module:
    """A module that may be imported: names and what they stand for."""

    __slots__ = ("members", "name")

    def __init__(self, name: str, members: dict[str, Any]) -> None:
        self.name, self.members = name, members

    def __repr__(self) -> str:
        return f"<module {self.name}>"


class Lazy:
    """An iterator."""

    __slots__ = ("iterator",)

    def __init__(self, iterator: Iterator[Any]) -> None:
        self.iterator = iterator

    def __repr__(self) -> str:
        return "<iterator>"


class Caught:
    """An exception that was caught, or that will be raised."""

    __slots__ = ("kind", "text")

    def __init__(self, kind: type[Exception], text: str) -> None:
        self.kind, self.text = kind, text

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"{self.kind.__name__}({self.text!r})"


def kind_of(value: Any) -> str:
    """The name of a value's class, as Python has it."""
    known = {Set: "set", Callee: "function", Module: "module", Lazy: "iterator", Caught: "exception"}
    return known.get(type(value)) or type(value).__name__


def checked(value: Any) -> Any:
    """A number that came out of a computation, if it is not too large.

    Raises:
        OverflowError: it is.
        TypeError: it is complex.
    """
    if type(value) is int:
        if value.bit_length() > MAX_BITS:
            raise OverflowError(f"a number of more than {MAX_BITS} bits")
    elif type(value) is complex:
        raise TypeError("complex numbers are not supported")
    elif type(value) is Fraction and size(value) > MAX_BITS:
        raise OverflowError(f"a number of more than {MAX_BITS} bits")
    return value


def bits(value: Any) -> int:
    """Bits of a number."""
    if type(value) is Fraction:
        return size(value)
    return value.bit_length() if isinstance(value, int) else 64


def weigh(value: Any) -> None:
    """Draw what reading all of a value costs: comparing, hashing, copying or printing it, with everything in it as often as it is there.

    Raises:
        NotSupportedError: lists in lists, deeper than is allowed (or without end).
    """
    if type(value) in PLAIN:
        spend(1)
        return
    level, depth = [value], 0
    while level:
        if depth > MAX_NESTING:
            raise NotSupportedError(f"lists in lists, more than {MAX_NESTING} deep")
        depth += 1
        below: list[Any] = []
        for item in level:
            kind = type(item)
            if kind is str:
                spend(1 + len(item) / 4)
            elif kind in (list, tuple):
                spend(2 + len(item))
                below += item
            elif kind is Set:
                spend(2 + len(item))
                below += item
            elif kind is dict:
                spend(2 + 2 * len(item))
                below += item.keys()
                below += item.values()
            else:
                # Printing a whole number takes time by the square of its length.
                spend(1 + bits(item) ** 2 / 1e4 if kind in NUMBERS else 1)
        level = below


def key(value: Any) -> Any:
    """A value that may be a key of a dict or in a set.

    Raises:
        TypeError: it can't be one.
    """
    if type(value) is str:
        spend(1 + len(value) / 16)
    else:
        weigh(value)
    return value


def text_of(value: Any) -> str:
    """As `str` has it."""
    weigh(value)
    return str(value)


def repr_of(value: Any) -> str:
    """As `repr` has it."""
    weigh(value)
    return repr(value)


def iterate(machine: Machine, value: Any) -> Iterator[Any]:
    """The items of a value, each for a step.

    Raises:
        TypeError: it has none.
    """
    if type(value) is Lazy:
        return _advance(machine, value)
    if type(value) in (list, tuple, str, range, dict, Set):
        return _counted(value)
    raise TypeError(f"'{kind_of(value)}' object is not iterable")


def _counted(value: Iterable[Any]) -> Iterator[Any]:
    for item in value:
        spend(1)
        yield item


def _advance(machine: Machine, value: Lazy) -> Iterator[Any]:
    while True:
        spend(2)
        machine.enter()
        try:
            item = next(value.iterator)
        except StopIteration:
            return
        finally:
            machine.waiting -= 1
        yield item


def listed(machine: Machine, value: Any) -> list[Any]:
    """The items of a value as a new list."""
    if type(value) in (list, tuple, dict, Set):
        spend(2 + len(value) / 2)
        return list(value)
    found = []
    for item in iterate(machine, value):
        spend(2)
        found.append(item)
    return found


def as_index(value: Any, what: str = "an index") -> int:
    """A whole number that is no larger than any size can be."""
    if type(value) not in (int, bool):
        raise TypeError(f"{what} must be a whole number, not {kind_of(value)}")
    if abs(value) > 2**60:
        raise OverflowError(f"{what} is too large")
    return int(value)


def is_true(value: Any) -> bool:
    """As `bool` has it."""
    return True if type(value) in (Callee, Module, Lazy, Caught) else bool(value)


def numbers(*values: Any) -> None:
    """Refuse what is no number, and draw what computing with these costs."""
    for value in values:
        if type(value) not in NUMBERS:
            raise TypeError(f"must be a number, not {kind_of(value)}")
        spend(1 + bits(value) / 128)
