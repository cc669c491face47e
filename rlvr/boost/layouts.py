"""Which layout belongs to which plugin."""

from typing import TYPE_CHECKING, Any

from rlvr.boost.layout import Layout
from rlvr.errors import UserError

if TYPE_CHECKING:
    from colossalai.booster import Booster


def check_booster(booster: "Booster") -> None:
    """Raise `UserError` for a plugin of ColossalAI's that cuts models up and can't look inside ours."""
    from colossalai.booster.plugin import HybridParallelPlugin

    if isinstance(booster.plugin, HybridParallelPlugin) and not hasattr(booster.plugin, "make_layout"):
        raise UserError(
            "HybridParallelPlugin does not know our roles: give rlvr.boost.plugins.make_booster(ParallelConfig(plugin='3d', "
            "tp=..., pp=...), device, grad_clip), whose plugin is one that does"
        )


def layout_of(booster: "Booster", model: Any, optimizer: Any) -> Layout:
    """The layout that the Booster's plugin has given a role. Plugins of ours say so themselves."""
    from colossalai.booster.plugin import LowLevelZeroPlugin

    from rlvr.boost.zero import ZeroLayout

    if hasattr(booster.plugin, "make_layout"):
        return booster.plugin.make_layout(booster, model, optimizer)
    kind = ZeroLayout if isinstance(booster.plugin, LowLevelZeroPlugin) else Layout
    return kind(booster, model, optimizer)
