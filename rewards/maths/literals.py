"""Answers that need no parser: plain numbers, times of day, dates, and letters of multiple-choice questions.

>>> parse_number("1,234.50"), parse_number("-3/4"), parse_number("50\\\\%"), parse_number("1e999999999")
(Fraction(2469, 2), Fraction(-3, 4), Fraction(1, 2), None)
>>> clock("1:30 p.m."), clock("13:30"), clock("5:8")
((810, True), (810, True), None)
>>> date("January 5, 2020"), date("5th of Jan. 2020"), date("2020-01-05"), date("5")
((2020, 1, 5), (2020, 1, 5), (2020, 1, 5), None)
>>> choice("B"), choice("(B) 42"), choice(r"\\textbf{(B)}\\ 42"), choice("Option B"), choice("B. Blue")
(('B', ''), ('B', '42'), ('B', '42'), ('B', ''), ('B', 'Blue'))
>>> choice("Apple"), choice("(A) 5 or (B) 6"), choice("A, B"), choice("B. not C")
(None, None, None, None)
"""

import re
from fractions import Fraction
from functools import lru_cache

from rewards.maths.normalise import MAX_REMEMBERED

# Plain numbers: exact fractions, no floating point, no evaluation, and bounds on everything.


MAX_NUMBER_CHARACTERS = 200
MAX_EXPONENT = 400

_DIGITS = r"(?:\d{1,3}(?:,\d{3})+|\d+)"
_DECIMAL = rf"(?:{_DIGITS}(?:\.\d*)?|\.\d+)"
_PLAIN = re.compile(rf"([+-]?)({_DECIMAL})(?:[eE]([+-]?\d{{1,6}}))?$")
_RATIO = re.compile(rf"([+-]?)({_DECIMAL})/([+-]?)({_DECIMAL})$")
_SPACED_OUT = re.compile(r"(?<!\d)[1-9]\d{0,2}(?: \d{3})+(?!\d)")
"""A space that separates thousands: 1 000 000."""
_MIXED = re.compile(rf"([+-]?)({_DIGITS})\s+(\d+)/(\d+)$")
_SCIENTIFIC = re.compile(rf"([+-]?)({_DECIMAL})(?:\*|x|\\times|\\cdot)10\^\{{?([+-]?\d{{1,6}})\}}?$")
_EUROPEAN = re.compile(r"[+-]?(?:\d{4,},\d{1,2}|0,\d{3,})")
"""A comma that can't separate thousands, nor well the parts of a list: 1000,99 and 0,111."""
_FRAC = re.compile(r"([+-]?)(\d*)\\[dt]?frac(?:\{([^{}]+)\}|(\d))(?:\{([^{}]+)\}|(\d))$")


@lru_cache(MAX_REMEMBERED)
def parse_number(text: str) -> Fraction | None:
    """The rational number that `text` writes down, or None if it writes none (or one beyond all reason).

    Understands integers, decimals, thousands separators, fractions, mixed numbers, LaTeX fractions, scientific notation
    and a trailing percent sign. Signs may be ASCII or typographic.
    """
    if len(text) > MAX_NUMBER_CHARACTERS:
        return None
    text = text.strip().replace("\u2212", "-").replace("{,}", ",")
    if _EUROPEAN.fullmatch(text):
        text = text.replace(",", ".")
    number = _number_in(text.removesuffix("%").removesuffix("\\") if text.endswith("%") else text)
    return number / 100 if text.endswith("%") and number is not None else number


def _number_in(text: str) -> Fraction | None:
    if match := _MIXED.match(text.strip()):
        sign, whole, top, bottom = match.groups()
        part = _divide(Fraction(int(top)), Fraction(int(bottom)))
        return None if part is None else _with_sign(sign, _decimal(whole) + part)
    if " " in text:
        text = _SPACED_OUT.sub(lambda m: m[0].replace(" ", ""), text)
        text = re.sub(r"(?<![,\d])\s+|(?<!,)\s+(?!\d)", "", text)  # "32, 349" is a list, and "2 3" two numbers
    if match := _PLAIN.match(text):
        sign, digits, exponent = match.groups()
        return _with_sign(sign, _scaled(_decimal(digits), exponent))
    if match := _SCIENTIFIC.match(text):
        sign, digits, exponent = match.groups()
        return _with_sign(sign, _scaled(_decimal(digits), exponent))
    if match := _RATIO.match(text):
        sign, top, sign2, bottom = match.groups()
        quotient = _divide(_decimal(top), _decimal(bottom))
        return _with_sign(sign2, _with_sign(sign, quotient))
    if match := _FRAC.match(text):
        return _latex_fraction(match)
    return None


def _latex_fraction(match: re.Match[str]) -> Fraction | None:
    sign, whole, top, top_digit, bottom, bottom_digit = match.groups()
    numerator, denominator = _number_in(top or top_digit), _number_in(bottom or bottom_digit)
    if numerator is None or denominator is None:
        return None
    quotient = _divide(numerator, denominator)
    if quotient is None:
        return None
    return _with_sign(sign, (int(whole) if whole else 0) + quotient)


def _decimal(digits: str) -> Fraction:
    return Fraction(digits.replace(",", "").rstrip(".") if not digits.startswith(".") else "0" + digits)


def _scaled(value: Fraction, exponent: str | None) -> Fraction | None:
    power = int(exponent or 0)
    return value * Fraction(10) ** power if abs(power) <= MAX_EXPONENT else None


def _divide(top: Fraction, bottom: Fraction) -> Fraction | None:
    return top / bottom if bottom else None


def _with_sign(sign: str, value: Fraction | None) -> Fraction | None:
    return None if value is None else -value if sign == "-" else value


