"""Checkpoints: the state of a run in folders that are whole or not there; and uploads of the result."""
