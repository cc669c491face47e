"""Talking to a model in the terminal: `rlvr chat`.

session   the conversation, and what answers are worth
stream    tokens as text while they are generated, cut at their tags
screen    how it is shown
loop      questions and `/` commands, from a person or a pipe
"""