# Quotients with remainders, and decimals with a comma.


_REMAINDER = re.compile(
    r"(?:quotient:?\s*)?(-?\d{1,30})\s*,?\s*(?:\\text\s*\{\s*)?(?:R|r|rem\.?|(?:and\s+|with\s+)?(?:a\s+)?remainder(?:\s+of)?:?)\s*\}?\s*(\d{1,30})"
)
_COMMA = re.compile(r"([+-]?)(\d{1,3}(?:\.\d{3})+|\d{1,30}),(\d{1,2}|\d{4,30})")


def remainder(text: str) -> tuple[int, int] | None:
    """Quotient and remainder of "7 R 3" or "7 remainder 3"; None for anything else."""
    match = _REMAINDER.fullmatch(text)
    return (int(match[1]), int(match[2])) if match else None


def decimal_comma(text: str) -> Fraction | None:
    """3,5 as it is written in much of the world; None for anything else, and for 1,234, whose comma separates thousands.

    It may as well be a list, so only a gold that is one number with decimals settles it.
    """
    match = _COMMA.fullmatch(text)
    return None if match is None else _with_sign(match[1], Fraction(match[2].replace(".", "") + "." + match[3]))


# Times of day and dates are not numbers: 1:30 is not 1.5, and 5 January is not 5.


MAX_DATE_CHARACTERS = 60
_CLOCK = re.compile(r"(\d{1,2})(?::([0-5]\d))?\s*(?:([ap])\.?\s*m\b\.?)?", re.IGNORECASE)
_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
_MONTH = r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_YEAR = r"(?:,?\s*(?P<year>\d{4}))?"
_DATES = [
    re.compile(rf"{_MONTH}\s*{_DAY}{_YEAR}", re.IGNORECASE),
    re.compile(rf"{_DAY}\s*(?:of\s+)?{_MONTH}{_YEAR}", re.IGNORECASE),
    re.compile(r"(?P<year>\d{4})-(?P<month>\d{2})-(?P<day>\d{2})"),
]
_TEXT_COMMAND = re.compile(r"\\(?:text|mathrm|textbf)\s*\{([^{}]*)\}")


def clock(text: str) -> tuple[int, bool] | None:
    """Minutes after midnight, and whether that is certain: 1:30 may be in the afternoon. None for anything else."""
    match = _CLOCK.fullmatch(_without_text_commands(text))
    if match is None or not (match[2] or match[3]):
        return None
    hour, minute, half = int(match[1]), int(match[2] or 0), (match[3] or "").lower()
    if hour > (12 if half else 24):
        return None
    if half:
        hour = hour % 12 + (12 if half == "p" else 0)
    return hour * 60 + minute, bool(half) or hour > 12 or match[1].startswith("0")


def same_clock(answer: tuple[int, bool], gold: tuple[int, bool]) -> bool:
    """An answer may say more than the gold (1:30 p.m. for 1:30), but not less."""
    if answer[0] == gold[0]:
        return answer[1] or not gold[1]
    return not gold[1] and answer[1] and answer[0] - gold[0] == 12 * 60


def date(text: str) -> tuple[int | None, int, int] | None:
    """Year (None if it is not said), month and day; None for anything else."""
    bare = _without_text_commands(text)
    for pattern in _DATES if len(bare) <= MAX_DATE_CHARACTERS else ():
        if match := pattern.fullmatch(bare):
            month = match["month"].lower()[:3]
            number = int(month) if month.isdigit() else _MONTHS.index(month) + 1
            return int(match["year"]) if match["year"] else None, number, int(match["day"])
    return None


def same_date(answer: tuple[int | None, int, int], gold: tuple[int | None, int, int]) -> bool:
    """The year may go without saying."""
    return answer[1:] == gold[1:] and (answer[0] == gold[0] or None in (answer[0], gold[0]))


def _without_text_commands(text: str) -> str:
    return (
        " ".join(_TEXT_COMMAND.sub(r" \1 ", text[: 2 * MAX_DATE_CHARACTERS]).split())
        if len(text) <= 2 * MAX_DATE_CHARACTERS
        else ""
    )


# Multiple choice: the letter, and the text of the choice beside it.


MAX_CHOICE_CHARACTERS = 300
_FORMATTING = re.compile(r"\\(?:text|textbf|textrm|textit|mathrm|mathbf|mbox|bf|rm)\s*\{([^{}]*)\}|\*\*|\$")
_CHOICE = re.compile(
    r"(?:(?:option|choice|answer)\s*)?(?:\(([A-Z]|[a-e])\)|([A-Z])(?=$|\s*[).:]))\s*[).:]?\s*(.*)", re.DOTALL
)
_OTHER = re.compile(r"\([A-Za-e]\)|\b(?:or|not|and)\s+[A-Z]\b|\bor\b")
_PREFIX = re.compile(r"(?:option|choice|answer)\s+", re.IGNORECASE)


def choice(tidied: str) -> tuple[str, str] | None:
    """The letter of one choice and what it stands for; None for anything else, and for several choices."""
    if len(tidied) > MAX_CHOICE_CHARACTERS:
        return None
    bare = _PREFIX.sub("", _FORMATTING.sub(lambda m: m[1] or "", tidied).replace("\\ ", " ").strip(), count=1)
    match = _CHOICE.fullmatch(bare)
    if match is None or _OTHER.search(match[3]):
        return None
    letter, content = (match[1] or match[2]).upper(), match[3].strip()
    return letter, content


def same_letter(answer: str, gold: str) -> bool:
    """a for A, where both are nothing but a letter of a choice."""
    return len(answer) == len(gold) == 1 and gold in "ABCDE" and answer.upper() == gold
