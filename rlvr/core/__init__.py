"""Pure tensor functions of PPO: no models, no I/O, torch alone. `tests/reference.py` is their slow oracle.

In the order of a training step: `logprobs` (what the models gave the sampled tokens), `kl` (divergence, and the reward of
each token), `advantages`, `losses`. `masked` is under all of them; `preferences` belongs to reward models.
"""
