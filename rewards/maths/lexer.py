r"""Text to tokens, in two steps. `tokens` splits LaTeX, ASCII and typographic mathematics; `resolve_letters` decides what
runs of letters are: "xy" two symbols, "sin" a function, "cm" a unit, "and" a separator.

>>> [t.text for t in tokens(r"\frac{1}{2}x \le 3,\!000")]
['frac', '{', '1', '}', '{', '2', '}', 'x', '<=', '3000']
"""

import re
import unicodedata
from itertools import zip_longest
from typing import NamedTuple

from rewards.maths.limits import UnreadableError, spend
from rewards.maths.units import LETTER_UNITS, UNIT_MODIFIERS, UNITS, unit_name
from rewards.maths.vocabulary import CONSTANTS, FUNCTIONS, GREEK, SHORT_WORDS

MAX_DIGITS = 400


class Token(NamedTuple):
    """One token.

    `kind` is number, letters (a run of them), word (from a text command), command, open, close, rel, op, or sep.
    """

    kind: str
    text: str
    spaced: bool = False  # white space before it


_THOUSANDS = r"(?: ,\\!\s? | \\!,\s? | \{,\} | \\,(?=\d{3}) | , )"
_NUMBER = rf"""(?: \d+ (?: {_THOUSANDS} \d+ )*+ )
    (?: \.\d+ | \.(?=\s*\\(?:overline|bar|dot)\b|\(\d) | \.(?![\d.\w]) )? | \.\d+"""
_TOKEN = re.compile(
    rf"""(?P<space> (?: \s | ~ | \\[,;:!\ >/] | \\q?quad\b | \\(?:left|right|displaystyle|textstyle|limits|nolimits|[bB]igg?[lrm]?|middle|allowbreak|nobreak|indent|noindent|hfill|enspace)(?![A-Za-z])
        | \\[hv]?(?:space|phantom)\*?\s*\{{[^{{}}]*\}} )+ )
    | \\(?:text|textbf|textit|textrm|textnormal|mathrm|mathsf|operatorname|mbox|hbox|rm)\*?\s*\{{ (?P<word> [^{{}}]* ) \}}
    | \\(?:mathbf|mathit|boldsymbol|bold|bm|bf|pmb)\s*\{{ (?P<bold> [^{{}}]* ) \}}
    | \\(?P<environment> begin|end )\s*\{{\s*(?P<name> [a-z]+ )\*?\s*\}} (?: (?<=array\}})\s*\{{[^{{}}]*\}} )?
    | (?P<number> {_NUMBER} )
    | \\not\s*(?P<denied> = | \\in(?![A-Za-z]) )
    | \\(?P<command> [A-Za-z]+ )
    | \\(?P<escaped> [^A-Za-z] )
    | (?P<letters> [A-Za-z]+ )
    | (?P<rel> <= | >= | != | == | =< | => | <> | [<>=≤≥≠∈≈⩽⩾≡] )
    | (?P<power> \*\* )
    | (?P<raised> [⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ]+ )
    | (?P<lowered> [₀₁₂₃₄₅₆₇₈₉ₙ]+ )
    | (?P<dots> \.\.\.+ | … )
    | (?P<other> . )""",
    re.VERBOSE | re.DOTALL,
)
_RELATIONS = {
    "sim": "~", "le": "<=", "leq": "<=", "leqslant": "<=", "leqq": "<=", "ge": ">=", "geq": ">=", "geqslant": ">=", "geqq": ">=",
    "lt": "<", "gt": ">", "ne": "!=", "neq": "!=", "in": "in", "approx": "~", "thickapprox": "~", "simeq": "~", "equiv": "=",
    "≤": "<=", "⩽": "<=", "≥": ">=", "⩾": ">=", "≠": "!=", "∈": "in", "≈": "~", "≡": "=", "==": "=", "=<": "<=", "=>": ">=", "<>": "!=",
}  # fmt: skip
_OPERATORS = {
    "cdot": "*", "times": "*", "ast": "*", "div": "/", "pm": "pm", "mp": "mp", "cup": "union", "bigcup": "union", "cupdot": "union", "sqcup": "union",
    "cap": "intersection", "setminus": "minus", "backslash": "minus", "colon": ":", "mid": "|", "vert": "|", "lvert": "|", "rvert": "|",
    "circ": "degree", "prime": "'", "textcirc": "degree", "percent": "%", "degree": "degree",
    "·": "*", "×": "*", "⋅": "*", "∙": "*", "÷": "/", "∕": "/", "⁄": "/", "−": "-", "–": "-", "—": "-", "±": "pm", "∓": "mp", "∪": "union", "∩": "intersection",
    "∖": "minus", "°": "degree", "º": "degree", "′": "'", "’": "'", "∣": "|",
}  # fmt: skip
_SYMBOLS = {
    "∞": "infty", "π": "pi", "√": "√", "ϕ": "phi", "ℕ": "naturals", "ℚ": "rationals", "ℂ": "complexes", "θ": "theta", "α": "alpha", "β": "beta", "γ": "gamma", "λ": "lambda", "μ": "mu", "σ": "sigma", "φ": "phi", "ω": "omega",
    "∅": "emptyset", "ℝ": "reals", "ℤ": "integers", "δ": "delta", "ρ": "rho", "τ": "tau", "ε": "epsilon", "Δ": "Delta", "η": "eta", "ξ": "xi", "ψ": "psi",
}  # fmt: skip
_NOT_JOINED = frozenset({"cdots", "pmod", "pmb", "lnot", "minus", "real", "sinc", "signs", "infin"})
"""Commands that only look like another one with letters behind it."""
_JOINABLE = FUNCTIONS.keys() | {"pi", "theta", "alpha", "beta", "cdot", "times", "infty", "pm"}
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ₀₁₂₃₄₅₆₇₈₉ₙ", "0123456789-+n0123456789n")
_OPEN = {
    "(": "(",
    "[": "[",
    "{": "{",
    "lbrace": "\\{",
    "langle": "(",
    "lfloor": "lfloor",
    "lceil": "lceil",
    "lbrack": "[",
    "⌊": "lfloor",
    "⌈": "lceil",
}
_CLOSE = {
    ")": ")",
    "]": "]",
    "}": "}",
    "rbrace": "\\}",
    "rangle": ")",
    "rfloor": "rfloor",
    "rceil": "rceil",
    "rbrack": "]",
    "⌋": "rfloor",
    "⌉": "rceil",
}


