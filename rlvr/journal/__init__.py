"""The journal of a run: all that each update learned from, and its keeper."""
