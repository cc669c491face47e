"""Studies: a grid of settings times seeds from one YAML file, trained, compared and drawn, for `rlvr study`.

plan      the file, and the runs that it asks for
carry_out trains them, some at a time; goes on where it was stopped
results   what was measured; the table with its intervals
figure    curves and ends, drawn
"""
