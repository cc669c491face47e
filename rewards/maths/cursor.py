"""A place in a list of tokens, with bounds; what all levels of the parser share.

Reading takes time in proportion to the tokens, whatever they are: what a look ahead asks about a bracket is found out once, for all
brackets, before reading begins; and no rule of the grammar reads a part twice (`Cursor.kept` has the one that is read too early).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, NamedTuple, ParamSpec, TypeVar

from rewards.maths.lexer import Token
from rewards.maths.limits import MAX_DEPTH, UnreadableError, spend
from rewards.maths.syntax import Node

STEPS_OF_A_TOKEN = 15
END = Token("end", "")

P = ParamSpec("P")
C = TypeVar("C", bound="Cursor")
T = TypeVar("T")


def nested(rule: Callable[Concatenate[C, P], T]) -> Callable[Concatenate[C, P], T]:
    """For a rule of the grammar that may come back to itself: so often, and no more. One on each way round is enough.

    Raises:
        UnreadableError: from the rule, beyond `MAX_DEPTH`.
    """

    @wraps(rule)
    def bounded(self: C, *args: P.args, **options: P.kwargs) -> T:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise UnreadableError("nested too deeply")
        node = rule(self, *args, **options)
        self.depth -= 1
        return node

    return bounded


class Bracket(NamedTuple):
    """What there is directly between an opening bracket and its end, not within brackets of its own.

    `end` is the place of the closing bracket, or the number of tokens where there is none.
    """

    end: int
    has_relation: bool = False
    bars: int = 0  # | and :
    has_over: bool = False


def brackets(found: list[Token]) -> dict[int, Bracket]:
    """By the places of the opening brackets."""
    known: dict[int, Bracket] = {}
    open_ones: list[int] = []
    for place, token in enumerate(found):
        if token.kind == "open":
            open_ones.append(place)
            known[place] = Bracket(len(found))
        elif open_ones:
            inside = known[open_ones[-1]]
            if token.kind == "close":
                known[open_ones.pop()] = inside._replace(end=place)
            elif token.kind == "rel":
                known[open_ones[-1]] = inside._replace(has_relation=True)
            elif token.kind == "op" and token.text in ("|", ":"):
                known[open_ones[-1]] = inside._replace(bars=inside.bars + 1)
            elif token.kind == "command" and token.text == "over":
                known[open_ones[-1]] = inside._replace(has_over=True)
    return known


class Cursor(ABC):
    """Moves over tokens. `depth` bounds nesting, `bars` says that | closes, `kept` is a value read before its turn."""

    def __init__(self, found: list[Token]) -> None:
        spend(STEPS_OF_A_TOKEN * len(found))
        self.tokens = found
        self.place = 0
        self.depth = 0
        self.bars = 0
        self.bracket_at = brackets(found)
        self.kept: tuple[int, Node, int] | None = None  # where it begins, what it is, where it ends

    def peek(self, ahead: int = 0) -> Token:
        place = self.place + ahead
        return self.tokens[place] if place < len(self.tokens) else END

    def before(self) -> Token:
        """The token that was read last."""
        return self.tokens[self.place - 1] if 0 < self.place <= len(self.tokens) else END

    def next(self) -> Token:
        token = self.peek()
        self.place += 1
        return token

    def at(self, kind: str, *texts: str) -> bool:
        # Without a call of `peek`: this is asked fifty times for one number.
        token = self.tokens[self.place] if self.place < len(self.tokens) else END
        return token.kind == kind and (not texts or token.text in texts)

    def accept(self, kind: str, *texts: str) -> bool:
        if self.at(kind, *texts):
            self.place += 1
            return True
        return False

    def expect(self, kind: str, *texts: str) -> Token:
        if not self.at(kind, *texts):
            raise UnreadableError(f"{texts or kind} expected, not {self.peek().text!r}")
        return self.next()

    def skip_argument(self) -> None:
        """Past a token, or past a bracket with all that is in it."""
        place = self.place
        token = self.next()
        if token.kind == "open":
            self.place = self.bracket_at[place].end + 1
        if token is END or token.kind == "close" or self.place > len(self.tokens):
            raise UnreadableError("an argument without end")

    # What looser levels of the grammar provide to tighter ones.

    @abstractmethod
    def items(self) -> Node: ...

    @abstractmethod
    def relation(self) -> Node: ...

    @abstractmethod
    def run_of_words(self) -> str: ...

    @abstractmethod
    def set_operation(self) -> Node: ...

    @abstractmethod
    def sum(self) -> Node: ...

    @abstractmethod
    def product(self) -> Node: ...

    @abstractmethod
    def signed(self) -> Node: ...

    @abstractmethod
    def power(self) -> Node: ...

    @abstractmethod
    def primary(self) -> Node: ...

    @abstractmethod
    def subscripted(self, name: str) -> str: ...

    @abstractmethod
    def argument(self) -> Node: ...

    @abstractmethod
    def braced(self) -> Node: ...

    @abstractmethod
    def group(self) -> Node: ...

    @abstractmethod
    def environment(self) -> Node: ...
