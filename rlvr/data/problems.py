"""`Problem`: a question with the answer that a rule can check; how a row becomes one, and which right answers are usable.

Question: the first of `question`, `problem`, `prompt`, `input`, `text`, `messages` that the data has. It is text, or a
list of chat messages, whose last user message is the question. Data with a `text` column needs no answers: it is taken
for prompts alone.

Answer: the first of `answer`, `gt_answer`, `ground_truth`, `gold`, `final_answer`, `target`, `label`, `solution`. It is
text or a number. Of a text with `####` (GSM8K) what follows it is the answer; of one with `\\boxed{…}` (MATH) what is in
the last box; the whole text then stays as the column `solution`. `none` in place of a column name says that there are
no answers, for rewards that need none.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from rewards import RewardFunction, check_gold
from rlvr.data.messages import read_messages
from rlvr.data.rows import Row, encodable, short
from rlvr.errors import UserError, did_you_mean, listed

QUESTION_COLUMNS = ("question", "problem", "prompt", "input", "text", "messages")
ANSWER_COLUMNS = ("answer", "gt_answer", "ground_truth", "gold", "final_answer", "target", "label", "solution")
NO_ANSWERS = "none"
SHOWN = 5
"""Right answers that can't be parsed, of which a message quotes so many."""

_GROUPED_DIGITS = re.compile(r"[-+]?\$?\d{1,3}(,\d{3})+(\.\d+)?")


@dataclass(frozen=True)
class Problem:
    """One question with its right answer: every reader yields these, and everything after them takes these.

    Attributes:
        id: stable and unique within its source, so that a resumed run sees the same problem under the same id.
        question: what the user asks.
        answer: the right answer; None where the data has none, or null (only a reward that needs no answer can pay then).
        columns: the row's other columns, which reward functions may ask for by name.
        source: where it came from, for messages: `file:line` or `builtin:seed`.
        dataset: the data set that it is of, as the user named it.
    """

    id: str
    question: str
    answer: str | None
    columns: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""
    dataset: str = field(default="", compare=False)

    @property
    def has_verifier(self) -> bool:
        """True if its task decides what is right, and not its answer (`rlvr/data/procedural.py`)."""
        return "procedural" in self.columns

    @property
    def checkable(self) -> bool:
        """True if a rule can tell what is right."""
        return self.answer is not None or self.has_verifier


@dataclass(frozen=True)
class Columns:
    """Where the question and the answer stand.

    Attributes:
        answer: None = the data has no answers.
        answer_is_named: the user (or the table of hub sets) named the column. One that was merely found must look like an
            answer.
    """

    question: str
    answer: str | None
    answer_is_named: bool = False


def choose_columns(
    row: Row, where: str, question_column: str | None = None, answer_column: str | None = None
) -> Columns:
    """The columns to read, going by the first row of a data set; `where` names the set in messages.

    Raises:
        UserError: no such column; the message lists those that there are.
    """
    have = list(row.values)
    question = _choose(have, where, "question", question_column, QUESTION_COLUMNS)
    if question is None:
        raise UserError(
            f"{where}: no question column; looked for {listed(QUESTION_COLUMNS)}; the columns are {listed(have)}. "
            "Name it: --question_column NAME"
        )
    if answer_column == NO_ANSWERS and NO_ANSWERS not in have:
        return Columns(question, None)
    usual = [name for name in ANSWER_COLUMNS if name != question]
    answer = _choose(have, where, "answer", answer_column, usual)
    if answer is None and question != "text":
        raise UserError(
            f"{where}: no answer column; looked for {listed(usual)}; the columns are {listed(have)}. "
            f"Name it: --answer_column NAME, or --answer_column {NO_ANSWERS} if your reward function needs no answer"
        )
    return Columns(question, answer, answer_is_named=answer_column is not None)


def _choose(have: Sequence[str], where: str, what: str, named: str | None, usual: Sequence[str]) -> str | None:
    if named is None:
        return next((name for name in usual if name in have), None)
    if named not in have:
        raise UserError(
            f"{where}: there is no column {named!r} (--{what}_column); the columns are {listed(have)}."
            f"{did_you_mean(named, have)}"
        )
    return named


def make_problem(row: Row, columns: Columns) -> Problem:
    """Read one row.

    The id is a hash of question and answer: the same wherever the file lies and whatever else is read with it.

    Raises:
        UserError: a column is missing or of the wrong type; the message names file, line and column.
    """
    question = _question(_cell(row, columns.question), row.place, columns.question)
    rest = {name: value for name, value in row.values.items() if name not in (columns.question, columns.answer)}
    answer = None
    if columns.answer is not None and (cell := _cell(row, columns.answer)) is not None:
        raw = _answer_text(cell, row.place, columns.answer)
        answer = final_answer(raw)
        if answer != raw.strip():
            rest.setdefault("solution", raw)
        elif columns.answer == "solution" and not columns.answer_is_named:
            raise UserError(
                f"{row.place}: column 'solution' has neither '#### answer' nor \\boxed{{answer}} in it; name the column "
                "with the final answers: --answer_column NAME"
            )
    digest = blake2b(f"{question}\x1f{answer}".encode(), digest_size=8).hexdigest()
    return Problem(id=digest, question=question, answer=answer, columns=rest, source=row.place)


