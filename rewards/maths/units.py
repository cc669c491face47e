"""Units and currencies: their names as written, the one name that stands for all of them, and how large each is.

Units of one kind whose sizes have an exact ratio are converted: 500 cm is 5 m, 5 feet is not. Two answers with units are
compared by `rewards.maths.compare`.
"""

import re
from fractions import Fraction

_UNIT_NAMES = {
    "dollar": "dollars usd bucks", "cent": "cents", "euro": "euros eur", "pound": "pounds lb lbs", "yuan": "rmb", "yen": "",
    "degree": "degrees deg", "radian": "radians rad", "hour": "hours hr hrs h", "minute": "minutes min mins", "second": "seconds sec secs s",
    "day": "days", "week": "weeks", "month": "months", "year": "years yr yrs", "millimeter": "millimeters mm millimetre millimetres",
    "centimeter": "centimeters cm cms centimetre centimetres", "decimeter": "dm decimeters", "meter": "meters m metre metres", "kilometer": "kilometers km kms kilometre kilometres",
    "inch": "inches in", "foot": "feet ft", "yard": "yards yd", "mile": "miles mi", "gram": "grams g", "kilogram": "kilograms kg kgs", "milligram": "mg",
    "ounce": "ounces oz", "ton": "tons", "liter": "liters litre litres l", "milliliter": "ml milliliters", "gallon": "gallons gal",
    "unit": "units", "newton": "newtons n", "joule": "joules j", "watt": "watts w", "volt": "volts v", "kelvin": "kelvins k",
    "ampere": "amperes amp amps a", "coulomb": "coulombs c", "celsius": "", "fahrenheit": "", "cup": "cups", "pint": "pints", "quart": "quarts", "ohm": "ohms", "hertz": "hz", "person": "people persons",
}  # fmt: skip
UNITS = {form: name for name, forms in _UNIT_NAMES.items() for form in (name, *forms.split())} | {
    "mph": "mile per hour", "kph": "kilometer per hour", "kmph": "kilometer per hour",
}  # fmt: skip
"""Unit as written (lower case) -> its name in the singular."""

_RATIOS: dict[str, dict[str, str | int]] = {
        "length": {"millimeter": "1/1000", "centimeter": "1/100", "decimeter": "1/10", "meter": 1, "kilometer": 1000},
        "imperial length": {"inch": 1, "foot": 12, "yard": 36, "mile": 63360},
        "mass": {"milligram": "1/1000", "gram": 1, "kilogram": 1000},
        "imperial mass": {"ounce": 1, "pound": 16},
        "time": {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800},
        "volume": {"milliliter": "1/1000", "liter": 1},
        "imperial volume": {"cup": 1, "pint": 2, "quart": 4, "gallon": 16},
        "money": {"cent": "1/100", "dollar": 1},
}  # fmt: skip
SIZES = {name: (kind, Fraction(one)) for kind, sizes in _RATIOS.items() for name, one in sizes.items()}
"""Name of a unit -> what it measures and how large it is. Metric and imperial units are not converted into each other (nobody
means exactly 25.4 mm), nor months and years, nor units of temperature."""
_POWERS = {"square": 2, "cubic": 3}


def size(unit: str) -> tuple[tuple[str, ...], Fraction] | None:
    """What a unit measures, and how large it is; "kilometer per hour" is 5/18 of "meter per second". None if that is not known."""
    kinds: list[str] = []
    total, power, sign = Fraction(1), 1, 1
    for word in unit.split():
        if word == "per":
            sign = -1
        elif word in _POWERS:
            power = _POWERS[word]
        elif word in SIZES:
            kind, one = SIZES[word]
            kinds.append(f"{kind}^{sign * power}")
            total *= one ** (sign * power)
            power = 1
        else:
            return None
    return (tuple(sorted(kinds)), total) if kinds else None


LETTER_UNITS = frozenset("m s h g l L N J W V K A C".split())
"""Units of a single letter: units only within \\text and behind a number."""

UNIT_MODIFIERS = {"square": "square", "sq": "square", "cubic": "cubic", "cu": "cubic", "per": "per"}

_UNIT_ALIASES = {"degree celsius": "celsius", "degree fahrenheit": "fahrenheit"}


_RAISED = re.compile(r"\b(\w+?)(?:\^\{?([23])\}?|([²³]))")


def _raised(match: re.Match[str]) -> str:
    return ("square " if (match[2] or match[3]) in "2²" else "cubic ") + match[1]


def unit_name(words: str) -> str:
    """The name of the unit that the words are, such as "square centimeter"; "" if they are none."""
    names = []
    for word in _RAISED.sub(_raised, words.lower()).replace("/", " per ").split():
        name = UNIT_MODIFIERS.get(word) or UNITS.get(word.strip(".,"))
        if name is None:
            return ""
        names.append(name)
    return _UNIT_ALIASES.get(name := " ".join(names), name)


CURRENCY = re.compile(r"[-+]?\s*\\?([$€£])\s*[\d.][\d.,]*(?:\s*(?:million|billion))?$|[-+]?[\d.][\d.,]*\s*\\?([$€£])$")
"""An amount of money; one of the groups is the sign."""
CURRENCIES = {"$": "dollar", "€": "euro", "£": "pound"}
UNIT_LETTER = re.compile(
    r"(.*[\d)}])\s+((?:[msghlLNJWVAK]|(?:mm|cm|dm|km|m)\^\{?[23]\}?)(?:/(?:s|h|min|m|kg))?(?:\^\{?[23]\}?)?)"
)
"""A unit without \\text, which may as well be a variable: 5 m, 10 m/s."""
