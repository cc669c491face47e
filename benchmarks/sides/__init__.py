"""The two sides of a comparison: each runs in a process (and, for TRL, an environment) of its own."""
