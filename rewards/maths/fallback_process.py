"""The fallback process: a question per line on stdin, a verdict per line on stdout, both JSON.

Only math-verify's LaTeX reader is used: its reader of plain expressions hands the text to sympy's `parse_expr`, which
runs code, and is taken out here besides. Memory is limited, and so is the computing time of a question: the kernel ends
the process after `DEADLINE_S` of it, whatever C code it is in.
"""

import json
import os
import re
import signal
import sys
from typing import Any

MEMORY_BYTES = 1 << 30
DEADLINE_S = 0.8


def main() -> None:
    """Answer until stdin ends."""
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    sys.stdout = sys.stderr
    check = _checker()
    _limit_memory()
    out.write(json.dumps({"ready": True}) + "\n")
    for line in sys.stdin:
        question = json.loads(line)
        _end_after(DEADLINE_S)
        same = check(question["answer"], question["gold"])
        _end_after(0)
        out.write(json.dumps({"same": same}) + "\n")


def _end_after(seconds: float) -> None:
    """End this process after so much more computing time; 0 takes that back. Without effect on Windows."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, seconds)


def _checker() -> Any:
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
    try:
        import resource
    except ImportError:  # Windows
        return
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))


if __name__ == "__main__":
    main()
