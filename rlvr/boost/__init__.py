"""ColossalAI: the process group, plugins, and `Boosted` (model, optimizer, schedule and Booster of one role).

`Boosted` is what trainers see. Under it, a plugin wraps the model and a `Layout` knows which process holds which part of
the weights: `zero`, `fsdp`, `gemini`, and `hybrid` with `hybrid_layout` (`--plugin 3d`).
"""
