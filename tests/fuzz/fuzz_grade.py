"""Coverage-guided fuzzing of `grade` with atheris. Not collected by pytest: atheris is no dependency of ours.

    python -m venv /tmp/fuzz && /tmp/fuzz/bin/pip install atheris
    PYTHONPATH=. /tmp/fuzz/bin/python tests/fuzz/fuzz_grade.py -max_total_time=300 -max_len=400 [CORPUS]

The input is a gold, a line break that is a form feed, and a response. It stops at the first exception, at a verdict that is
none, at one that takes a second of processor time, and at a gold that passes the check but is wrong in its own box. What it
finds becomes a test in test_found.py. Without a folder CORPUS it starts from the golds of the labelled sets.

Left out: golds that go to the fallback process, whose time is not ours and whose code is not watched.
"""

import os
import re
import sys
import tempfile
import time
from pathlib import Path

import atheris

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

with atheris.instrument_imports(include=["rewards"]):
    from rewards import STATUSES, Tags, check_gold, grade
    from rewards.maths import fallback

CPU_S = 1.0
TAGS = Tags.default()
fallback.applies = lambda gold: False  # type: ignore[assignment]


def one_input(data: bytes) -> None:
    gold, _, response = data.decode("utf-8", errors="surrogateescape").partition("\f")
    start = time.thread_time()
    for text, right, tags in ((response, gold, None), (f"<answer>{response}</answer>", gold, TAGS), (gold, "42", None)):
        assert grade(text, right, tags=tags).status in STATUSES
    if check_gold(gold) and _is_plain(gold):
        assert grade(f"\\boxed{{{gold}}}", gold).correct, gold
    spent_s = time.thread_time() - start
    assert spent_s < CPU_S, f"{spent_s:.2f} s"


def _is_plain(gold: str) -> bool:
    """True where a box around it ends where it should, and nothing in it matters to the extraction."""
    rest = re.sub(r"\\.", "", gold, flags=re.DOTALL)
    depths = [rest[:i].count("{") - rest[:i].count("}") for i in range(len(rest) + 1)]
    odd = ("boxed", "fbox", "####", "<think>", "</think>")
    return min(depths) >= 0 and depths[-1] == 0 and not rest.endswith("\\") and not any(word in gold for word in odd)


def corpus() -> str:
    """A folder with a file for each gold that there is."""
    from fuzz_grammar import golds

    folder = Path(tempfile.mkdtemp())
    for place, gold in enumerate(golds()):
        (folder / str(place)).write_text(f"{gold}\f\\boxed{{{gold}}}", encoding="utf-8")
    return str(folder)


def main() -> None:
    arguments = sys.argv if any(os.path.isdir(a) or os.path.isfile(a) for a in sys.argv[1:]) else [*sys.argv, corpus()]
    atheris.Setup(arguments, one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
