"""Which layout belongs to which plugin."""

from typing import TYPE_CHECKING, Any

from rlvr.boost.layout import Layout

if TYPE_CHECKING:
    from colossalai.booster import Booster


def layout_of(booster: "Booster", model: Any, optimizer: Any) -> Layout:
    """The layout that the Booster's plugin has given a role."""
    from colossalai.booster.plugin import LowLevelZeroPlugin

    from rlvr.boost.fsdp import FsdpPlugin
    from rlvr.boost.fsdp_layout import FsdpLayout
    from rlvr.boost.gemini import GeminiRolePlugin
    from rlvr.boost.gemini_layout import GeminiLayout
    from rlvr.boost.zero import ZeroLayout

    if isinstance(booster.plugin, FsdpPlugin):
        return FsdpLayout(booster, model, optimizer, model.twin)
    if isinstance(booster.plugin, GeminiRolePlugin):
        return GeminiLayout(booster, model, optimizer, model.beside[0])
    kind = ZeroLayout if isinstance(booster.plugin, LowLevelZeroPlugin) else Layout
    return kind(booster, model, optimizer)
