"""What an audit found."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Kind = Literal["wrongly accepts", "wrongly rejects", "pays too much", "raises", "hangs", "bad gold"]


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
        """Whether there are no findings."""
        return not self.findings

    def count(self, category: str) -> int:
        """Findings of a category."""
        return sum(finding.category == category for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "ok": self.ok}
