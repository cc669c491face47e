r"""Echoes: an answer that only repeats a calculation of the question, as it stands there or with its parts in another order.

>>> echoes("6 * 7", r"What is $6 \times 7$?"), echoes("42", "What is 6 * 7?"), echoes("7 * 6", "What is 6 * 7?")
(True, False, True)
>>> echoes("-1 + x^2", "Factor $x^2 - 1$."), echoes("(x+1)(x-1)", "Factor $x^2 - 1$.")
(True, False)
"""

import re
from functools import lru_cache
from math import gcd

from rewards.maths.equivalence import tree
from rewards.maths.normalise import normalise
from rewards.maths.syntax import Node, Number, Op, Relation, Symbol, children

MAX_QUESTION_CHARACTERS = 20_000
MAX_FORMULAS = 40
MAX_FORMULA_CHARACTERS = 200

_OPERATOR = re.compile(
    r"[-+*/^!|]|\\(?:frac|dfrac|tfrac|sqrt|binom|log|ln|sin|cos|tan|cdot|times|div|sum|prod|int|lim|[bp]?mod|gcd|[lr]floor|[lr]ceil)|\d\(|\)\("
)
_TIMES = re.compile(r"\\(?:times|cdot|ast)|[×·⋅∙]|(?<=\d)\s*x\s*(?=\d)")
_DRESS = re.compile(r"\\(?:left|right|displaystyle|[,;:! ])|[\s$`*]*\?|[\s$`{}]+")
_PI = r"(?:\s*(?:\\pi|π)\s*)?"
_FRACTION = re.compile(
    rf"[-−]?\\[dt]?frac\{{(?P<top>\d{{0,9}}){_PI}\}}\{{(?P<bottom>\d{{1,9}})\}}{_PI}|[-−]?(?P<above>\d{{0,9}}){_PI}\s?/\s?(?P<below>\d{{1,9}}){_PI}"
)
_FORMULAS = re.compile(
    r"\$([^$]{1,200})\$|\\\((.{1,200}?)\\\)|\\\[(.{1,200}?)\\\]|((?:[\d.]+[!)]*\s?(?:[-+*/^×·÷]|x(?=\s?[\d(]))\s?\(*)+[\d.]+[!)]*)"
)


def echoes(answer: str, question: str | None) -> bool:
    """True for an answer that is an unevaluated expression and stands in the question: "6 * 7" for "What is 7 * 6?".

    Asked only where nothing but its value makes an answer right: the gold itself may well stand in the question.
    """
    if not question or not _OPERATOR.search(_TIMES.sub("*", answer)) or _is_worked_out(answer):
        return False
    question = question[:MAX_QUESTION_CHARACTERS]
    asked = _bare(question)
    parts = [_bare(part) for part in answer.split("=")]
    if len(parts) > 1 and re.fullmatch(r"[-\d.,/]+", parts[-1]):
        return False  # it comes to a number
    if any(_OPERATOR.search(part.lstrip("+-")) and part in asked for part in parts):
        return True
    node = tree(normalise(_TIMES.sub("*", answer)))
    return isinstance(node, Op | Relation) and _has_operation(node) and _ordered(node) in _asked(question)


def _is_worked_out(answer: str) -> bool:
    """True for a fraction in lowest terms, or such a multiple of pi; 84/2 is a calculation."""
    match = _FRACTION.fullmatch(answer.strip(" $"))
    if match is None:
        return False
    top, bottom = int(match["top"] or match["above"] or 1), int(match["bottom"] or match["below"])
    return bottom > 1 and gcd(top, bottom) == 1


def _bare(text: str) -> str:
    return _DRESS.sub("", _TIMES.sub("*", text))


@lru_cache(maxsize=256)
def _asked(question: str) -> frozenset[str]:
    """The formulas of a question, and the sides of its equations, with their parts in order."""
    found: set[str] = set()
    for place, match in enumerate(_FORMULAS.finditer(question)):
        if place == MAX_FORMULAS:
            break
        formula = next(group for group in match.groups() if group is not None)
        node = tree(normalise(_TIMES.sub("*", formula).strip(" .,?")))
        if node is not None:
            found |= {
                _ordered(n) for n in (node, *(node.sides if isinstance(node, Relation) else ())) if _has_operation(n)
            }
    return frozenset(found)


def _has_operation(node: Node) -> bool:
    """True for anything but a number, a letter, their opposites and multiples."""
    if isinstance(node, Op) and node.name in ("neg", "mul") and not any(map(_has_operation, node.args)):
        return node.name == "mul" and all(isinstance(a, Number) for a in node.args)
    return not isinstance(node, Number | Symbol)


def _ordered(node: Node) -> str:
    """A node as text, alike for alike calculations: terms and factors sorted, -(a - b) as b - a, > turned into <."""
    match node:
        case Op("neg", (inner,)):
            return _negative(_ordered(inner))
        case Op("add" | "mul" | "gcd" | "lcm" | "min" | "max" as name, _):
            return f"{name}({','.join(sorted(_flat(node, name)))})"
        case Op("abs", (Op("add", terms),)):
            turned = Op("add", tuple(Op("neg", (t,)) for t in terms))
            return f"abs({min(_ordered(node.args[0]), _ordered(turned))})"
        case Number(value):
            return str(value) if value >= 0 else _negative(str(-value))
        case Symbol(name):
            return name
        case Relation((left, right), (op,)) if op in (">", ">=", "="):
            sides = sorted((_ordered(left), _ordered(right))) if op == "=" else (_ordered(right), _ordered(left))
            return f"{'='.join(sides)}" if op == "=" else f"{sides[0]}{'<' + op[1:]}{sides[1]}"
        case Relation(sides, ops):
            return "".join(f"{_ordered(s)}{op}" for s, op in zip(sides, (*ops, ""), strict=True))
    name = node.name if isinstance(node, Op) else type(node).__name__
    return f"{name}({','.join(map(_ordered, children(node)))})"


def _negative(text: str) -> str:
    return text[1:] if text.startswith("~") else "~" + text


def _flat(node: Node, name: str) -> list[str]:
    if isinstance(node, Op) and node.name == name:
        return [text for argument in node.args for text in _flat(argument, name)]
    return [_ordered(node)]
