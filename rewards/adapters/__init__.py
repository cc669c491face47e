"""Environments of other packages, a module for each: textarena, openenv, verifiers. `game` is what they share.

Their code is the user's choice, as a plugin is; it runs in the worker processes of rewards, within their limits.

    python -m rewards.adapters textarena GuessTheNumber-v0 --count 500 > games.jsonl
    rlvr train --environment textarena --prompt_dataset games.jsonl
"""
