"""What `3d` refuses before anything is loaded, how processes are divided into copies, and what a role holds under it."""

import subprocess
import sys

import pytest
import torch

from rlvr.boost import hybrid_check
from rlvr.boost.hybrid_check import check_hybrid, check_transformers
from rlvr.boost.process import Replica
from rlvr.config import ParallelConfig
from rlvr.errors import UserError
from rlvr.memory.estimate import role_memory
from rlvr.trainer.ppo import _refuse as refuse

SP = {"enable_sequence_parallelism": True}
REFUSED = [
    ({"tp": 0}, "--tp 0: must be at least 1"),
    ({"tp": 2}, "take 2 processes for one model, which does not divide the 3 there are: start a multiple of 2"),
    ({"tp": 3, "pp": 2}, "--tp 3 x --pp 2 x --sp 1 take 6 processes"),
    ({"sp": 3}, "--sp 3 has no effect without --enable_sequence_parallelism"),
    ({"tp": 3, "sp_mode": "ring", **SP}, "--sp_mode ring gave wrong gradients .* take split_gather"),
    ({"sp": 3, "sp_mode": "ring_attn", **SP}, "needs FlashAttention's CUDA kernels"),
    (SP, r"--sp_mode split_gather .* needs --tp above 1 \(given: 1\)"),
    ({"tp": 3, "sp": 2, **SP}, r"--sp 1 \(given: 2\)"),
    ({"sp_mode": "all_to_all", **SP}, "give --sp 2 or more"),
    ({"zero_stage": 1}, "--zero_stage 1 with --plugin 3d works in bf16 and fp16 only"),
    ({"zero_cpu_offload": True}, "needs --zero_stage 1 or 2"),
]


@pytest.fixture
def three_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hybrid_check, "version", lambda package: "4.51.3")
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: False)
    monkeypatch.setenv("WORLD_SIZE", "3")


@pytest.mark.usefixtures("three_processes")
@pytest.mark.parametrize(("settings", "message"), REFUSED)
def test_settings_that_do_not_go_together(settings, message) -> None:
    with pytest.raises(UserError, match=message):
        check_hybrid(ParallelConfig(plugin="3d", **settings), "fp32")


@pytest.mark.usefixtures("three_processes")
def test_zero2_does_not_go_with_a_pipeline() -> None:
    with pytest.raises(UserError, match="--zero_stage 2 with --pp above 1"):
        check_hybrid(ParallelConfig(plugin="3d", pp=3, zero_stage=2), "bf16")
    check_hybrid(ParallelConfig(plugin="3d", pp=3, zero_stage=1), "bf16")
    check_hybrid(ParallelConfig(plugin="3d", tp=3, **SP), "fp32")


def test_another_transformers_is_named_with_the_remedy(monkeypatch) -> None:
    monkeypatch.setattr(hybrid_check, "version", lambda package: "4.510.1")
    with pytest.raises(UserError, match=r"4\.510\.1 is installed.*uv pip install .*transformers==4\.51\.3"):
        check_transformers()


@pytest.mark.parametrize(("world_size", "size"), [(1, 1), (4, 1), (4, 2), (12, 4)])
def test_the_shares_of_a_copy_are_what_one_process_in_its_place_would_have(world_size, size) -> None:
    batch = list(range(24))
    copies = world_size // size
    for index in range(copies):
        members = [Replica(rank, world_size, size) for rank in range(world_size) if rank // size == index]
        assert {m.index for m in members} == {index} and [m.place for m in members] == list(range(size))
        turns = zip(*(batch[m.share :: world_size] for m in members), strict=True)
        assert [item for turn in turns for item in turn] == batch[index::copies]


def test_weights_and_what_learns_them_are_cut() -> None:
    four = ParallelConfig(plugin="3d", tp=2, pp=2)
    role = role_memory(four, 8, "fp32", "actor", 4000, 4000)
    assert (role.parameters, role.gradients, role.optimizer) == (4 * 1000, 4 * 1000, 8 * 1000)
    short = role_memory(ParallelConfig(plugin="3d", tp=2, pp=2, zero_stage=1), 8, "bf16", "actor", 4000, 4000)
    assert (short.parameters, short.optimizer) == (2 * 1000, 12 * 500)


def test_use_tp_without_tensor_parallelism_is_refused() -> None:
    class Plain:
        plugin = object()

    with pytest.raises(UserError, match="no tensor parallelism"):
        refuse(True, True, Plain())


def test_settings_are_checked_without_colossalai() -> None:
    code = "import sys, rlvr.boost.plugins; sys.exit('colossalai' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
