r"""Text into tokens: LaTeX, ASCII and typographic mathematics alike.

>>> [t.text for t in tokens(r"\frac{1}{2}x \le 3,\!000")]
['frac', '{', '1', '}', '{', '2', '}', 'x', '<=', '3000']
"""

import re
from typing import NamedTuple

from rewards.maths.errors import UnreadableError
from rewards.maths.words import FUNCTIONS, GREEK

MAX_CHARACTERS = 1500
MAX_TOKENS = 600
MAX_DIGITS = 400


class Token(NamedTuple):
    """One token.

    `kind` is number, letters (a run of them), word (from a text command), command, open, close, rel, op, or sep.
    """

    kind: str
    text: str
    spaced: bool = False  # white space before it


_NUMBER = r"""(?: \d{1,3} (?: (?: ,\\!\s? | \\!,\s? | \{,\} | \\,(?=\d{3}) | , ) \d{3} )+ (?! \d | (?:,|\{,\})\d ) | \d+ ) (?: \.\d+ | \.(?![\d.\w]) )? | \.\d+"""
_TOKEN = re.compile(
    rf"""(?P<space> (?: \s | ~ | \\[,;:!\ >/] | \\q?quad\b | \\(?:left|right|displaystyle|textstyle|limits|nolimits|[bB]igg?[lrm]?|middle)(?![A-Za-z]) )+ )
    | \\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|mathsf|operatorname|mbox|hbox|boldsymbol|bm|rm|bf)\*?\s*\{{ (?P<word> [^{{}}]* ) \}}
    | \\(?P<environment> begin|end )\s*\{{\s*(?P<name> [a-z]+ )\*?\s*\}} (?: (?<=array\}})\s*\{{[^{{}}]*\}} )?
    | (?P<number> {_NUMBER} )
    | \\(?P<command> [A-Za-z]+ )
    | \\(?P<escaped> [^A-Za-z] )
    | (?P<letters> [A-Za-z]+ )
    | (?P<rel> <= | >= | != | == | =< | => | <> | [<>=≤≥≠∈≈⩽⩾] )
    | (?P<power> \*\* )
    | (?P<other> . )""",
    re.VERBOSE | re.DOTALL,
)
_RELATIONS = {
    "le": "<=", "leq": "<=", "leqslant": "<=", "leqq": "<=", "ge": ">=", "geq": ">=", "geqslant": ">=", "geqq": ">=",
    "lt": "<", "gt": ">", "ne": "!=", "neq": "!=", "in": "in", "approx": "~", "thickapprox": "~", "simeq": "~", "equiv": "=",
    "≤": "<=", "⩽": "<=", "≥": ">=", "⩾": ">=", "≠": "!=", "∈": "in", "≈": "~", "==": "=", "=<": "<=", "=>": ">=", "<>": "!=",
}  # fmt: skip
_OPERATORS = {
    "cdot": "*", "times": "*", "ast": "*", "div": "/", "pm": "pm", "mp": "mp", "cup": "union", "bigcup": "union", "cupdot": "union",
    "cap": "intersection", "setminus": "minus", "backslash": "minus", "colon": ":", "mid": "|", "vert": "|", "lvert": "|", "rvert": "|",
    "circ": "degree", "prime": "'", "textcirc": "degree", "percent": "%", "degree": "degree",
    "·": "*", "×": "*", "⋅": "*", "∙": "*", "÷": "/", "∕": "/", "⁄": "/", "−": "-", "–": "-", "—": "-", "±": "pm", "∓": "mp", "∪": "union", "∩": "intersection",
    "∖": "minus", "°": "degree", "º": "degree", "′": "'", "’": "'", "∣": "|",
}  # fmt: skip
_SYMBOLS = {
    "∞": "infty", "π": "pi", "√": "sqrt", "θ": "theta", "α": "alpha", "β": "beta", "γ": "gamma", "λ": "lambda", "μ": "mu", "σ": "sigma", "φ": "phi", "ω": "omega",
    "∅": "emptyset", "ℝ": "reals", "ℤ": "integers", "…": "dots", "δ": "delta", "ρ": "rho", "τ": "tau", "ε": "epsilon", "Δ": "Delta", "η": "eta", "ξ": "xi", "ψ": "psi",
}  # fmt: skip
_JOINABLE = FUNCTIONS.keys() | {"pi", "theta", "alpha", "beta", "cdot", "times", "infty", "pm"}
_SUPERSCRIPTS = {c: str(i) for i, c in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")} | {"⁻": "-", "ⁿ": "n"}
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
        UnreadableError: the text is too long, has too many tokens or digits, or holds a character that means nothing here.
    """
    if len(text) > MAX_CHARACTERS:
        raise UnreadableError("too long")
    found: list[Token] = []
    spaced = False
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        if kind == "space":
            spaced = True
            continue
        found.extend(_token(kind or "", match, spaced))
        spaced = False
        if len(found) > MAX_TOKENS:
            raise UnreadableError("too many tokens")
    return found


def _token(kind: str, match: re.Match[str], spaced: bool) -> list[Token]:
    if kind == "name":
        return [Token(match["environment"], match["name"], spaced)]
    text = match[kind]
    if kind == "number":
        digits = re.sub(r"[^\d.]", "", text).rstrip(".") if text != "." else text
        if len(digits) > MAX_DIGITS:
            raise UnreadableError("too many digits")
        # With bare commas as written, for where a comma separates instead: (1,234).
        plain = re.fullmatch(r"[\d,.]+", text)
        return [Token("number", text.rstrip(".") if plain and "," in text else digits, spaced)]
    if kind == "word":
        return [Token("word", " ".join(text.split()), spaced)]
    if kind == "letters":
        return [Token("letters", text, spaced)]
    if kind == "rel":
        return [Token("rel", _RELATIONS.get(text, text), spaced)]
    if kind == "power":
        return [Token("op", "^", spaced)]
    if kind == "command":
        return _commands(text, spaced)
    return _character(text, kind == "escaped", spaced)


def _commands(name: str, spaced: bool) -> list[Token]:
    """A command; two tokens where the space behind it is missing, as in \\cotx and \\pir."""
    if name not in _JOINABLE:
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
    if text in _SUPERSCRIPTS:
        exponent = _SUPERSCRIPTS[text]
        return [Token("op", "^", spaced), Token("letters" if exponent == "n" else "number", exponent, False)]
    raise UnreadableError(f"character {text!r}")
