"""Numbers as people write them: decimals, mixed numbers, repeating decimals, powers of ten, other bases, degrees."""

import re
from fractions import Fraction

from rewards.maths.cursor import Cursor
from rewards.maths.limits import UnreadableError, spend_on_bits
from rewards.maths.syntax import BasedNumber, Node, Number, Op, Quantity, Words
from rewards.maths.vocabulary import number_word

MAX_POWER_OF_TEN = 5000
_SCALES = {"c": "celsius", "f": "fahrenheit", "celsius": "celsius", "fahrenheit": "fahrenheit"}
FRACTIONS = frozenset({"frac", "dfrac", "tfrac", "cfrac", "sfrac", "nicefrac", "rfrac"})


class Numerals(Cursor):
    """The part of the parser that reads numbers."""

    def number(self) -> Node:
        text = self.next().text
        text = text.replace(",", "")
        if "." in text and (repeated := self.repeated_digits()):
            return repeating(text, repeated)
        if (
            "." in text
            and self.at("command", "dots", "ldots", "cdots")
            and not self.peek().spaced
            and self.peek(1).kind != "number"
        ):
            self.next()
            return _continued(text)
        if self.at("op", "_"):
            return self.based(text)
        return self.mixed(read_number(text))

    def repeated_digits(self) -> str:
        """The digits under a bar, under dots, or in parentheses: 0.\\overline{3}, 0.\\dot3, 0.(3); "" without any."""
        if self.at("command", "overline", "bar", "dot"):
            braces = self.peek(1).text == "{"
            digits, end = self.peek(1 + braces), 2 + 2 * braces
        else:
            digits, end = self.peek(1), 3
            if not (self.at("open", "(") and not self.peek().spaced and self.peek(2).text == ")"):
                return ""
        if digits.kind != "number" or not digits.text.isdecimal() or self.place + end > len(self.tokens):
            return ""
        self.place += end
        return digits.text

    def based(self, text: str) -> Node:
        self.next()
        base = self.argument()
        if isinstance(base, Words) and (spoken := number_word(base.text)) is not None:
            base = Number(Fraction(spoken))
        if isinstance(base, Number) and 2 <= base.value <= 36 and base.value.denominator == 1:
            return BasedNumber(text, int(base.value))
        raise UnreadableError("a numeral with a subscript that is no base")

    def mixed(self, whole: Number) -> Node:
        """3\\frac{1}{2}, 3{1\\over 2} and 3 1/2 are sums."""
        if whole.places is not None:
            return self.scientific(whole) if self.at("symbol", "e", "E") and not self.peek().spaced else whole
        if self.at("command", *FRACTIONS) or (self.at("open", "{") and self.bracket_at[self.place].has_over):
            start = self.place
            fraction = self.primary()
            proper = _proper(fraction)
            if proper is not None:
                return Number(whole.value + proper)
            self.kept, self.place = (start, fraction, self.place), start
        elif self.at("number") and self.peek().spaced and self.peek(1).text == "/" and self.peek(2).kind == "number":
            top, bottom = self.peek().text, self.peek(2).text
            if top.isdigit() and bottom.isdigit() and 0 < int(top) < int(bottom):
                self.place += 3
                return Number(whole.value + Fraction(int(top), int(bottom)))
        elif self.at("symbol", "e", "E") and not self.peek().spaced:
            return self.scientific(whole)
        return whole

    def scientific(self, whole: Number) -> Node:
        ahead = 2 if self.peek(1).text in ("+", "-") else 1
        digits = self.peek(ahead)
        if digits.kind != "number" or not digits.text.isdigit() or digits.spaced or int(digits.text) > MAX_POWER_OF_TEN:
            return whole
        power = -int(digits.text) if self.peek(1).text == "-" else int(digits.text)
        self.place += ahead + 1
        spend_on_bits(4 * abs(power))
        return Number(whole.value * Fraction(10) ** power)

    def degrees(self, base: Node, braced: bool = False) -> Node:
        self.expect("op", "degree")
        if braced:
            self.expect("close", "}")
        scale = self.peek().text.lower() if self.peek().kind in ("symbol", "word") else ""
        if scale in _SCALES and self.peek(1).kind != "op":
            self.next()
            return Quantity(base, _SCALES[scale])
        minutes = self.sixtieths("'", 60)
        seconds = self.sixtieths('"', 3600)
        parts = [base, *(p for p in (minutes, seconds) if p is not None)]
        return Op("degree", (parts[0] if len(parts) == 1 else Op("add", tuple(parts)),))

    def sixtieths(self, mark: str, share: int) -> Node | None:
        marks = 2 if mark == '"' and self.peek(1).text == "'" == self.peek(2).text else 1
        if not (self.at("number") and (self.peek(1).text == mark or marks == 2)):
            return None
        value = read_number(self.next().text)
        self.place += marks
        return Number(value.value / share)


def repeating(start: str, repeated: str) -> Number:
    whole, _, decimals = start.partition(".")
    tail = Fraction(int(repeated), (10 ** len(repeated) - 1) * 10 ** len(decimals))
    return Number(Fraction(f"{whole or '0'}.{decimals or '0'}") + tail)


_REPEATS = re.compile(r"(\d*?\.\d*?)(?:(\d)\2{2,}|(\d{2,12})\3+)")


def _continued(text: str) -> Number:
    """0.333... repeats what it shows again and again; 3.14... is what it shows."""
    match = _REPEATS.fullmatch(text)
    return repeating(match[1], match[2] or match[3]) if match else read_number(text)


def read_number(text: str) -> Number:
    whole, _, decimals = text.replace(",", "").partition(".")
    if not decimals:
        return Number(Fraction(int(whole or "0")))
    return Number(Fraction(int(whole + decimals), 10 ** len(decimals)), len(decimals))


def _proper(fraction: Node) -> Fraction | None:
    return fraction.value if isinstance(fraction, Number) and 0 < fraction.value < 1 else None
