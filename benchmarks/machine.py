"""What a benchmark ran on."""

from rlvr.leaderboard.measure import processor

__all__ = ["processor"]