def tokens(text: str) -> list[Token]:
    """The tokens of a text.

    Raises:
        UnreadableError: a number has too many digits, or the text holds a character that means nothing here.
    """
    spend(len(text))
    found: list[Token] = []
    spaced = False
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        if kind == "space":
            spaced = True
            continue
        found.extend(_token(kind or "", match, spaced))
        spaced = False
    # An ampersand before a relation only lines equations up.
    return [t for t, after in zip_longest(found, found[1:]) if t.text != "&" or not after or after.kind != "rel"]


def _token(kind: str, match: re.Match[str], spaced: bool) -> list[Token]:
    if kind == "name":
        return [Token(match["environment"], match["name"], spaced)]
    text = match[kind]
    if kind == "number":
        return _numbers(text, match.string[match.end() : match.end() + 1], spaced)
    if kind == "word":
        return [Token("word", " ".join(text.split()), spaced or text[:1].isspace())]
    if kind == "bold" and not (len(text.strip()) == 1 and text.strip().isalpha()):
        return tokens(text) if "\\" in text else [Token("word", " ".join(text.split()), spaced)]
    if kind == "bold":
        return [Token("letters", text.strip(), spaced)]
    if kind == "letters":
        return [Token("letters", text, spaced)]
    if kind == "denied":
        return [Token("rel", "!=" if text == "=" else "not in", spaced)]
    if kind == "rel":
        return [Token("rel", _RELATIONS.get(text, text), spaced)]
    if kind == "power":
        return [Token("op", "^", spaced)]
    if kind in ("raised", "lowered"):
        inside = tokens(text.translate(_RAISED))
        return [Token("op", "^" if kind == "raised" else "_"), Token("open", "{"), *inside, Token("close", "}")]
    if kind == "dots":
        return [Token("command", "dots", spaced)]
    if kind == "command":
        return _commands(text, spaced)
    return _character(text, kind == "escaped", spaced)


_SEPARATOR = re.compile(f"({_THOUSANDS})", re.VERBOSE)


def _numbers(text: str, following: str, spaced: bool) -> list[Token]:
    """The tokens of digits that commas or their like may part: one number where they group thousands, else several."""
    parts = _SEPARATOR.split(text)
    first = len(parts) - 1  # of the parts that are one number
    while first > 0 and len(parts[first].partition(".")[0]) == 3:
        first -= 2
    if len(parts[first]) > 3 and first < len(parts) - 1:
        first += 2
    found: list[Token] = []
    for digits, separator in zip(parts[:first:2], parts[1:first:2], strict=True):
        found.append(Token("number", _number(digits, separator), spaced))
        found += tokens(separator)
        spaced = not separator.endswith((",", "}")) or separator == "\\,"
    return [*found, Token("number", _number("".join(parts[first:]), following), spaced)]


