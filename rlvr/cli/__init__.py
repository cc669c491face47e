"""The command line `rlvr`: a table of commands, and a file for each."""
