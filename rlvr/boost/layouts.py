"""Which layout belongs to which plugin."""

from typing import TYPE_CHECKING, Any

from rlvr.boost.layout import Layout

if TYPE_CHECKING:
    from colossalai.booster import Booster


def layout_of(booster: "Booster", model: Any, optimizer: Any) -> Layout:
    """The layout that the Booster's plugin has given a role. Plugins of ours say so themselves."""
    from colossalai.booster.plugin import LowLevelZeroPlugin

    from rlvr.boost.zero import ZeroLayout

    if hasattr(booster.plugin, "make_layout"):
        return booster.plugin.make_layout(booster, model, optimizer)
    kind = ZeroLayout if isinstance(booster.plugin, LowLevelZeroPlugin) else Layout
    return kind(booster, model, optimizer)
