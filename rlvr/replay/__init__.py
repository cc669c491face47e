"""Steps of a run computed again from its journal, or otherwise."""
