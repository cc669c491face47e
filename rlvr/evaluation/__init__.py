"""Held-out accuracy with its uncertainty: answers to problems, their statistics, and the comparison of two models."""