def _number(text: str, following: str) -> str:
    """The digits and the point. Bare commas stay, for where a comma separates instead: (1,234)."""
    repeats = text.endswith(".") and following in ("\\", "(")  # 0.\overline{3}
    digits = text if re.fullmatch(r"[\d,.]+", text) else re.sub(r"[^\d.]", "", text)
    if len(digits) > MAX_DIGITS:
        raise UnreadableError("too many digits")
    return digits if repeats else digits.rstrip(".")


def _commands(name: str, spaced: bool) -> list[Token]:
    """A command; two tokens where the space behind it is missing, as in \\cotx and \\pir."""
    if name not in _JOINABLE and name not in _NOT_JOINED:
        for size in (len(name) - 1, len(name) - 2):
            if name[:size] in _JOINABLE and name not in FUNCTIONS and name not in GREEK and name not in _OPERATORS:
                return [_command(name[:size], spaced), Token("letters", name[size:], True)]
    return [_command(name, spaced)]


def _command(name: str, spaced: bool) -> Token:
    if name in _RELATIONS:
        return Token("rel", _RELATIONS[name], spaced)
    if name in _OPERATORS:
        return Token("op", _OPERATORS[name], spaced)
    if name in _OPEN:
        return Token("open", _OPEN[name], spaced)
    if name in _CLOSE:
        return Token("close", _CLOSE[name], spaced)
    return Token("command", name, spaced)


def _character(text: str, escaped: bool, spaced: bool) -> list[Token]:
    if escaped and text in "{}":
        return [Token("open" if text == "{" else "close", "\\" + text, spaced)]
    if escaped and text == "\\":
        return [Token("sep", "\\\\", spaced)]
    if escaped and text == "&":
        return [Token("sep", "and", spaced)]
    if escaped and text == "|":
        return [Token("op", "|", spaced)]
    if text in "$€£`" or (escaped and text in "()[]"):
        return []
    if text in "\\.*" and not escaped:  # a stray backslash or a full stop; a star is a product
        return [Token("op", "*", spaced)] if text == "*" else []
    if text in _OPEN:
        return [Token("open", _OPEN[text], spaced)]
    if text in _CLOSE:
        return [Token("close", _CLOSE[text], spaced)]
    if text in ",;&":
        return [Token("sep", text, spaced)]
    if text in _OPERATORS or text in "+-/^_!%:|'\"":
        return [Token("op", _OPERATORS.get(text, text), spaced)]
    if text in _SYMBOLS:
        return [Token("command", _SYMBOLS[text], spaced)]
    top, slash, bottom = unicodedata.normalize("NFKC", text).partition("\u2044")
    if slash and top.isdigit() and bottom.isdigit():  # one half as one character
        parts = [t for n in (top, bottom) for t in (Token("open", "{"), Token("number", n), Token("close", "}"))]
        return [Token("command", "frac", spaced), *parts]
    raise UnreadableError(f"character {text!r}")


def separated(found: list[Token]) -> list[Token]:
    """Within brackets a bare comma parts numbers: (1,234) is a pair."""
    if not any(t.kind == "number" and "," in t.text for t in found):
        return found
    out: list[Token] = []
    depth = 0
    for token in found:
        depth += (token.kind in ("open", "begin")) - (token.kind in ("close", "end_environment"))
        first, *rest = token.text.split(",") if depth > 0 and token.kind == "number" else [token.text]
        out.append(token._replace(text=first))
        for part in rest:
            out += [Token("sep", ","), Token("number", part)]
    return out


# Letters: symbols, functions, words and units.


_JOINERS = {"and": "and", "or": "or", "&": "and"}
_PERCENT = frozenset({"percent", "pct", "percentage"})
_CURRENCY_CODES = frozenset({"USD", "EUR", "GBP", "RMB", "Rs"})
_UNKNOWNS = re.compile("[xyz]{2,12}")
"""A product: there is no such word."""
_GLUED = {name + "x": name for name in ("sin", "cos", "tan", "ln", "log")}


def resolve_letters(found: list[Token]) -> list[Token]:
    """Tokens without letters: each run becomes symbols, a command, a word, or a separator."""
    out: list[Token] = []
    for place, token in enumerate(found):
        if token.kind == "letters":
            out.extend(_letters(token, out[-1] if out else None, found[place + 1 : place + 3]))
        elif token.kind == "word":
            out.extend(_words(token, out[-1] if out else None))
        elif token.kind == "end":
            out.append(token._replace(kind="end_environment"))
        else:
            out.append(token)
    return out


