"""Right answers are looked at before training: one that nothing can match would teach that every response is wrong."""

from collections.abc import Sequence

from rewards import RewardFunction, check_gold
from rlvr.data.problem import Problem
from rlvr.errors import UserError

SHOWN = 5


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
    bad = [p for p in problems if p.answer is not None and not check_gold(p.answer)]
    if bad:
        shown = ", ".join(f"{p.source}: {p.answer!r}" for p in bad[:SHOWN])
        more = ", ..." if len(bad) > SHOWN else ""
        message = f"{len(bad)} of {len(problems)} right answers can't be parsed ({shown}{more})"
        if len(bad) == len(problems):
            raise UserError(f"{message}; is --answer_column right?")
        notes.append(f"{message}; these problems are left out")
    left_out = {id(p) for p in bad}
    good = [p for p in problems if id(p) not in left_out]
    _check_absent(good, notes, [f.name for f in functions if {"gold", "golds"} & set(f.parameters)])
    return good


def _check_absent(problems: Sequence[Problem], notes: list[str], needy: Sequence[str]) -> None:
    absent = sum(p.answer is None for p in problems)
    if not absent or not needy:
        return
    message = f"{absent} of {len(problems)} problems have no right answer, which {', '.join(needy)} needs"
    if absent == len(problems):
        raise UserError(f"{message}; name the column that holds it: --answer_column NAME, or take other functions")
    notes.append(f"{message}: their responses are not paid by it")
