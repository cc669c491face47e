"""How fast a function is, and what follows: how much to hand out at once, and when a call is slow."""

from dataclasses import dataclass

CHUNK_S = 0.05  # of work: much more than handing it out takes, much less than a training step
MAX_CHUNK = 2000
FIRST_CHUNK = 8
GRACE_S, FIRST_GRACE_S = 0.001, 0.2
FEWEST_MEANS, MOST_MEANS = 3.0, 50.0


@dataclass
class Pace:
    """What was seen of one function.

    Attributes:
        mean_s: for a call; None before anything was seen.
        means: a call is slow after so many times the mean.
    """

    mean_s: float | None = None
    means: float = 8.0

    def learn(self, seconds: float, calls: int) -> None:
        """So many calls took so long."""
        new = 1.0 if self.mean_s is None else calls / (calls + 50)
        self.mean_s = (1 - new) * (self.mean_s or 0.0) + new * seconds / calls

    def judge(self, hung: bool) -> None:
        """A call that was slow hung, or else came to an end. Taking note of what hangs early saves time; the rest costs some."""
        self.means = max(FEWEST_MEANS, 0.9 * self.means) if hung else min(MOST_MEANS, 1.2 * self.means)

    @property
    def grace_s(self) -> float:
        """A call that takes longer is slow, and others need not wait for it."""
        return FIRST_GRACE_S if self.mean_s is None else max(GRACE_S, self.means * self.mean_s)

    def chunk(self, left: int, workers: int) -> int:
        """How many calls to hand out: about `CHUNK_S` of work, and less when the work runs out."""
        wanted = FIRST_CHUNK if self.mean_s is None else int(CHUNK_S / max(self.mean_s, 1e-6))
        return max(1, min(wanted, MAX_CHUNK, -(-left // (2 * workers))))
