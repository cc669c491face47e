"""Units and currencies: their names as written, and the one name that stands for all of them. No unit is converted.

Two answers with units are compared by `rewards.maths.compare`.
"""

import re

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
"""Unit as written (lower case) -> its name in the singular. Units are only names: none is converted."""

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
