"""The vocabulary: names of functions, constants and number sets, and the words that join, qualify or negate answers."""

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
"""Words for constants. `e` and `i` are letters, and become constants where expressions are evaluated."""

GREEK = frozenset(
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho sigma tau upsilon phi "
    "varphi chi psi omega Gamma Delta Theta Lambda Xi Sigma Phi Psi Omega ell hbar partial nabla".split()
)

NUMBER_SETS = frozenset("R Z N Q C R^+ R^- Z^+ Z^- N^+ Q^+ R^* Z^* N^* C^*".split())
"""Names of sets of numbers, as letters."""

DECORATIONS = frozenset(
    (
        "overline bar vec hat tilde widehat overrightarrow widetilde underline overarc wideparen overleftrightarrow "
        "mathbb mathcal mathscr mathfrak cal angle triangle measuredangle"
    ).split()
)
"""Commands that mark a name and change no value."""

QUALIFIERS = frozenset(
    "for where when if with such as because since so which that provided whenever given after rounded approximately or-so".split()
)
"""Words after which an answer only says when it holds."""

NEGATIONS = frozenset(
    "not no never none nor neither isn't isnt aren't arent wasn't wasnt doesn't doesnt don't dont can't cant cannot won't wont "
    "or either maybe perhaps possibly but except unless without wrong incorrect false than least most between from other "
    "instead unknown unsure guess if versus vs almost until plus minus times half twice anything everything greater less more fewer above below under over up nearly "
    "squared cubed root opposite reciprocal inverse one "
    "only-if".split()
)
"""Words beside a number that make it something else than a plain statement of that number."""


_ONES = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split()
_TENS = {
    name: 10 * (place + 2) for place, name in enumerate("twenty thirty forty fifty sixty seventy eighty ninety".split())
}


_SIZES = {"hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9}
MAX_WORDS_OF_NUMBER = 12


def number_word(words: str) -> int | None:
    """A number in words: "five", "twenty-five", "two thousand three hundred and five"; None for anything else."""
    found = [w for w in re.split(r"[\s-]+", words.lower().strip()) if w]
    if not found or len(found) > MAX_WORDS_OF_NUMBER or found[-1] == "and":
        return None
    total = group = 0
    before = ""
    for word in found:
        if word in _ONES and before not in _ONES and not (before in _TENS and word not in _ONES[1:10]):
            group += _ONES.index(word)
        elif word in _TENS and before not in _TENS and before not in _ONES:
            group += _TENS[word]
        elif word == "hundred" and 0 < group < 10:
            group *= 100
        elif word in _SIZES and word != "hundred" and 0 < group and (not total or _SIZES[word] < total):
            total, group = total + group * _SIZES[word], 0
        elif word != "and" or before not in _SIZES:
            return None
        before = word
    return total + group


NO_LIMIT = frozenset(
    {
        "dne",
        "does not exist",
        "doesn't exist",
        "doesnt exist",
        "limit does not exist",
        "the limit does not exist",
        "it does not exist",
    }
)
"""Ways to say that there is no limit, or no such thing."""
