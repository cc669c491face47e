"""The roles of PPO as groups of Ray actors, over the models, `Boosted` and mathematics of the local trainer.

A driver (`rlvr.ray.trainer`) runs the loop of `rlvr.trainer.online`: it holds experience and settings, and no model.
`train` starts a run, `groups` places the processes of `roles` on the cluster, `experience` has them generate and score responses,
`rollout` generates on a pool of workers that may come and go, `rewards` judges responses on a pool of CPU workers. Everything else is the same code as in a run without Ray.
"""

import os

# Under `uv run`, Ray would start its workers by `uv run` too, in a copy of the folder without this environment. Ray reads the
# variable when it is imported; set it to 1 to have Ray do so.
os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
