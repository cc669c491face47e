"""`Meter`: collects metrics over the micro-batches of an episode as sums and counts, and makes their means at its end.

A mean of means would weigh the tokens of short micro-batches more. So sums and counts are kept, in float64, over response
tokens only, and are reduced over ranks once; divisions come last.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rlvr.boost.process import gather_json


class Meter:
    """Collects sums and counts by name; the mean of each name is taken over everything that was added anywhere."""

    def __init__(self) -> None:
        self.totals: dict[str, list[float]] = {}
        self.counts: dict[str, float] = {}
        self.maxima: dict[str, float] = {}

    def add(self, name: str, total: float | Tensor, count: float | Tensor = 1.0) -> None:
        """Add a sum over `count` things, which may be none."""
        entry = self.totals.setdefault(name, [0.0, 0.0])
        entry[0] += float(total)
        entry[1] += float(count)

    def add_count(self, name: str, number: float) -> None:
        """Add to a plain count, which is summed over ranks and not averaged."""
        self.counts[name] = self.counts.get(name, 0.0) + number

    def add_max(self, name: str, values: Tensor, mask: Tensor) -> None:
        """Keep the largest of the masked entries of a [B, R] tensor, if there are any."""
        if bool(mask.any()):  # `max` over nothing would raise
            self.add_peaks({name: float(values.detach()[mask].max())})

    def add_peaks(self, values: Mapping[str, float]) -> None:
        """Keep the largest value of each name."""
        for name, value in values.items():
            self.maxima[name] = max(self.maxima.get(name, value), value)

    def add_tokens(self, name: str, values: Tensor, mask: Tensor) -> None:
        """Add the masked entries of a [B, R] tensor."""
        # Not `values * mask`: padding may hold NaN, and NaN * 0 is NaN.
        self.add(name, torch.where(mask, values.detach().float(), 0.0).sum(dtype=torch.float64), mask.sum())

    def means(self) -> dict[str, float]:
        """The mean of each name over all ranks, each count, and each largest value; names without a single value are left
        out. Collective."""
        # All ranks' sums at once, and as JSON: ranks may hold different names (no sample of a rank was scored, say), which
        # one reduction for each name would wait for forever.
        whole = Meter()
        for part in gather_json(self.state_dict()):
            whole.merge(part)
        means = {name: total / count for name, (total, count) in sorted(whole.totals.items()) if count}
        return means | whole.counts | whole.maxima

    def merge(self, state: Mapping[str, Any]) -> None:
        """Add the state of another process's meter."""
        for name, (total, count) in state["totals"].items():
            self.add(name, total, count)
        for name, number in state["counts"].items():
            self.add_count(name, number)
        self.add_peaks(state["maxima"])

    def state_dict(self) -> dict[str, Any]:
        totals = {name: list(entry) for name, entry in self.totals.items()}
        return {"totals": totals, "counts": dict(self.counts), "maxima": dict(self.maxima)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.totals = {name: list(entry) for name, entry in state["totals"].items()}
        self.counts = dict(state["counts"])
        self.maxima = dict(state.get("maxima", {}))
