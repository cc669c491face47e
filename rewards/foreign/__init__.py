"""Reward functions written for TRL, verl, OpenRLHF and ColossalAI run here; ours run there by `rewards.export`."""

from rewards.foreign.adapt import adapt
from rewards.foreign.signatures import Peer, name_of, peer_of

__all__ = ["Peer", "adapt", "name_of", "peer_of"]
