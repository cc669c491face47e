"""What letters stand for: functions, constants, units, and the words that join or qualify answers."""

import re

FUNCTIONS = {
    name: name
    for name in (
        "sin cos tan cot sec csc sinh cosh tanh coth arcsin arccos arctan arccot arcsec arccsc arcsinh arccosh arctanh "
        "log ln exp sqrt cbrt abs floor ceil gcd lcm min max sign det re im arg cis conj"
    ).split()
} | {
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "tg": "tan", "ctg": "cot", "arctg": "arctan", "lg": "lg", "Re": "re", "Im": "im",
    "sgn": "sign", "ceiling": "ceil", "cosec": "csc", "factorial": "fact", "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh",
}  # fmt: skip

SHORT_WORDS = frozenset(
    "is no not nor may in of to th st nd rd the for are all any was how its has one two six ten men man dog cat pig cow hen egg cup box bag "
    "jar can pie toy bus car bed kid boy ant bee key day bag map nut pen cap hat bar bit".split()
)
"""Runs of up to three letters that are words and no products."""

CONSTANTS = {"pi": "pi", "infty": "oo", "infinity": "oo", "inf": "oo", "oo": "oo", "E": "E"}
"""Words for constants. `e` and `i` are letters and are seen to where expressions are evaluated."""

GREEK = frozenset(
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho sigma tau upsilon phi "
    "varphi chi psi omega Gamma Delta Theta Lambda Xi Sigma Phi Psi Omega ell hbar partial nabla".split()
)

DECORATIONS = frozenset(
    "overline bar vec hat tilde widehat overrightarrow widetilde underline mathbb mathcal mathfrak angle triangle measuredangle".split()
)
"""Commands that mark a name and change no value."""

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
"""Unit as written (lower case) -> its name in the singular. A unit is no more than a name: none is converted."""

LETTER_UNITS = frozenset("m s h g l L N J W V K A C".split())
"""Units of a single letter: units only within \\text and behind a number."""

UNIT_MODIFIERS = {"square": "square", "sq": "square", "cubic": "cubic", "cu": "cubic", "per": "per"}

QUALIFIERS = frozenset(
    "for where when if with such as because since so which that provided whenever given after rounded approximately or-so".split()
)
"""Words after which an answer only says when it holds."""

NEGATIONS = frozenset(
    "not no never none nor neither isn't isnt aren't arent wasn't wasnt doesn't doesnt don't dont can't cant cannot won't wont "
    "or either maybe perhaps possibly but except unless without wrong incorrect false than least most between from other "
    "instead unknown unsure guess if versus vs almost until plus minus times half twice double thousand million billion "
    "hundred dozen anything everything greater less more fewer above below under over up nearly "
    "squared cubed root opposite reciprocal inverse one "
    "only-if".split()
)
"""Words beside a number that make it something else than a plain statement of that number."""


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


_ONES = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split()
_TENS = {
    name: 10 * (place + 2) for place, name in enumerate("twenty thirty forty fifty sixty seventy eighty ninety".split())
}


def number_word(words: str) -> int | None:
    """A number below 100 in words: "five", "twenty-five"; None for anything else."""
    tens, _, ones = re.sub(r"[\s-]+", " ", words.lower()).strip().partition(" ")
    if tens in _ONES and not ones:
        return _ONES.index(tens)
    if tens in _TENS and (not ones or ones in _ONES[1:10]):
        return _TENS[tens] + (_ONES.index(ones) if ones else 0)
    return None
