"""What is written into a journal is what is read from it, to the bit; and what is damaged is said."""

import gzip
import json
import math
import random

import pytest
import torch
import zlib_bomb

from rewards import Sample
from rewards.combine import Combined
from rewards.outcome import Outcome, Score
from rlvr.errors import UserError
from rlvr.experience.experience import Experience
from rlvr.journal.journal import Journal, StepInfo


def response(prompt: int, length: int, *, critic: bool, environment: int | None = None) -> Experience:
    """`length` tokens of the policy, and so many of an environment (None: there is none)."""
    turns = {}
    if environment is not None:
        turns["action_mask"] = torch.arange(length + environment) % 3 != 1
        length = int(turns["action_mask"].sum())
    tokens = len(turns.get("action_mask", range(length)))
    floats = [torch.randn(length) for _ in range(3)]
    if length:
        floats[0][0] = -0.0  # equal to 0, and other bits
    extra = {"values": torch.randn(length), "returns": torch.full((length,), math.nan)} if critic else {}
    return Experience(
        torch.randint(0, 50_000, (prompt,)),
        torch.randint(0, 50_000, (tokens,)),
        *floats,
        torch.rand(length) > 0.5,
        **extra,
        **turns,
    )


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().view(torch.uint8).numpy().tobytes()


def info(step: int) -> StepInfo:
    return StepInfo(step, 1, 1, 0.01, {"actor": "a"}, {"python": "3"})


@pytest.mark.parametrize("environment", [None, 3])
@pytest.mark.parametrize("critic", [True, False])
@pytest.mark.parametrize("lengths", [(3, 1, 7), (0, 2), (0,), ()])
def test_every_bit_of_experience_comes_back(critic, lengths, environment, tmp_path) -> None:
    torch.manual_seed(0)
    items = [response(2 + i, length, critic=critic, environment=environment) for i, length in enumerate(lengths)]
    journal = Journal(tmp_path)
    journal.write_experience(1, 0, items, {"totals": {"x": [0.1, 3.0]}, "counts": {}, "maxima": {}})
    again, meter = journal.experience(1, 0)
    assert meter == {"totals": {"x": [0.1, 3.0]}, "counts": {}, "maxima": {}}
    assert len(again) == len(items)
    for one, other in zip(items, again, strict=True):
        assert one.tensors().keys() == other.tensors().keys()
        for name, tensor in one.tensors().items():
            read = other.tensors()[name]
            assert read.dtype == tensor.dtype and read.shape == tensor.shape and bits(read) == bits(tensor), name


def test_samples_come_back_with_what_the_rewards_said(tmp_path) -> None:
    scores = {"f": Score(0.5, Outcome("wrong", "41", "number", 0.01, "no"), {"part": 0.25}), "g": Score(None)}
    results = [Combined(0.5, scores, Outcome("correct")), Combined(None, {})]
    samples = [Sample("it is 41", "42", question="q", finished=False, columns={"a": [1, "two"]}), Sample("", None)]
    journal = Journal(tmp_path)
    for collect_step in (10, 2):
        journal.write_samples(3, 0, collect_step, samples, results)
    first, second = journal.samples(3, 0)
    assert first == second and [said.result for said in first] == results
    assert (first[0].gold, first[0].question, first[0].columns, first[0].finished) == (
        "42",
        "q",
        {"a": [1, "two"]},
        False,
    )


def test_a_step_counts_once_it_has_ended_and_old_ones_go(tmp_path) -> None:
    journal = Journal(tmp_path)
    assert journal.steps() == []
    for step in range(1, 6):
        journal.write_experience(step, 0, [response(2, 3, critic=False)], {})
        journal.write_info(info(step))
        assert step not in journal.steps()
        journal.finish(step, {"actor": "b"}, {"loss": 0.5, "broken": math.nan})
        journal.prune(3, step)
    assert journal.steps() == [3, 4, 5]
    assert journal.info(4).after == {"actor": "b"} and journal.info(4).metrics == {"loss": 0.5, "broken": None}
    with pytest.raises(UserError, match="no step 2; it has 3 steps, 3 to 5"):
        journal.info(2)


def test_a_step_whose_beginning_is_damaged_does_not_end_the_run(tmp_path) -> None:
    journal = Journal(tmp_path)
    for step in (1, 2):
        journal.write_info(info(step))
    (journal.folder / "step-000002" / "step.json").write_text("{")
    for step in (1, 2):
        journal.finish(step, {"actor": "b"}, {})
    assert journal.steps() == [1] and not (journal.folder / "step-000002").exists()


@pytest.mark.parametrize("seed", range(20))
def test_damaged_files_are_one_message(seed, tmp_path) -> None:
    draw = random.Random(seed)
    journal = Journal(tmp_path)
    journal.write_experience(1, 0, [response(2, 9, critic=True)], {})
    journal.write_samples(1, 0, 0, [Sample("r", "g")], [Combined(1.0, {})])
    journal.write_info(info(1))
    for path in (tmp_path / "journal" / "step-000001").iterdir():
        data = bytearray(path.read_bytes())
        del data[draw.randrange(1, len(data)) :]
        path.write_bytes(data)
    for read in (lambda: journal.experience(1, 0), lambda: journal.samples(1, 0), lambda: journal.info(1)):
        with pytest.raises(UserError, match="can't be read"):
            read()


def test_samples_that_are_no_list_are_one_message(tmp_path) -> None:
    journal = Journal(tmp_path)
    journal.write_samples(1, 0, 0, [Sample("r", "g")], [Combined(1.0, {})])
    [path] = (tmp_path / "journal" / "step-000001").glob("samples-*")
    path.write_bytes(gzip.compress(b"{}"))
    with pytest.raises(UserError, match="can't be read.*it holds a dict in place of a list"):
        journal.samples(1, 0)


def test_no_more_is_unpacked_than_was_said(tmp_path) -> None:
    """A few kilobytes from a stranger don't become gigabytes."""
    path = tmp_path / "journal" / "step-000001"
    path.mkdir(parents=True)
    zlib_bomb.write(path / "experience-0.safetensors", said=4, holds=2**24)
    with pytest.raises(UserError, match="can't be read"):
        Journal(tmp_path).experience(1, 0)


def test_a_column_that_is_no_json_is_kept_as_text(tmp_path) -> None:
    journal = Journal(tmp_path)
    journal.write_samples(1, 0, 0, [Sample("r", "g", columns={"x": {1, 2}})], [Combined(1.0, {})])
    assert journal.samples(1, 0)[0][0].columns == {"x": json.loads(json.dumps(str({1, 2})))}


def test_a_reference_that_is_the_policy_is_kept_once(tmp_path) -> None:
    torch.manual_seed(0)
    logprobs = torch.randn(500)
    one = Experience(
        torch.arange(3), torch.arange(500), logprobs, logprobs.clone(), torch.ones(500), torch.ones(500).bool()
    )
    other = Experience(
        torch.arange(3), torch.arange(500), logprobs, logprobs + 1e-6, torch.ones(500), torch.ones(500).bool()
    )
    journal = Journal(tmp_path)
    sizes = []
    for step, item in enumerate((one, other)):
        journal.write_experience(step, 0, [item], {})
        [again] = journal.experience(step, 0)[0]
        assert bits(again.ref_logprobs) == bits(item.ref_logprobs)
        sizes.append((journal.folder / f"step-{step:06d}" / "experience-0.safetensors").stat().st_size)
    assert sizes[0] < sizes[1] - 1000
