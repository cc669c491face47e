"""`--memory_limit`: passes are cut as far as needed and no further, or a message says what would fit, which does."""

import re

import pytest
import torch

from rlvr.config import from_dict
from rlvr.config.flags import parse_sft
from rlvr.errors import UserError
from rlvr.memory.estimate import estimate, estimate_supervised
from rlvr.memory.limit import fit_memory, memory_bytes, needed_bytes

CPU = torch.device("cpu")
MIB = 2**20


def made(limit: int | None = None, **train):
    sizes = {"experience_batch_size": 64, "max_length": 400, "max_new_tokens": 64, "generation_batch_size": 64}
    config = from_dict(
        {
            "reward": {"reward_functions": ["gsm8k_reward_fn"]},
            "rollout": sizes,
            "train": {"train_batch_size": 64} | train,
        }
    )
    config.parallel.mixed_precision = "fp32"
    config.train.memory_limit = None if limit is None else f"{limit / MIB:.3f}MB"
    return config


def needs(config) -> int:
    return needed_bytes(estimate(config, 1, "fp32", False), False)


def test_sizes_in_words() -> None:
    assert memory_bytes("8GB") == memory_bytes("8 GiB") == memory_bytes("8g") == 8 * 2**30
    assert memory_bytes("1.5MB") == 3 * 2**19 and memory_bytes("4096") == 4096
    for wrong in ("", "8 apples", "-1GB", "0GB", "8GBB", "1e9"):
        with pytest.raises(UserError, match="such as 8GB"):
            memory_bytes(wrong)


def test_passes_are_cut_as_far_as_needed_and_no_further() -> None:
    whole, least = needs(made()), needs(made(micro_batch_tokens=400))
    config = made((whole + least) // 2)
    text = fit_memory(config, 1, CPU)
    tokens = config.train.micro_batch_tokens
    assert tokens % 400 == 0 and 400 < tokens < 64 * 400
    assert text is not None and f"at most {tokens} tokens" in text
    assert needs(config) <= memory_bytes(config.train.memory_limit) < needs(made(micro_batch_tokens=tokens + 400))


def test_without_need_nothing_changes() -> None:
    for config in (made(), made(2 * needs(made()))):
        assert fit_memory(config, 1, CPU) is None and config.train.micro_batch_tokens is None


def test_what_the_message_names_does_fit() -> None:
    smaller = made(micro_batch_tokens=400)
    smaller.rollout.generation_batch_size = 8
    limit = needs(smaller) + MIB
    with pytest.raises(UserError, match="one row at a time") as raised:
        fit_memory(made(limit), 1, CPU)
    named = re.search(r"It would fit with --generation_batch_size (\d+)$", str(raised.value))
    assert named is not None
    config = made(limit)
    config.rollout.generation_batch_size = int(named[1])
    fit_memory(config, 1, CPU)
    assert needs(config) <= limit
    with pytest.raises(UserError, match="still needs .* smaller model"):
        fit_memory(made(MIB), 1, CPU)


def test_supervised_training_is_cut_too() -> None:
    config = parse_sft(["--train_batch_size", "64", "--max_length", "400", "--mixed_precision", "fp32"])
    whole = needed_bytes(estimate_supervised(config, 1, "fp32", False), False)
    config.train.memory_limit = f"{(whole - 100 * MIB) / MIB:.0f}MB"
    assert fit_memory(config, 1, CPU)
    assert needed_bytes(estimate_supervised(config, 1, "fp32", False), False) <= whole - 100 * MIB


def test_a_dry_run_says_what_is_cut(capsys) -> None:
    from rlvr.cli.main import main

    flags = ["--train_batch_size", "64", "--max_length", "400", "--mixed_precision", "fp32", "--memory_limit", "1GB"]
    assert main(["sft", "--dry_run", *flags]) == 0
    assert "--memory_limit 1GB: passes of at most" in capsys.readouterr().out
