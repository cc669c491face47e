"""ColossalAI: process group, plugins, and `Boosted` (model, optimizer, schedule and Booster of one role)."""
