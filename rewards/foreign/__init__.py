"""Reward functions written for TRL, verl, OpenRLHF and ColossalAI run here (`adapt`); ours run there (`export`)."""

from rewards.foreign.adapt import adapt
from rewards.foreign.detect import Peer, name_of, peer_of
from rewards.foreign.export import export

__all__ = ["Peer", "adapt", "export", "name_of", "peer_of"]
