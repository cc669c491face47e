"""`extract`: find the answer in a response.

With tags: between the answer tags and nowhere else; boxes inside are opened. Without tags, the first of these that is
there: the last `\\boxed{...}` (several that only commas or "and" stand between are one list), what follows the last
`####`, what the last "the answer is" says, the last formula or number. Reasoning between think tags never counts.
"""

import re
import sys

from rewards.maths.units import unit_name
from rewards.maths.words import harmless_before, harmless_behind
from rewards.tags import Tags

MAX_RESPONSE_CHARACTERS = 100_000
MAX_BOXES = 50
MAX_FORMULA = 1000
MAX_WORDS_BEFORE = 3
MAX_WORDS_BEHIND = 3
"""Words beside a formula in a sentence that are looked at: what changes a number stands next to it."""

_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{|\\boxed\s+(?=[\w.]+)")
_HASHES = re.compile(r"####[ \t]*([^\n]*)")
_SAYS = re.compile(
    r"(?:final\s+answer(?:\s+is)?|answer\s+is|answer\s*[:=]|correct\s+(?:option|choice)\s+is|答案(?:是|为|：|:)"
    r"|réponse\s*(?::|est\b)|respuesta\s*(?::|es\b)|antwort\s*(?::|ist\b|lautet\b)|ответ\s*:)"
    r"\s*(?:\*\*)?\s*[:=]?\s*(?:is\b|are\b)?\s*(?:\*\*)?",
    re.IGNORECASE,
)
_KEYS = ("answer", "correct option", "correct choice", "答案", "réponse", "respuesta", "antwort", "ответ")
_ANY_KEY = re.compile("|".join(_KEYS))
MAX_ANNOUNCEMENTS = 50
_FINAL = re.compile(r"final\s+answer", re.IGNORECASE)
_SENTENCE_END = re.compile(r"[.!?](?:\s+(?=[A-Z\"'(*]|I\b|$)|$)|\s+\(?(?:because|since|so|which|I hope)\b")
_TAKEN_BACK = re.compile(
    r"[^.!?\n]*[.!?]\s*(?:no\b|wait\b|actually\b|hmm\b|correction\b|sorry\b|scratch that)", re.IGNORECASE
)
_RATIO = r"\d+(?::\d+)+(?:\s?[aApP]\.?[mM]\b\.?)?|\d+\s\d+/\d+"
_FACTOR = r"(?:\s?(?:π|\\pi\b|√\d+|\\sqrt\{\d+\})|\s?(?:[×*]|\\times|\\cdot)\s?10\^\{?[-−]?\d+\}?|\^\{?[-−]?\d+\}?)"
_NUMBER = rf"[-+−]?\s?(?:{_RATIO})|[-+−]?\s?[$€£]?(?:\d{{1,3}}(?:,\d{{3}})+(?!\d)|\d+(?:,\d{{2}}(?!\d))?)(?:\.\d+)?(?:[eE][-+]?\d+)?(?:\s?/\s?\d+(?:\.\d+)?)?(?:{_FACTOR}|\s?\\?%)?|[-+−]?\.\d+"
_NUMBERS = re.compile(_NUMBER)
_NO_NUMBER_BEFORE = frozenset("abcdefghijklmnopqrstuvwxyz:=>")
_FORMULA = re.compile(
    rf"(?<!\\)\$\$(?P<a>[^$]{{1,{MAX_FORMULA}}})\$\$|(?<!\\)\$(?P<b>(?!\$)[^$\n\\]*(?:\\.[^$\n\\]*)*)\$|\\\((?P<c>.{{1,{MAX_FORMULA}}}?)\\\)|\\\[(?P<d>.{{1,{MAX_FORMULA}}}?)\\\]",
    re.DOTALL,
)
_IDEOGRAPHS = re.compile("[\u3040-\u9fff\uac00-\ud7af\uf900-\ufaff]")
_NAME = re.compile(
    r"[A-Za-z](?:_\w|_\{[^}]*\})?'*(?:\([^()]*\))?|[A-Z]{2,3}|\([a-zA-Z, ]+\)|\\?\|[A-Z]{2}\\?\||.*[<>\\!]"
)
_THINKING = re.compile(r"<think>.*?(?:</think>|\Z)|\A.*</think>", re.DOTALL | re.IGNORECASE)
_END_OF_TEXT = re.compile(r"(?:<\|[\w▁]+\|>|</s>|<eos>|<end_of_turn>)\Z")
_DENIED = re.compile(
    r"(?:\b(?:not|never|nor|neither|cannot|except|without|than|unlike)|n't)(?:\s+(?:be|equal|exactly|just|even|really|simply)\b){0,2}(?:\s+to)?\s*[$(*]*\Z",
    re.IGNORECASE,
)
_DENIED_AFTER = re.compile(
    r"[$)*]*\s+(?:is|was|would be|seems)\s+(?:not|n't|never|wrong|incorrect|false)\b", re.IGNORECASE
)
_SOLVED_FOR = re.compile(r"[A-Za-z](?:_\w+)?'*(?:\(\w*\))?")
_TIMES = re.compile(r"(?<=\d)\s*x\s*(?=\d)")
_BESIDE = re.compile(r"[=,;:$]|\\[A-Za-z]+|\b[A-Za-z]{2,}\b")
_LONE_LETTER = re.compile(r"(?<![A-Za-z\\'’])[bcknpqrtuvwxyz](?![A-Za-z])")
"""A variable; not the A of "team A", nor a unit."""
_COMMANDS = re.compile(r"\\(?:text|mathrm|mathbf)\{[^{}]*\}|\\[A-Za-z]+")
_OPERATION_BEFORE = re.compile(r"[\w.)}]\s*[-+/*^·×]\s*\Z|(?<!\S)[-−]\Z")
_OPERATION_BEHIND = re.compile(
    r"\s?[/^*·×!+]|\s?[-−]\s?\d|\s?(?:thousand|million|billion|trillion|hundred|dozen)s?\b", re.IGNORECASE
)
_SCALE = re.compile(r"\s(?:thousand|million|billion|trillion)s?\b", re.IGNORECASE)
_WORD_BEHIND = re.compile(r"\s([A-Za-z]{2,})")
_HEADING = re.compile(
    r"\W*(?:(?:step|part|case|solution|conclusion|explanation|problem|example|summary|verification|calculation)\b.*"
    r"|(?:the\s+)?(?:final\s+)?answer\W*)",
    re.IGNORECASE,
)
_BETWEEN_BOXES = re.compile(r"(?:[\s,;.$&\\()\[\]]|\\q?quad|\\text|[{}]|and\b|or\b|[A-Za-z]+ and\b)*")
_CHOICES = re.compile(r"\bor\b|\bnot\b|n't\b|\beither\b", re.IGNORECASE)


def extract(response: str, tags: Tags | None = None) -> str | None:
    """The text of the answer, or None where there is none."""
    response = _without_end_of_text(response[-MAX_RESPONSE_CHARACTERS:])
    if tags is not None:
        answer = tags.answer_of(response)
        return None if answer is None else unbox(answer).strip() or None
    return _untagged(_THINKING.sub(" ", response) if "think>" in response.lower() else response)


def _without_end_of_text(response: str) -> str:
    """The response without the end marks that some tokenizers decode to text."""
    if ">" not in response[-4:]:
        return response
    while end := _END_OF_TEXT.search(response := response.rstrip(), max(0, len(response) - 40)):
        response = response[: end.start()]
    return response


def unbox(text: str) -> str:
    """The contents of the boxes in an answer, as a list if there are several; the text itself without a box.

    Several boxed answers are a list, and a list is not equal to one of its parts.
    """
    boxes = boxed(text)
    if not boxes:
        return text
    return _listed(boxes)


def _listed(boxes: list[tuple[str, int, int]]) -> str:
    """The contents of boxes as one answer: once if all are the same, else as a list."""
    contents = [content for content, _, _ in boxes]
    return contents[0] if len(set(contents)) == 1 else ", ".join(contents)


def boxed(text: str) -> list[tuple[str, int, int]]:
    """Every complete box, in order: content, start, end. A box within a box is part of it."""
    if "box" not in text:
        return []
    found: list[tuple[str, int, int]] = []
    for match in list(_BOX.finditer(text))[-MAX_BOXES:]:
        if found and match.start() < found[-1][2]:
            continue
        if match[0].endswith("{"):
            content = _braced(text, match.end())
            if content is not None:
                found.append((content.strip(), match.start(), match.end() + len(content) + 1))
        else:
            bare = re.compile(r"[\w.]+").match(text, match.end())
            if bare:
                found.append((bare[0].rstrip("."), match.start(), bare.end()))
    return found


def _braced(text: str, start: int) -> str | None:
    depth = 1
    for match in re.compile(r"\\.|[{}]", re.DOTALL).finditer(text, start):
        depth += (match[0] == "{") - (match[0] == "}")
        if depth == 0:
            return text[start : match.start()]
    return None


def last_boxes(text: str) -> str | None:
    """The last box, with those before it that only separators part from it; None without a box, "" if it is empty."""
    return _listed(boxes) if (boxes := _neighbours(boxed(text), text)) else None


def _neighbours(boxes: list[tuple[str, int, int]], text: str) -> list[tuple[str, int, int]]:
    """The last of the boxes and those that stand beside it."""
    together = boxes[-1:]
    for box in reversed(boxes[:-1]):
        between = text[box[2] : together[0][1]]
        if len(between) > 40 or not _BETWEEN_BOXES.fullmatch(between):
            break
        together.insert(0, box)
    return together


def _untagged(text: str) -> str | None:
    if boxes := _neighbours(boxed(text), text):
        # "The final answer is ..." after the last box corrects it.
        corrected = _last_said(text) if _FINAL.search(text, boxes[-1][2]) else None
        return corrected or _listed(boxes) or None
    if (hashed := _last_hashed(text)) is not None:
        return hashed or None
    return _last_said(text) or _whole(text) or _last_formula(text)


def _last_hashed(text: str) -> str | None:
    """The text behind the last `####`, or on the next line; None without one, or if it is only a heading."""
    place = text.rfind("####")
    match = _HASHES.match(text, place) if place >= 0 else None
    if match is None or _HEADING.fullmatch(match[1]):
        return None
    return match[1].strip() or text[match.end() :].strip().split("\n", 1)[0].strip()


def _last_said(text: str) -> str | None:
    """The text behind the last "the answer is" on its line (a formula may stand on the next)."""
    place = _announced(text)
    if place is None or _TAKEN_BACK.match(text, place, place + MAX_FORMULA):
        return None
    rest = text[place : place + MAX_FORMULA]
    line = rest.lstrip() if rest[:40].lstrip().startswith(("$", "\\[", "\\(")) else rest
    if not line.startswith(("$$", "\\[")):
        line = line.split("\n", 1)[0]
    return _said(line)


def _announced(text: str) -> int | None:
    """The end of the last announcement of an answer. Its key words are looked for first: that is fast."""
    low = text.lower()
    if len(low) != len(text):  # some letters have no lower case of their own length
        low = text
    if not any(key in low for key in _KEYS):
        return None
    places = [match.start() for match in _ANY_KEY.finditer(low)]
    for place in reversed(places[-MAX_ANNOUNCEMENTS:]):
        said = _last_match(_SAYS, text, max(0, place - 30), place + 150)
        if said is not None and said.end() > place:
            return said.end()
    return None


def _last_match(pattern: re.Pattern[str], text: str, start: int = 0, end: int = sys.maxsize) -> re.Match[str] | None:
    """The last of the pattern's matches, as `finditer` counts them."""
    last = None
    for last in pattern.finditer(text, start, end):  # noqa: B007
        pass
    return last


def _said(sentence: str) -> str | None:
    """The answer that a sentence gives: its formula or number, unless it offers a choice."""
    sentence = sentence.strip(" *:")
    end = _SENTENCE_END.search(sentence)
    first = _FORMULA.match(sentence)
    if first:
        tail = _SENTENCE_END.split(sentence[first.end() :])[0]
        return (
            sentence[: first.end()] + tail
            if _CHOICES.search(tail) or _continues(tail) or _changes(tail)
            else _inside(first) + _percent(tail)
        )
    said = (sentence[: end.start()] if end else sentence).strip(" *").rstrip(". ")
    if _CHOICES.search(said):
        return _corrected(said) if re.search(r"\bnot\b", said) else said or None
    last = _last_match(_FORMULA, said)
    if last is not None and _last_digit(said) >= last.end():
        return _last_formula(said)
    if last is None or _OPERATION_BEFORE.search(said, 0, last.start()) or not _introduces(said[: last.start()]):
        return said or None
    return _last_formula(said) or None


def _continues(tail: str) -> bool:
    """A list goes on after its first formula: "$1$, $2$ and $3$"."""
    return bool(re.match(r"\s*(?:,|and\b|or\b|;)\s*[$\\\d]", tail))


def _changes(tail: str) -> bool:
    """True where what follows a formula makes it another number: "$42$/2", "$42$ million", "$42$ doubled"."""
    words = " ".join(re.split(r"[,;:(.]", tail)[0].split()[:MAX_WORDS_BEHIND])
    return bool(_OPERATION_BEHIND.match(tail)) or not (_percent(tail) or harmless_behind(words))


def _introduces(text: str) -> bool:
    """False where the words before a formula make it another number: "more than $42$", "half of $42$"."""
    return harmless_before(" ".join(re.split(r"[,;:=]", text)[-1].split()[-MAX_WORDS_BEFORE:]))


def _percent(tail: str) -> str:
    return "%" if re.match(r"\s*(?:\\?%|percent\b|pct\b)", tail) else ""


def _corrected(said: str) -> str:
    """ "not 17, it is 18": what the last clause says, if it says one number."""
    clause = re.split(r"[,;:]|\bbut\b", said)[-1]
    numbers = _NUMBERS.findall(clause)
    return numbers[0] if len(numbers) == 1 and not _CHOICES.search(clause) else said


def _whole(text: str) -> str | None:
    """A response that is nothing but an answer."""
    text = text.strip()
    if len(text) > 200:
        return None
    if _IDEOGRAPHS.search(text):
        return None  # a sentence in Chinese or Japanese
    return (
        text
        if re.fullmatch(
            r"[^A-Za-z\n]*|\$[^$]*\$|\$\$[^$]*\$\$|[A-Za-z]{0,3}\s?(?:[=<>≤≥!\\]|[-+*/^(])[^.\n]*|[^A-Za-z\n.]*\d\$?\s*(?:pct|percent|%)",
            text,
        )
        and re.search(r"\w", text)
        else None
    )


def _last_formula(text: str) -> str | None:
    """The formula or number that ends last; a number inside a formula is part of it."""
    tail = text[-4000:]
    closed = max(tail.rfind("$"), tail.rfind("\\)"), tail.rfind("\\]"))
    # Else no formula ends behind the last number.
    formula = _last_match(_FORMULA, tail) if _last_digit(tail) < closed else None
    after = tail[formula.end() :] if formula else tail
    if number := _last_number(after):
        return _plain_number(after, number)
    return _plain_formula(tail, formula) if formula else None


def _plain_number(text: str, number: re.Match[str]) -> str | None:
    """A number in a text with what belongs to it; None where the text denies it, or says 2x = 42."""
    before = text[max(0, number.start() - 60) : number.start()]
    if _DENIED.search(before) or _DENIED_AFTER.match(text, number.end()) or _is_unsolved(before):
        return None
    return _around(text, number) + _measure(text, number.end())


def _plain_formula(text: str, formula: re.Match[str]) -> str | None:
    """A formula in a text, with what is done to it beside it: -$42$, 1/$42$, $42$ thousand."""
    before = text[max(0, formula.start() - 60) : formula.start()]
    if _DENIED.search(before) or _DENIED_AFTER.match(text, formula.end()):
        return None
    stated = _stated(_inside(formula))
    if stated is None or not (_OPERATION_BEFORE.search(before) or _OPERATION_BEHIND.match(text, formula.end())):
        return stated
    behind = re.compile(r"\s?\S*(?:\s?\d\S*)?").match(text, formula.end())
    return (before.split() or [""])[-1] + f"({stated})" + (behind[0].rstrip(".") if behind else "")


def _is_unsolved(before: str) -> bool:
    """True for "2x =" and "x^2 =" before a number; not for "x =", "f(2) =" or "6 x 7 ="."""
    bare = before.rstrip(" $(*")
    left = _BESIDE.split(_TIMES.sub("*", bare[:-1]))[-1].strip() if bare.endswith("=") else ""
    return bool(_LONE_LETTER.search(left)) and not _SOLVED_FOR.fullmatch(left)


def _measure(text: str, end: int) -> str:
    """What scales the number that ends here, or its unit: feet are not metres."""
    scale = _SCALE.match(text, end)
    word = _WORD_BEHIND.match(text, scale.end() if scale else end)
    unit = word[0] if word and len(word[1]) > 2 and unit_name(word[1]) else ""
    return (scale[0] if scale else "") + unit


def _last_number(text: str) -> re.Match[str] | None:
    """The last of the numbers in a text, without a look at all others."""
    last = _last_digit(text)
    start = last
    while start > 0 and text[start - 1].isdigit():
        start -= 1
    if start > 1 and text[start - 1] == " " and text[start - 2] in _NO_NUMBER_BEFORE:
        # "is 42": nothing that it could be a part of. A raised or circled digit is no number.
        if number := _NUMBERS.match(text, start - 1):
            return number
    start = max(0, last - 40)
    while start and not text[start - 1].isspace():
        start -= 1
    return _last_match(_NUMBERS, text, start)


def _last_digit(text: str) -> int:
    """The place of the last digit; -1 without one."""
    place = len(text) - 1
    while place >= 0 and not text[place].isdigit():
        place -= 1
    return place


def _stated(formula: str) -> str | None:
    """A formula that no words announce: not the last line of a calculation, unless that ends in a plain number."""
    left, equals, right = formula.rpartition("=")
    if not equals or _NAME.fullmatch(left.split("=")[0].strip()):
        return formula
    right = right.strip(" .")
    if not _NUMBERS.fullmatch(right):
        return None
    return formula if _LONE_LETTER.search(_COMMANDS.sub(" ", left)) else right


def _around(text: str, number: re.Match[str]) -> str:
    """A number with the LaTeX fraction that it ends, if it is part of one."""
    if "frac" not in text:
        return number[0].strip()
    for match in re.finditer(r"-?\\d?t?frac\{[^{}]*\}\{[^{}]*\}", text):
        if match.start() <= number.start() < match.end():
            return match[0]
    return number[0].strip()


def _inside(formula: re.Match[str]) -> str:
    return next(group for group in formula.groups() if group is not None).strip()
