"""Pure tensor functions of PPO: no models, no I/O, torch alone. `tests/reference.py` is their slow oracle."""
