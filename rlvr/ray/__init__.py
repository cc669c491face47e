"""The roles of PPO as groups of Ray actors, over the models, `Boosted` and mathematics of the local trainer.

A driver (`rlvr.ray.trainer`) runs the loop of `rlvr.trainer.ppo_loop`: it holds experience and settings, and no model.
`groups` places the processes of `roles` on the cluster, `experience` asks them for what they know of the responses,
`rewards` scores on CPU workers that come and go. Everything else is what a run without Ray uses.
"""
