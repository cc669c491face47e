"""Memory: used by this process (`usage`), of a model's tensors (`footprint`), needed by a run (`estimate`)."""
