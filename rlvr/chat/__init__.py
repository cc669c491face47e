"""Talking to a model in the terminal (`rlvr chat`): what is said, how it is shown, what it is worth."""
