"""Scorers: from a response to what it is paid.

rules          `RewardScorer`, and reward functions behind it
neural         a trained reward model behind it, alone or with functions; normalised scores
environments   pay made of scores: several objectives, win rates
build          the scorer that the settings ask for
"""
