"""What a process takes of its machine. In processes of their own: what is set here is set for good."""

import os
import subprocess
import sys

import pytest
import torch

from rlvr.boost import host

pytestmark = pytest.mark.skipif(host._glibc() is None, reason="glibc is needed")

_MANY_LENGTHS = """
import ctypes
import torch
from rlvr.boost import host
{bound}
class HeapUse(ctypes.Structure):  # glibc's struct mallinfo2
    _fields_ = [(name, ctypes.c_size_t) for name in
                "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]
libc = ctypes.CDLL("libc.so.6")
libc.mallinfo2.restype = HeapUse
weight = torch.randn(64, 64, dtype=torch.bfloat16)
def used():
    of = libc.mallinfo2()
    return of.uordblks + of.hblkhd
for rows in range(10, 410):
    torch.nn.functional.linear(torch.ones(rows, 64, dtype=torch.bfloat16), weight)
    if rows == 109:
        before = used()
print((used() - before) / 2**20)
"""


def _run(code: str) -> float:
    environment = {name: value for name, value in os.environ.items() if name not in host._CAPACITIES}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    return float(done.stdout)


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="oneDNN is needed")
@pytest.mark.skipif(not hasattr(host._glibc(), "mallinfo2"), reason="glibc 2.33 or newer is needed")
def test_products_of_ever_new_lengths_take_no_more_memory() -> None:
    if _run(_MANY_LENGTHS.format(bound="")) < 50:
        pytest.skip("oneDNN compiles nothing for such products here")
    assert _run(_MANY_LENGTHS.format(bound="host.bound_compiled_kernels()")) < 5


def test_a_number_of_kernels_in_the_environment_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LRU_CACHE_CAPACITY", "7")
    monkeypatch.setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "")  # to be restored
    del os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"]
    host.bound_compiled_kernels()
    assert [os.environ[name] for name in host._CAPACITIES] == [str(host.KERNELS), "7"]


_GAPS = """
import torch
from rlvr.boost import host
from rlvr.memory.usage import memory_use
host.keep_freed_memory()

def resident():
    return memory_use()["memory/rss_bytes"] / 2**20

def work(tensors):  # what is left keeps the heap from shrinking at its end
    made = [torch.ones(2**18) for _ in range(tensors)]
    return made[::16]

kept, held = [], []
for tensors in {work}:
    kept.append(work(tensors))
    host.release_spare_memory()
    held.append(resident())
print({shown})
"""


def test_freed_memory_between_tensors_that_live_is_given_back_once_more_is_held_than_work_needs() -> None:
    """256 MiB for each of the first looks, of which 240 are used again; then 512."""
    work = "[256] * host.LOOKS + [512]"
    assert _run(_GAPS.format(work=work, shown="held[-2] - held[-1]")) > 200


def test_freed_memory_is_kept_as_long_as_no_more_is_held() -> None:
    assert _run(_GAPS.format(work="[256] + [8] * 3 * host.LOOKS", shown="held[0] - held[-1]")) < 5


def _openmp(module: str, **environment: str) -> str:
    """OpenMP's settings as torch loads it after this module."""
    names = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    kept = {name: value for name, value in os.environ.items() if name not in names}
    run = [sys.executable, "-c", f"import {module}, torch"]
    environment = kept | environment | {"OMP_DISPLAY_ENV": "verbose"}
    shown = subprocess.run(run, capture_output=True, text=True, check=True, env=environment).stderr
    if "GOMP_SPINCOUNT" not in shown:
        pytest.skip("torch runs without GNU's OpenMP here")
    return shown


@pytest.mark.parametrize("module", ["rlvr", "rlvr.cli.main", "rlvr.trainer.ppo"])
def test_threads_that_wait_spin_for_a_moment_only(module) -> None:
    shown = _openmp(module)
    assert "OMP_WAIT_POLICY = 'PASSIVE'" in shown and "GOMP_SPINCOUNT = '3000'" in shown


def test_a_policy_in_the_environment_stays() -> None:
    shown = _openmp("rlvr", OMP_WAIT_POLICY="ACTIVE")
    assert "OMP_WAIT_POLICY = 'ACTIVE'" in shown and "GOMP_SPINCOUNT = '3000'" not in shown
