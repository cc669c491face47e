"""What letters stand for: functions, constants, units, and the words that join or qualify answers."""

FUNCTIONS = {
    name: name
    for name in (
        "sin cos tan cot sec csc sinh cosh tanh coth arcsin arccos arctan arccot arcsec arccsc arcsinh arccosh arctanh "
        "log ln exp sqrt cbrt abs floor ceil gcd lcm min max sign det re im arg"
    ).split()
} | {
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "tg": "tan", "ctg": "cot", "arctg": "arctan", "lg": "lg", "Re": "re", "Im": "im",
    "sgn": "sign", "ceiling": "ceil", "cosec": "csc", "factorial": "fact", "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh",
}  # fmt: skip

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
    "ounce": "ounces oz", "ton": "tons", "liter": "liters litre litres l", "milliliter": "ml milliliters", "gallon": "gallons gal", "mph": "", "kph": "", "kmph": "",
    "unit": "units", "newton": "newtons", "joule": "joules", "watt": "watts", "volt": "volts", "ohm": "ohms", "hertz": "hz", "person": "people persons",
}  # fmt: skip
UNITS = {form: name for name, forms in _UNIT_NAMES.items() for form in (name, *forms.split())}
"""Unit as written (lower case) -> its name in the singular. A unit is no more than a name: none is converted."""

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
    "only-if".split()
)
"""Words beside a number that make it something else than a plain statement of that number."""


def unit_name(words: str) -> str:
    """The name of the unit that the words are, such as "square centimeter"; "" if they are none."""
    names = []
    for word in words.lower().replace("/", " per ").split():
        name = UNIT_MODIFIERS.get(word) or UNITS.get(word.strip(".,"))
        if name is None:
            return ""
        names.append(name)
    return " ".join(names)