def _letters(token: Token, before: Token | None, following: list[Token]) -> list[Token]:
    text, lower = token.text, token.text.lower()
    after = following[0] if following else None
    if lower in _JOINERS:
        return [token._replace(kind="sep", text=_JOINERS[lower])]
    if lower in _PERCENT:
        return [token._replace(kind="op", text="%")]
    if lower in ("degree", "degrees") and before is not None and before.kind in ("number", "close"):
        return [token._replace(kind="op", text="degree")]
    if text == "sqrt":
        return [token._replace(kind="command", text="√")]
    if text == "log" and _is_base(following):
        return [token._replace(kind="command"), Token("op", "_")]
    if (
        before is not None
        and before.kind == "number"
        and (lower == "min" and not _opens(after) or lower == "h" and after is not None and after.kind == "number")
    ):
        return [token._replace(kind="word")]  # 1 h 30 min
    if text in FUNCTIONS or text in CONSTANTS and len(text) > 1 or (text in GREEK and len(text) > 1) or text == "mod":
        return [token._replace(kind="command")]
    if text in _CURRENCY_CODES:
        return [token._replace(kind="word")]
    if text in _GLUED:
        return [token._replace(kind="command", text=_GLUED[text]), Token("symbol", "x")]
    if text == "x" and before is not None and before.kind == "number" and after is not None and after.text == "10":
        return [token._replace(kind="op", text="*")]
    if _is_unit(lower, before):
        return [token._replace(kind="word")]
    if len(text) == 1:
        return [token._replace(kind="symbol")]
    if not _UNKNOWNS.fullmatch(text) and (
        len(text) >= 4
        or (len(text) == 3 and (not _beside_mathematics(before, after) or _begins_words(token, following)))
        or lower in SHORT_WORDS
        or (lower in ("an", "it", "on", "at", "as", "by") and after is not None and after.kind == "letters")
    ):
        return [token._replace(kind="word")]
    return [Token("symbol", letter, token.spaced and i == 0) for i, letter in enumerate(text)]


def _opens(token: Token | None) -> bool:
    return token is not None and token.kind == "open"


def _begins_words(token: Token, following: list[Token]) -> bool:
    """5 red beans: three letters with a word behind them."""
    return (
        token.spaced
        and token.text.islower()
        and following[:1] != []
        and following[0].kind == "letters"
        and len(following[0].text) > 3
    )


def _is_base(following: list[Token]) -> bool:
    """log2(x) and log10(x) name their base."""
    if len(following) < 2 or following[0].spaced:
        return False
    return following[0].text in ("2", "10") and following[1].kind == "open"


def _is_unit(lower: str, before: Token | None) -> bool:
    """A unit stands behind a number or another word; a single letter may as well be a variable."""
    if before is None or lower not in UNITS and lower not in UNIT_MODIFIERS:
        return False
    if before.kind == "word" and unit_name(before.text):
        return True
    return len(lower) > 1 and (before.kind in ("number", "close") or (before.kind == "command" and before.text == "pi"))


def _may_be_measured(token: Token, before: Token | None) -> bool:
    return before is not None and (before.kind == "number" or (before.kind == "close" and token.spaced))


def _beside_mathematics(before: Token | None, after: Token | None) -> bool:
    return any(t is not None and t.kind in ("op", "rel", "number", "open", "close", "command") for t in (before, after))


def _words(token: Token, before: Token | None) -> list[Token]:
    """The tokens of a \\text{...}: a joiner, a letter, a function, a number, or words."""
    text = token.text.strip(" .,;:") if token.text.strip(" .,;:") else token.text
    lower = text.lower()
    if not lower or lower in ",;":
        return [token._replace(kind="sep", text=",")] if lower in (",", ";") else []
    if lower in _JOINERS:
        return [token._replace(kind="sep", text=_JOINERS[lower])]
    if lower in _PERCENT:
        return [token._replace(kind="op", text="%")]
    if lower in ("degree", "degrees") and before is not None and before.kind in ("number", "close"):
        return [token._replace(kind="op", text="degree")]
    if _is_unit(lower, before) or (text in LETTER_UNITS and _may_be_measured(token, before)):
        return [token._replace(kind="word", text=text)]
    if len(text) == 1 and text.isalpha():
        return [token._replace(kind="symbol", text=text)]
    if text in FUNCTIONS or text in CONSTANTS:
        return [token._replace(kind="command", text=text)]
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return [token._replace(kind="number", text=text)]
    return _between_joiners(token._replace(text=text), before)


def _between_joiners(token: Token, before: Token | None) -> list[Token]:
    """Words without the "and" and "or" before and after them, which join parts of the answer."""
    words = token.text.split(" ")
    start, end = 0, len(words)
    while start < end and words[start].lower() in ("and", "or"):
        start += 1
    while end > start and words[end - 1].lower() in ("and", "or"):
        end -= 1
    if end - start == len(words):
        return [token._replace(kind="word")]
    opening = [Token("sep", word.lower()) for word in words[:start]]
    inside = token._replace(text=" ".join(words[start:end]), spaced=False)
    middle = _words(inside, opening[-1] if opening else before)
    return opening + middle + [Token("sep", word.lower()) for word in words[end:]]
