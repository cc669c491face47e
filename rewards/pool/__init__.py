"""Reward functions in warm worker processes that can be killed: nothing that hangs, crashes or grows takes the run along.

    with RewardPool([resolve("gsm8k_reward_fn")], timeout_s=5) as pool:
        scores = pool.score(samples)  # [function][sample]

How it works. A *zygote* process imports the functions once and forks workers, which takes about a millisecond each
(where forking is unsafe, every worker is a process of its own). One thread in this process hands out chunks of samples and
watches, in shared memory, which sample each worker is on and since when. A worker that is long on one sample gives the
rest of its chunk back at once, an extra worker takes its place, and at the deadline it is killed. What comes back from a
worker is JSON and is checked: nothing that ran foreign code is trusted with a pickle.

Left out on purpose: multiprocessing (imports the user's script again, refuses in daemonic processes), SIGALRM (main
thread only), and a sandbox: plugins are the user's own code.
"""

from rewards.pool.many import grade_many
from rewards.pool.pool import RewardPool
from rewards.pool.work import FailureCount, Pending

__all__ = ["FailureCount", "Pending", "RewardPool", "grade_many"]
