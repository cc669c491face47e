"""Tools of the command line that need no model: `rlvr audit`, `rlvr score`."""
