"""Times of day and dates, which are no numbers: 1:30 is not 1.5, and 5 January is not 5.

>>> clock("1:30 p.m."), clock("13:30"), clock("5:8")
((810, True), (810, True), None)
>>> date("January 5, 2020"), date("5th of Jan. 2020"), date("2020-01-05"), date("5")
((2020, 1, 5), (2020, 1, 5), (2020, 1, 5), None)
"""

import re

MAX_CHARACTERS = 60
_CLOCK = re.compile(r"(\d{1,2})(?::([0-5]\d))?\s*(?:([ap])\.?\s*m\b\.?)?", re.IGNORECASE)
_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
_MONTH = r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_YEAR = r"(?:,?\s*(?P<year>\d{4}))?"
_DATES = [
    re.compile(rf"{_MONTH}\s*{_DAY}{_YEAR}", re.IGNORECASE),
    re.compile(rf"{_DAY}\s*(?:of\s+)?{_MONTH}{_YEAR}", re.IGNORECASE),
    re.compile(r"(?P<year>\d{4})-(?P<month>\d{2})-(?P<day>\d{2})"),
]
_DRESS = re.compile(r"\\(?:text|mathrm|textbf)\s*\{([^{}]*)\}")


def clock(text: str) -> tuple[int, bool] | None:
    """Minutes after midnight, and whether that is certain: 1:30 may be in the afternoon. None for anything else."""
    match = _CLOCK.fullmatch(_bare(text))
    if match is None or not (match[2] or match[3]):
        return None
    hour, minute, half = int(match[1]), int(match[2] or 0), (match[3] or "").lower()
    if hour > (12 if half else 24):
        return None
    if half:
        hour = hour % 12 + (12 if half == "p" else 0)
    return hour * 60 + minute, bool(half) or hour > 12 or match[1].startswith("0")


def same_clock(answer: tuple[int, bool], gold: tuple[int, bool]) -> bool:
    """An answer may say more than the gold (1:30 p.m. for 1:30), but not less."""
    if answer[0] == gold[0]:
        return answer[1] or not gold[1]
    return not gold[1] and answer[1] and answer[0] - gold[0] == 12 * 60


def date(text: str) -> tuple[int | None, int, int] | None:
    """Year (None if it is not said), month and day; None for anything else."""
    bare = _bare(text)
    for pattern in _DATES if len(bare) <= MAX_CHARACTERS else ():
        if match := pattern.fullmatch(bare):
            month = match["month"].lower()[:3]
            number = int(month) if month.isdigit() else _MONTHS.index(month) + 1
            return int(match["year"]) if match["year"] else None, number, int(match["day"])
    return None


def same_date(answer: tuple[int | None, int, int], gold: tuple[int | None, int, int]) -> bool:
    """The year may go without saying."""
    return answer[1:] == gold[1:] and (answer[0] == gold[0] or None in (answer[0], gold[0]))


def _bare(text: str) -> str:
    return " ".join(_DRESS.sub(r" \1 ", text[: 2 * MAX_CHARACTERS]).split()) if len(text) <= 2 * MAX_CHARACTERS else ""
