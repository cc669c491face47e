"""Reward functions in warm worker processes that can be killed: a call that hangs, crashes or grows harms nothing else.

    with RewardPool([resolve("gsm8k_reward_fn")], timeout_s=5) as pool:
        scores = pool.score(samples)  # [function][sample]

How it works. A fork server imports the functions once and forks workers, which takes about a millisecond each
(where forking is unsafe, every worker is a process of its own). One thread in this process hands out chunks of samples and
watches, in shared memory, which sample each worker is on and since when. A worker that is slow on one sample gives the
rest of its chunk back at once, an extra worker takes its place, and at the deadline it is killed. What comes back from a
worker is JSON and is checked: nothing that ran foreign code is trusted with a pickle.

Where to look: `pool` (the interface), `limits` (deadline of a call, memory of a worker, failures), `scheduler` (the thread),
`submissions` and `cache` (work in, scores out), `workers` (worker processes as the scheduler sees them), `launch`, `forkserver`
and `worker_main` (how a worker starts and what it does), `protocol` (how work and results are sent), `pickling` (how functions
are sent).

Left out on purpose: multiprocessing (imports the user's script again, refuses in daemonic processes), SIGALRM (main
thread only), and a sandbox: plugins are the user's own code.
"""

from rewards.pool.pool import RewardPool, grade_many
from rewards.pool.submissions import FailureCount, Pending

__all__ = ["FailureCount", "Pending", "RewardPool", "grade_many"]
