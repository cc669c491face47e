"""Graders side by side: labelled answers, attacks and hostile texts, each grader in a process of its own that can be killed.

`graders` has the table of those that are known, `worker` is the process, `process` watches it, `cases` reads what is graded,
`measure` counts, `page` shows. `rlvr leaderboard` (rlvr/cli/leaderboard.py) is the command.
"""
