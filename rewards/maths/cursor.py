"""A place in a list of tokens, with bounds; what all levels of the parser share."""

from abc import ABC, abstractmethod

from rewards.maths.lexer import Token
from rewards.maths.limits import UnreadableError
from rewards.maths.syntax import Node

MAX_DEPTH = 50
END = Token("end", "")


class Cursor(ABC):
    """Moves over tokens. `depth` bounds nesting, `brackets` says that commas separate, `bars` that | closes."""

    def __init__(self, found: list[Token]) -> None:
        self.tokens = found
        self.place = 0
        self.depth = 0
        self.brackets = 0
        self.bars = 0

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
        token = self.peek()
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

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise UnreadableError("nested too deeply")

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
