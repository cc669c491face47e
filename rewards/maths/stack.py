"""`anywhere`: a function that works however much of the stack its caller has used up."""

import _thread
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def anywhere(function: Callable[P, T]) -> Callable[P, T]:
    """The function, begun again in a thread of its own where the caller's stack ends: there it has a whole one.

    For functions without side effects that need less than a whole stack. `_thread` rather than `threading`, which needs more
    frames than may be left.
    """

    @wraps(function)
    def wherever(*args: P.args, **options: P.kwargs) -> T:
        try:
            return function(*args, **options)
        except RecursionError:
            done = _thread.allocate_lock()
            done.acquire()
            found: list[T] = []
            errors: list[BaseException] = []

            def run() -> None:
                try:
                    found.append(function(*args, **options))
                except BaseException as error:  # for the caller, below
                    errors.append(error)
                finally:
                    done.release()

            _thread.start_new_thread(run, ())
            done.acquire()
        if errors:
            raise errors[0]
        return found[0]

    return wherever
