"""A process by itself listens on nothing that another machine could reach."""

import subprocess
import sys

CODE = """
import psutil
import torch.distributed as dist
from rlvr.boost.process import all_reduce_sum, start
start(0)
import torch
dist.all_reduce(torch.ones(1))
dist.barrier()
group = dist.new_group([0])
dist.all_reduce(torch.ones(1), group=group)
found = [c.laddr.ip for c in psutil.Process().net_connections(kind="inet") if c.status == psutil.CONN_LISTEN]
print("listens on", sorted(set(found)), dist.get_world_size())
"""


def test_a_group_of_one_listens_on_loopback_at_most(clean_env) -> None:
    done = subprocess.run([sys.executable, "-c", CODE], env=clean_env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = done.stdout.strip().splitlines()[-1]
    assert said in ("listens on [] 1", "listens on ['127.0.0.1'] 1"), said
