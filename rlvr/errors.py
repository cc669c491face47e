"""Errors of the library. `UserError` lives in `rewards`, which everything else may import."""

from rewards.errors import UserError

__all__ = ["UserError"]
