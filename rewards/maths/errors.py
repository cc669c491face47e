"""What reading and evaluating may run into. Both are caught inside `rewards.maths` and end in "not equal"."""


class UnreadableError(Exception):
    """The text is no mathematics that we read, or goes beyond a bound."""


class UndecidedError(Exception):
    """An expression has no value at the chosen point, or one beyond a bound."""
