"""Which operating systems models can be trained on."""

import sys

from rlvr.errors import UserError


def check_system(platform: str = sys.platform) -> None:
    """Raise `UserError` on a system without what training needs: signals, process groups, file locks, and ColossalAI.

    Args:
        platform: a value of `sys.platform`.
    """
    if platform in ("win32", "cygwin"):
        raise UserError(
            "models are trained and asked on Linux (and macOS), not on Windows: ColossalAI does not run there. Take WSL 2 (`wsl --install`), "
            "which is Linux. The rewards alone work here: rewards.grade, rlvr score --workers 0, rlvr audit --workers 0"
        )
