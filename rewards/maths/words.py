"""What words beside a number do to it: nothing, as units of counting and labels; scale it, as "thousand"; or make it unclear.

A word that is neither understood nor known to be harmless in its place makes an answer unreadable: nothing is paid for a
number out of a sentence that says something else of it.
"""

import re
from fractions import Fraction

from rewards.maths.vocabulary import NEGATIONS

MAX_WORDS = 12

SCALES: dict[str, Fraction] = {
    **{
        name + s: Fraction(size)
        for name, size in (("hundred", 100), ("thousand", 10**3), ("million", 10**6), ("billion", 10**9), ("trillion", 10**12), ("dozen", 12), ("gross", 144))
        for s in ("", "s")
    },
    **{
        name: Fraction(1, size)
        for size, name in enumerate("halves thirds quarters fifths sixths sevenths eighths ninths tenths elevenths twelfths".split(), 2)
    },
    **{"fourths": Fraction(1, 4), "hundredths": Fraction(1, 100), "thousandths": Fraction(1, 1000), "permille": Fraction(1, 1000), "percent": Fraction(1, 100)},
}  # fmt: skip
"""Words behind a number that multiply it: 42 thousand, 3 quarters."""

_MEASURES = frozenset(
    "total amount answer value number cost price profit speed rate length width height area volume perimeter weight mass distance age "
    "average mean median mode score result solution loss gain savings salary income discount bill balance temperature probability "
    "chance ratio radius diameter circumference population time count quantity capacity tip payment budget maximum minimum supply "
    "measure percentage fee charge percent revenue".split()
)
"""Nouns whose value follows "of": a total of 42. The triple, a factor and the digits of 42 are other numbers."""

_DONE_TO_IT = re.compile(
    r"(?:(?:doubl|tripl|trebl|quadrupl|quintupl|halv|squar|cub|revers|negat|divid|multipl(?:i|y)|invert|subtract|transpos|swapp|flipp)"
    r"(?:ed|ing)|added|thrice|treble|half|negation|inversion|reversal|backwards?)"
)
_CHANGING = frozenset("double triple treble quadruple halve square cube negate invert reverse root factorial".split())
"""Before a number or as a label, what is done to it; behind one they may be what is counted: 5 square tiles."""
_BESIDE = frozenset("after before past following preceding succeeding next previous beyond towards beside".split())
"""Directly before a number they name another one: the number after 41."""
_ORDINALS = frozenset("th st nd rd".split())
_PLACES = frozenset(
    "place position day week month year grade floor row column hour minute second century person term".split()
)
_COPULAS = frozenset("is are was were be equals equal has have had gets get got to".split())
_IDLE = frozenset(
    "the a an of it its they there in all total and value values number answer answers solution solutions final result results roots root so".split()
)


def scale(words: str) -> tuple[Fraction, str]:
    """The factor that the first of the words is, and the words behind it: 1 and all of them if it is none."""
    first, _, rest = re.sub(
        r"^per\s+(mille|cent)\b", lambda m: "percent" if m[1] == "cent" else "permille", words.lower()
    ).partition(" ")
    return (SCALES[first], rest) if first in SCALES else (Fraction(1), words)


def harmless_before(words: str) -> bool:
    """True where words before a number, or its label, state just that number."""
    found = _found(words)
    if not _restrained(found) or found[-1:] and found[-1] in _CHANGING or set(found[:1]) & _CHANGING:
        return False
    if set(found[-1:]) & _BESIDE:
        return False
    return found[-1:] != ["of"] or (len(found) > 1 and found[-2] in _MEASURES)


def harmless_behind(words: str) -> bool:
    """True where words behind a number say what it counts, or nothing."""
    found = _found(words)
    if found[:1] and found[0] in _ORDINALS:
        return all(w in _PLACES for w in found[1:])
    return _restrained(found)


def label(words: str) -> frozenset[str]:
    """The words that tell one part of a list from another: {"maximum"} of "the maximum value is"."""
    return frozenset(_found(words)) - _IDLE - _COPULAS


def _found(words: str) -> list[str]:
    return re.findall(r"[\w'-]+", words.lower().replace("’", "'"))


def _restrained(found: list[str]) -> bool:
    """No negation, comparison, operation or further number."""
    return len(found) <= MAX_WORDS and not any(
        w in NEGATIONS or w in SCALES or w.endswith("n't") or _DONE_TO_IT.fullmatch(w) for w in found
    )
