"""Exact numbers from text: no floating point, no evaluation, and bounds on everything.

>>> parse_number("1,234.50"), parse_number("-3/4"), parse_number("50\\\\%")
(Fraction(2469, 2), Fraction(-3, 4), Fraction(1, 2))
>>> parse_number("1e999999999") is None
True
"""

import re
from fractions import Fraction

MAX_CHARACTERS = 200
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


def parse_number(text: str) -> Fraction | None:
    """The rational number that `text` writes down, or None if it writes none (or one beyond all reason).

    Understands integers, decimals, thousands separators, fractions, mixed numbers, LaTeX fractions, scientific notation
    and a trailing percent sign. Signs may be ASCII or typographic.
    """
    if len(text) > MAX_CHARACTERS:
        return None
    text = text.strip().replace("\u2212", "-").replace("{,}", ",")
    if _EUROPEAN.fullmatch(text):
        text = text.replace(",", ".")
    percent = re.search(r"\\?%$", text)
    number = _parse(text[: percent.start()] if percent else text)
    return number / 100 if percent and number is not None else number


def _parse(text: str) -> Fraction | None:
    if match := _MIXED.match(text.strip()):
        sign, whole, top, bottom = match.groups()
        part = _divide(Fraction(int(top)), Fraction(int(bottom)))
        return None if part is None else _signed(sign, _decimal(whole) + part)
    if " " in text:
        text = _SPACED_OUT.sub(lambda m: m[0].replace(" ", ""), text)
        text = re.sub(r"(?<![,\d])\s+|(?<!,)\s+(?!\d)", "", text)  # "32, 349" is a list, and "2 3" two numbers
    if match := _PLAIN.match(text):
        sign, digits, exponent = match.groups()
        return _signed(sign, _scaled(_decimal(digits), exponent))
    if match := _SCIENTIFIC.match(text):
        sign, digits, exponent = match.groups()
        return _signed(sign, _scaled(_decimal(digits), exponent))
    if match := _RATIO.match(text):
        sign, top, sign2, bottom = match.groups()
        quotient = _divide(_decimal(top), _decimal(bottom))
        return _signed(sign2, _signed(sign, quotient))
    if match := _FRAC.match(text):
        return _latex_fraction(match)
    return None


def _latex_fraction(match: re.Match[str]) -> Fraction | None:
    sign, whole, top, top_digit, bottom, bottom_digit = match.groups()
    numerator, denominator = _parse(top or top_digit), _parse(bottom or bottom_digit)
    if numerator is None or denominator is None:
        return None
    quotient = _divide(numerator, denominator)
    if quotient is None:
        return None
    return _signed(sign, (int(whole) if whole else 0) + quotient)


def _decimal(digits: str) -> Fraction:
    return Fraction(digits.replace(",", "").rstrip(".") if not digits.startswith(".") else "0" + digits)


def _scaled(value: Fraction, exponent: str | None) -> Fraction | None:
    power = int(exponent or 0)
    return value * Fraction(10) ** power if abs(power) <= MAX_EXPONENT else None


def _divide(top: Fraction, bottom: Fraction) -> Fraction | None:
    return top / bottom if bottom else None


def _signed(sign: str, value: Fraction | None) -> Fraction | None:
    return None if value is None else -value if sign == "-" else value
