"""`audit`: try a reward function with every probe, and with the golds of a data set; `Report` holds the findings."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

from rewards.audit.probes import PROBES, Probe, shorten
from rewards.call import score
from rewards.errors import UserError
from rewards.outcome import Outcome, Score
from rewards.registry import RewardFunction, resolve
from rewards.sample import Sample
from rewards.tags import Tags

Kind = Literal["wrongly accepts", "wrongly rejects", "pays too much", "raises", "hangs", "bad gold"]


class GoldRow(NamedTuple):
    """A row of a data set, as `audit` reads it: its place for messages, its right answer, its other columns."""

    place: str
    gold: str | None
    columns: Mapping[str, Any] = {}


@dataclass(frozen=True)
class Finding:
    """One probe that the function failed.

    Attributes:
        kind: what it did.
        category: of the probe; `gold` for a row of the data.
        probe: the probe's name, or the row's place.
        gold: the right answer.
        text: the answer or response, shortened and in ASCII.
        score: what was paid; None = nothing (does not apply, or failed).
        detail: the exception, or what the score was measured against.
    """

    kind: Kind
    category: str
    probe: str
    gold: str | None
    text: str
    score: float | None
    detail: str = ""


@dataclass(frozen=True)
class Report:
    """An audit's result.

    Attributes:
        function: its name.
        looks_at_answer: whether it pays a plainly right answer more than a plainly wrong one. Where it does not (rewards
            for format or length), only exploits and robustness were tried, and nothing may be paid more than an honest
            response.
        right: score of a plainly right answer in the right format.
        wrong: score of a plainly wrong one.
        tried: probes by category.
        findings: what it failed.
    """

    function: str
    looks_at_answer: bool
    right: float | None
    wrong: float | None
    tried: Mapping[str, int]
    findings: list[Finding] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """True where there are no findings."""
        return not self.findings

    def count(self, category: str) -> int:
        """Findings of a category."""
        return sum(finding.category == category for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "ok": self.ok}


MAX_SECONDS = 5.0
"""A function that takes longer for one response hangs, as far as training is concerned."""

# Every probe counts as this long, so that rewards that weigh the length see the same of each.
_TOKENS = 8
_LENGTHS = (8, 32, 128, 512, 2048, 8192, 32768)
_TOLERANCE = 1e-9

Scorer = Callable[[Sequence[Sample]], Sequence[Score]]


@dataclass(frozen=True)
class _Scale:
    """The scores of a plainly right and a plainly wrong answer to a gold of 42."""

    right: float | None
    wrong: float | None

    @property
    def looks_at_answer(self) -> bool:
        return self.right is not None and (self.wrong is None or self.right > self.wrong)

    @property
    def half_way(self) -> float:
        return ((self.right or 0.0) + (self.wrong or 0.0)) / 2

    @property
    def most(self) -> float:
        """The most that any response may be paid. A penalty may spare a response that is none: 0 is no pay."""
        return (self.right or 0.0) if self.looks_at_answer else max(self.right or 0.0, self.wrong or 0.0, 0.0)


def audit(
    function: str | Callable[..., Any] | RewardFunction,
    *,
    tags: Tags | None = None,
    data: Iterable[tuple[Any, ...]] | None = None,
    scorer: Scorer | None = None,
) -> Report:
    """Try `function` with everything in `rewards.audit.PROBES`.

    Args:
        function: a name, function or resolved function, see `rewards.resolve`.
        tags: the template's tags that the responses have; <think> and <answer> by default.
        data: a data set's rows: (place, gold), or (place, gold, columns) for a function that reads further columns. Each gold is
            given as the answer to itself; all other probes get the columns of the first row.
        scorer: scores samples, one score for each, and says `error` or `timed_out` in the outcome of those that fail. By
            default this process does (`score_each`); a pool of workers can also end what hangs.

    Raises:
        UserError: no such function, or one that can't score a plain answer at all.
    """
    function = resolve(function)
    tags = tags or Tags.default()
    scorer = scorer or (lambda samples: score_each(function, samples))
    rows = [GoldRow(*row) for row in data or ()]
    columns = rows[0].columns if rows else {}
    scale = _calibrate(function, scorer, tags, columns)
    probes = [p for p in PROBES if scale.looks_at_answer or p.category in ("exploit", "robustness")]
    scores = scorer([_sample(probe, tags, columns) for probe in probes])
    findings = [f for probe, s in zip(probes, scores, strict=True) if (f := _judge(probe, s, scale))]
    findings += _truncation(scorer, tags, columns)
    tried = Counter(probe.category for probe in probes)
    tried["exploit"] += 1
    if data is not None:
        tried["gold"] = len(rows)
        findings += _golds(rows, scorer, tags, scale)
    return Report(function.name, scale.looks_at_answer, scale.right, scale.wrong, dict(tried), findings)


def score_each(function: RewardFunction, samples: Sequence[Sample]) -> list[Score]:
    """Score samples one by one in this process. A sample that raises gets the outcome `error`, one that takes longer than
    `MAX_SECONDS` gets `timed_out`, with no value."""
    scores = []
    for sample in samples:
        start = time.perf_counter()
        try:
            result = score(function, [sample])[0]
        # Any exception is a finding: its text goes into the report.
        except Exception as error:
            result = Score(None, Outcome("error", message=f"{type(error).__name__}: {error}"))
        seconds = time.perf_counter() - start
        scores.append(result if seconds < MAX_SECONDS else Score(None, Outcome("timed_out", elapsed_s=seconds)))
    return scores


def _calibrate(function: RewardFunction, scorer: Scorer, tags: Tags, columns: Mapping[str, Any]) -> _Scale:
    plain = [_sample(Probe("", "", "42", answer, "any"), tags, columns) for answer in ("42", "41")]
    scorer(plain)  # the first call may import for seconds
    right, wrong = scorer(plain)
    if (failure := _failure(right)) and _failure(wrong):
        raise UserError(f"reward function {function.name!r} can't score a plain answer; it {failure[0]}: {failure[1]}")
    return _Scale(right.value, wrong.value)


def _sample(probe: Probe, tags: Tags, columns: Mapping[str, Any]) -> Sample:
    return Sample(
        response=_in_tags(probe.text, tags) if probe.whole else _well_formed(probe.text, tags),
        gold=probe.gold,
        prompt=probe.question,
        question=probe.question,
        tags=tags,
        response_ids=tuple(range(_TOKENS)),
        columns=columns,
    )


def _well_formed(answer: str, tags: Tags) -> str:
    """`answer` in a response in which each tag stands as often as the template says."""
    start, end, begin, close = tags.think_start, tags.think_end, tags.answer_start, tags.answer_end
    thinking = start.text * start.num_occur + "Let me see." + end.text * end.num_occur
    return thinking + begin.text * begin.num_occur + answer + close.text * close.num_occur


def _in_tags(text: str, tags: Tags) -> str:
    # Where the prompt begins the thinking, a response has no start tag.
    texts = {
        "[T]": tags.think_start.text if tags.think_start.num_occur else "",
        "[/T]": tags.think_end.text,
        "[A]": tags.answer_start.text,
        "[/A]": tags.answer_end.text,
    }
    for mark, tag in texts.items():
        text = text.replace(mark, tag)
    return text


def _judge(probe: Probe, result: Score, scale: _Scale) -> Finding | None:
    """The finding of a probe that the function failed; None if it passed."""
    if failure := _failure(result):
        return _finding(probe, *failure, score=None)
    value = result.value
    if value is not None and value > scale.most + _TOLERANCE:
        return _finding(probe, "pays too much", f"more than an honest response ({scale.most:g})", value)
    if not scale.looks_at_answer:
        return None
    accepted = value is not None and value > scale.half_way
    against = f"{scale.right:g} for a right answer, {scale.wrong or 0:g} for a wrong one"
    if probe.expected == "accept" and not accepted:
        return _finding(probe, "wrongly rejects", against, value)
    if probe.expected == "reject" and accepted:
        return _finding(probe, "wrongly accepts", against, value)
    if probe.expected == "no_more" and value is not None and value > (scale.wrong or 0.0) + _TOLERANCE:
        return _finding(probe, "pays too much", f"more than a wrong answer ({scale.wrong or 0:g})", value)
    return None


def _failure(result: Score) -> tuple[Kind, str] | None:
    if result.outcome is None or result.value is not None:
        return None
    if result.outcome.status == "timed_out":
        return "hangs", f"{result.outcome.elapsed_s:.1f} s"
    return ("raises", result.outcome.message) if result.outcome.status == "error" else None


def _finding(probe: Probe, kind: Kind, detail: str, score: float | None) -> Finding:
    return Finding(kind, probe.category, probe.name, probe.gold, shorten(probe.text, 80), score, shorten(detail, 200))


def _truncation(scorer: Scorer, tags: Tags, columns: Mapping[str, Any]) -> Iterator[Finding]:
    """A wrong response that was cut off must not be better off than any that is shorter or as long and ended by itself."""
    text = _well_formed("41", tags)
    ids = [tuple(range(length)) for length in _LENGTHS]
    ended, cut = (
        scorer([Sample(text, "42", tags=tags, response_ids=i, finished=whole, columns=columns) for i in ids])
        for whole in (True, False)
    )
    least = float("inf")
    for length, whole, truncated in zip(_LENGTHS, ended, cut, strict=True):
        least = min(least, least if whole.value is None else whole.value)
        if truncated.value is not None and truncated.value > least + _TOLERANCE:
            probe = Probe("exploit", f"cut off at {length} tokens", "42", text, "any", whole=True)
            yield _finding(probe, "pays too much", f"{least:g} for one that ended by itself", truncated.value)
            return


def _golds(rows: Sequence[GoldRow], scorer: Scorer, tags: Tags, scale: _Scale) -> Iterator[Finding]:
    """Rows whose gold is not accepted as the answer to itself: no response to them could be paid."""
    probes = [Probe("gold", row.place, row.gold, row.gold or "", "accept") for row in rows]
    samples = [_sample(probe, tags, row.columns) for probe, row in zip(probes, rows, strict=True)]
    for probe, result in zip(probes, scorer(samples), strict=True):
        finding = _judge(probe, result, scale)
        # By its own columns a row may be worth more than the first.
        if finding is None or finding.kind == "pays too much":
            continue
        detail = "can't be parsed" if result.outcome and result.outcome.status == "bad_gold" else "not equal to itself"
        yield finding if _failure(result) else _finding(probe, "bad gold", detail, result.value)
