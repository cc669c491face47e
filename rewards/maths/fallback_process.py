"""The fallback process: a question per line on stdin, a verdict per line on stdout, both JSON; null where it came to none.

Only math-verify's LaTeX reader is used: its reader of plain expressions hands the text to sympy's `parse_expr`, which
runs code, and is taken out here besides.

Each question is answered in a fork, which starts as all others do and ends with its answer: no question costs another one time, nor
changes its verdict. The kernel ends a fork after `DEADLINE_S` of computing time, whatever C code it is in, and on Linux memory is limited.
Where there are no forks (Windows) questions are answered in this process, without a deadline.
"""

import gc
import json
import os
import re
import signal
import sys
from collections.abc import Callable
from typing import Any

MEMORY_BYTES = 1 << 30
DEADLINE_S = 0.8
_WARM_UP = [(r"\frac{1}{2}", "0.5"), (r"\sum_{k=1}^n k", r"\frac{n(n+1)}{2}"), (r"\int_0^1 x^2 dx", r"\sqrt{2}")]

Check = Callable[[str, str], bool]


def main() -> None:
    """Answer until stdin ends."""
    out = os.dup(sys.stdout.fileno())
    sys.stdout = sys.stderr
    check = _checker()
    for answer, gold in _WARM_UP:  # what is loaded now is loaded for all forks
        check(answer, gold)
    gc.collect()
    gc.freeze()
    _say(out, {"ready": True})
    for line in sys.stdin.buffer:
        question = json.loads(line)
        if not hasattr(os, "fork"):
            _say(out, {"same": check(question["answer"], question["gold"])})
        elif not _answered_in_a_fork(out, check, question):
            _say(out, {"same": None})


def _answered_in_a_fork(out: int, check: Check, question: dict[str, str]) -> bool:
    """True where the fork said something before it ended."""
    process = os.fork()
    if process:
        _, status = os.waitpid(process, 0)
        return status == 0
    try:
        _limit_memory()
        _end_after(DEADLINE_S)
        same = check(question["answer"], question["gold"])
        _end_after(0)
        _say(out, {"same": same})
        os._exit(0)
    finally:  # an error of any kind: without a word
        os._exit(1)


def _say(out: int, what: dict[str, bool | None]) -> None:
    os.write(out, json.dumps(what).encode() + b"\n")


def _end_after(seconds: float) -> None:
    """End this process after so much more computing time; 0 takes that back."""
    signal.setitimer(signal.ITIMER_PROF, seconds)


def _checker() -> Check:
    import math_verify
    import math_verify.parser
    from latex2sympy2_extended import latex2sympy2

    def refuse(*_: Any, **__: Any) -> None:
        raise ValueError("plain expressions are not read")

    math_verify.parser.parse_expr = refuse
    plain = latex2sympy2.parse_expr

    def only_words(text: str, *arguments: Any, **options: Any) -> Any:
        # latex2sympy hands numbers and names on; nothing else may ever come this way.
        if not re.fullmatch(r"[A-Za-z]+|[\d.]+", str(text)):
            raise ValueError("only numbers and names are evaluated")
        return plain(text, *arguments, **options)

    latex2sympy2.parse_expr = only_words
    config = [math_verify.LatexExtractionConfig()]

    def check(answer: str, gold: str) -> bool:
        sides = [
            math_verify.parse(f"${text}$", config, fallback_mode="no_fallback", parsing_timeout=None)
            for text in (gold, answer)
        ]
        return bool(sides[0] and sides[1] and math_verify.verify(*sides, timeout_seconds=None))

    return check


def _limit_memory() -> None:
    if not sys.platform.startswith("linux"):
        return  # macOS refuses any limit, which would cost every verdict
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))


if __name__ == "__main__":
    main()
