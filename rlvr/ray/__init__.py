"""The roles of PPO as groups of Ray actors, over the models, `Boosted` and mathematics of the local trainer.

A driver (`rlvr.ray.trainer`) runs the loop of `rlvr.trainer.ppo_loop`: it holds experience and settings, and no model.
`groups` places the processes of `roles` on the cluster, `experience` asks them for what they know of the responses,
`rewards` scores on CPU workers that come and go. Everything else is what a run without Ray uses.
"""

import os

# Under `uv run`, Ray would start its workers by `uv run` too, in a copy of the folder without this environment. Read when ray
# is imported; whoever wants that says 1.
os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
