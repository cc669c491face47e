"""The fallback process: a question per line on stdin, a verdict per line on stdout, both JSON.

Only math-verify's LaTeX reader is used: its reader of plain expressions hands the text to sympy's `parse_expr`, which
runs code, and is taken out here besides. Memory is limited; time is the parent's business.
"""

import json
import os
import sys
from typing import Any

MEMORY_BYTES = 1 << 30


def main() -> None:
    """Answer until stdin ends."""
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    sys.stdout = sys.stderr
    check = _checker()
    _limit_memory()
    out.write(json.dumps({"ready": True}) + "\n")
    for line in sys.stdin:
        question = json.loads(line)
        out.write(json.dumps({"same": check(question["answer"], question["gold"])}) + "\n")


def _checker() -> Any:
    import math_verify
    import math_verify.parser

    def refuse(*_: Any, **__: Any) -> None:
        raise ValueError("plain expressions are not read")

    math_verify.parser.parse_expr = refuse
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
