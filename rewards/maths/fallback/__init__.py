"""math-verify for golds that we can't read (integrals, cases, ...), in a process of its own that can be killed."""

from rewards.maths.fallback.client import applies, verify, warm

__all__ = ["applies", "verify", "warm"]
