"""Machines that disagree, are late, fail, or have disks of their own: one clear message on each, and nothing hangs."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from saved_models import save_micro_model

from rlvr.boost.consistency import differences, weights_digest
from rlvr.boost.health import ProcessStatus, describe
from tests.faults.lab import Wire, may_join_namespaces

pytestmark = pytest.mark.processes
ROOT = Path(__file__).parents[2]
Said = dict[str, list[tuple[int, str]]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("machines")


@pytest.fixture(scope="module")
def said(folder, ranks) -> Said:
    ranks.done(1, "tests.distributed.machines:main", folder, limit_s=800)
    return json.loads((folder / "said.json").read_text())


@pytest.mark.parametrize(
    ("case", "parts"),
    [
        ("other settings", ["the settings are not those of rank 0", "train.lr 0.002 instead of 0.001", "same flags"]),
        ("other settings", ["ckpt.save_interval 2 instead of 1"]),
        (
            "other versions",
            ["the versions are not those of rank 0", "transformers '4.0.0' instead of", "rlvr's source"],
        ),
        ("other data", ["the data and rewards are not those of rank 0", "prompts.hash", "same files"]),
        ("other rewards", ["reward functions.reward.py:pays"]),
        ("other weights", ["the starting weights are not those of rank 0", "actor", "reference"]),
        ("own disks, resumed", ["is whole on", "rank 1 on", "manifest.json is missing", "shared storage is needed"]),
    ],
)
def test_machines_that_disagree_are_told_alike(case, parts, said) -> None:
    for status, text in said[case]:
        assert status == 2 and "Traceback" not in text
        assert f"rank 1 on {socket.gethostname()}" in text
        for part in parts:
            assert part in text


def test_a_rank_that_is_late_is_named_with_its_phase(said) -> None:
    (status, text), _ = said["asleep"]
    assert status == 2 and "Traceback" not in text and "go on from the last checkpoint with --resume" in text.lower()
    assert f"rank 1 on {socket.gethostname()}: STUCK, gone or cut off in phase 'score' since" in text
    assert f"rank 0 on {socket.gethostname()}: waited in phase" in text


def test_the_mistake_of_one_rank_is_known_to_the_others(said) -> None:
    (status, text), (of_second, own) = said["failed"]
    assert (status, of_second) == (2, 2) and "Traceback" not in text + own
    assert "stopped in phase 'score': UserError: the second machine has run out of luck" in text
    assert "error: the second machine has run out of luck" in own


def test_rank_0_alone_writes_so_a_run_needs_no_shared_disk(said, folder) -> None:
    assert [status for status, _ in said["own disks"]] == [0, 0]
    assert (folder / "a" / "own" / "actor" / "modeling").is_dir()
    assert (folder / "a" / "own" / "checkpoints" / "step-000002" / "rank-1.safetensors").is_file()
    assert not (folder / "b" / "own").exists()


def test_all_ranks_pass_over_the_same_damaged_checkpoint(said) -> None:
    (status, text), (of_second, own) = said["one disk, damaged"]
    assert (status, of_second) == (0, 0)
    assert "step-000002 is damaged: rank-1.safetensors has 0 bytes" in text and "going on from step-000001" in text
    assert "damaged" not in own


def test_what_is_said_when_the_first_machine_is_gone() -> None:
    text = describe("update", 1, None, "Connection closed by peer [10.0.0.1]:5")
    assert "rank 1 on" in text and "does not answer" in text and "Connection closed by peer" in text
    places = [
        ProcessStatus("a", "update", 0.0, "gave up waiting"),
        None,
        ProcessStatus("c", "score", 0.0, "ValueError: x"),
    ]
    text = describe("update", 0, places, "x")
    assert text.index("rank 1: never began") < text.index("rank 2 on c: stopped in phase 'score': ValueError: x")
    assert text.index("rank 2") < text.index("rank 0 on a: waited in phase 'update'")


def test_differences_and_digests() -> None:
    import torch

    found = differences({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 1, "c": 4}, "e": 5})
    assert found == [("a.c", 2, 4), ("d", 3, None), ("e", None, 5)]
    one = torch.arange(10.0)
    other = one.clone()
    other[3] += 1e-6
    assert weights_digest([("w", one)]) == weights_digest([("w", one.clone())])
    digests = {weights_digest(pairs) for pairs in ([("w", one)], [("w", other)], [("v", one)], [("w", one[:9])], [])}
    assert len(digests) == 5


def test_the_digest_of_a_function_is_that_of_its_own_file(tmp_path) -> None:
    from rewards import resolve
    from rlvr.boost.consistency import function_digest

    path = tmp_path / "of_trl.py"
    path.write_text(
        "import functools\n\ndef of_trl(completions, **kwargs):\n    return [0.0] * len(completions)\n\n"
        "@functools.lru_cache\ndef wrapped(response):\n    return 0.0\n\n"
        "class Kind:\n    def __call__(self, response):\n        return 0.0\n\ncallable_object = Kind()\n"
    )
    names = ("of_trl", "wrapped", "callable_object", "Kind")
    functions = [resolve(f"{path}:{name}").function for name in names]
    before = {function_digest(function) for function in functions}
    path.write_text(path.read_text() + "# mended\n")
    assert len(before) == 1 and before.isdisjoint(map(function_digest, functions))


def test_two_agents_of_torchrun_train_over_the_network(tmp_path, clean_env) -> None:
    """In two network namespaces where they may be made, else over loopback."""
    wire = Wire() if may_join_namespaces() else None
    model = save_micro_model(tmp_path / "model")
    flags = (
        f"--pretrain {model} --reward_functions gsm8k_reward_fn --num_episodes 1 --experience_batch_size 8 --max_samples 16 "
        "--train_batch_size 8 --max_new_tokens 4 --max_length 96 --eval_samples 4 --num_threads 1 --mixed_precision fp32 "
        f"--save_path {tmp_path / 'run'} --plugin zero2"
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    addresses = wire.ADDRESSES if wire else ("127.0.0.1", "127.0.0.1")
    agents = []
    try:
        for node in (0, 1):
            enter = ["ip", "netns", "exec", wire.names[node]] if wire else []
            command = [
                *enter, sys.executable, "-m", "torch.distributed.run", "--nnodes=2", f"--node_rank={node}",
                "--nproc_per_node=1", "--rdzv_backend=c10d", f"--rdzv_endpoint={addresses[0]}:{port}", "--rdzv_id=test",
                f"--rdzv_conf=is_host={1 - node}", f"--local_addr={addresses[node]}", str(ROOT / "scripts" / "train_rlvr.py"), *flags.split(),
            ]  # fmt: skip
            card = {"GLOO_SOCKET_IFNAME": wire.cards[node] if wire else "lo"}
            agents.append(
                subprocess.Popen(
                    command, env=clean_env | card, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
                )
            )
        outputs = [agent.communicate(timeout=800)[0] for agent in agents]
    finally:
        for agent in agents:
            agent.kill()
            agent.wait()
        if wire:
            wire.close()
    assert [agent.returncode for agent in agents] == [0, 0], "\n".join(outputs)
    assert "2 process(es)" in "".join(outputs) and (tmp_path / "run" / "actor" / "modeling").is_dir()
    assert os.path.getsize(tmp_path / "run" / "metrics.jsonl") > 0