def _cell(row: Row, column: str) -> Any:
    if column not in row.values:
        raise UserError(f"{row.place}: no column {column!r}, which other rows have; its columns: {listed(row.values)}")
    return row.values[column]


def _question(value: Any, place: str, column: str) -> str:
    text = _last_user_message(value, place, column) if isinstance(value, list) else value
    if not isinstance(text, str):
        raise UserError(
            f"{place}: column {column!r} must hold text or a list of chat messages, not {type(text).__name__} ({short(text)})"
        )
    if not text.strip():
        raise UserError(f"{place}: column {column!r} is empty")
    return encodable(text, place, column)


def _last_user_message(messages: Sequence[Any], place: str, column: str) -> str:
    of_user = [
        message["content"]
        for message in read_messages(messages, place, column, any_role=True)
        if message["role"] == "user"
    ]
    if not of_user:
        raise UserError(f"{place}: column {column!r} holds no message of the role 'user'")
    return of_user[-1]


def _answer_text(value: Any, place: str, column: str) -> str:
    if isinstance(value, float) and math.isfinite(value):
        # Tables store whole numbers as 42.0 where a neighbour is missing.
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise UserError(
            f"{place}: column {column!r} must hold the right answer as text or a number, not {type(value).__name__} ({short(value)})"
        )
    return encodable(value, place, column)


def final_answer(text: str) -> str:
    """The answer that a solution ends in: after the last `####`, else in the last `\\boxed{…}`, else all of it, stripped.

    >>> final_answer("16 - 3 - 4 = 9 eggs, 9 * 200 = 1800\\n#### 1,800")
    '1800'
    >>> final_answer(r"so $x = \\boxed{\\frac{1}{2}}$.")
    '\\\\frac{1}{2}'
    """
    if "####" in text:
        answer = text.rpartition("####")[2].strip()
        return answer.replace(",", "") if _GROUPED_DIGITS.fullmatch(answer) else answer
    boxed = _last_boxed(text)
    return text.strip() if boxed is None else boxed.strip()


def _last_boxed(text: str) -> str | None:
    """The content of the last `\\boxed{…}`; None where there is none or its braces don't close."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    begin = start + len("\\boxed{")
    depth = 1
    for position in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[begin:position]
    return None


# Right answers are looked at before training: one that nothing can match would teach that every response is wrong.


def with_good_golds(
    problems: Sequence[Problem], notes: list[str], functions: Sequence[RewardFunction] = ()
) -> list[Problem]:
    """Leave out problems whose right answer no response could match, and say which.

    Args:
        problems: as read.
        notes: receives what was left out.
        functions: the run's reward functions; some may need an answer that the data does not have.

    Raises:
        UserError: no answer can be parsed, or none is there and a function needs one.
    """
    bad = [p for p in problems if p.answer is not None and not p.has_verifier and not check_gold(p.answer)]
    if bad:
        shown = ", ".join(f"{p.source}: {p.answer!r}" for p in bad[:SHOWN])
        more = ", ..." if len(bad) > SHOWN else ""
        message = f"{len(bad)} of {len(problems)} right answers can't be parsed ({shown}{more})"
        if len(bad) == len(problems):
            raise UserError(f"{message}; is --answer_column right?")
        notes.append(f"{message}; these problems are left out")
    left_out = {id(p) for p in bad}
    good = [p for p in problems if id(p) not in left_out]
    needy = [f.name for f in functions if {"gold", "golds"} & set(f.parameters)]
    _check_absent(good, notes, needy, left_out=len(needy) == len(functions))
    return [p for p in good if p.answer is not None] if needy and len(needy) == len(functions) else good


def _check_absent(problems: Sequence[Problem], notes: list[str], needy: Sequence[str], *, left_out: bool) -> None:
    absent = sum(p.answer is None for p in problems)
    if not absent or not needy:
        return
    message = f"{absent} of {len(problems)} problems have no right answer, which {', '.join(needy)} needs"
    if absent == len(problems):
        raise UserError(
            f"{message} (the first: {problems[0].source}); give the rows a column 'answer' (--answer_column NAME names another in rlvr train), or take "
            "functions or a reward model that need none"
        )
    notes.append(
        f"{message}; these problems are left out" if left_out else f"{message}: their responses are not paid by it"
    )
