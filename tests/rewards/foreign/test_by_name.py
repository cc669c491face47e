"""A peer's function is named like one of ours: in the registry, the reward model, a worker process, an export."""

import pickle

import pytest

import rewards
from rewards import Sample, Tags, UserError, load_plugins, resolve
from rewards.call import score
from rewards.export import export
from rlvr.models.tiny import build_tiny_tokenizer
from rlvr.scorers.rules import RLVRRewardModel

CODE = """
from rewards import reward_fn


def compute_score(data_source, solution_str, ground_truth, extra_info=None, wrong=0.0):
    return {"score": 1.0 if solution_str == ground_truth else wrong, "length": len(solution_str)}


def by_message(completions, solution, **kwargs):
    return [None if not g else float(c[0]["content"] == g) for c, g in zip(completions, solution, strict=True)]


@reward_fn("foreign_by_name")
def reward_func(queries, prompts, labels):
    return [float(q == p + a) for q, p, a in zip(queries, prompts, labels, strict=True)]


def first_token(input_ids, attention_mask, **kwargs):
    import torch

    start, tokenizer = kwargs["response_start"], kwargs["tokenizer"]
    return torch.tensor(float(tokenizer.decode(input_ids[start : start + 1]) == kwargs["gt_answer"]))
"""
SAMPLES = [Sample("4", "4", prompt="2+2="), Sample("55", "4", prompt="2+2="), Sample("4", "", prompt="2+2=")]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("plugin") / "theirs.py"
    path.write_text(CODE)
    load_plugins([str(path)])
    return path


def names_in(file):
    return [f"{file}:compute_score", f"{file}:by_message", "foreign_by_name"]


EXPECTED = [[1.0, -1.0, -1.0], [1.0, 0.0, None], [1.0, 0.0, 0.0]]
OPTIONS = {"compute_score": {"wrong": -1.0}}


def test_the_registry(file) -> None:
    for name, expected in zip(names_in(file), EXPECTED, strict=True):
        function = resolve(name, options=OPTIONS)
        assert function.name in name and [s.value for s in score(function, SAMPLES)] == expected
    assert score(resolve(names_in(file)[0]), SAMPLES)[1].components == {"length": 2.0}
    with pytest.raises(UserError, match="compute_score.*verl.*right"):
        resolve(names_in(file)[0], options={"compute_score": {"right": 1}})


def test_worker_processes(file) -> None:
    from rewards.pool import RewardPool

    functions = [resolve(name, options=OPTIONS) for name in names_in(file)]
    with RewardPool(functions, plugins=[str(file)], timeout_s=20, workers=1) as pool:
        assert [[s.value for s in scores] for scores in pool.score(SAMPLES)] == EXPECTED


def test_the_reward_model_lends_its_tokenizer(file) -> None:
    tokenizer = build_tiny_tokenizer()
    model = RLVRRewardModel([f"{file}:first_token"], tokenizer, tags=Tags.default())
    samples = [Sample("45", "4", prompt="2+2=", response_ids=tuple(tokenizer.encode("45"))), SAMPLES[1]]
    assert [c.total for c in model.score(samples)] == [1.0, 0.0]


def test_a_peers_function_for_another_peer(file) -> None:
    fn = pickle.loads(pickle.dumps(rewards.export("verl", f"{file}:by_message")))
    assert fn is not None and rewards.export is export and fn.__name__ == "by_message"
    assert fn("s", "4", "4") == {"score": 1.0, "skipped": 0.0} and fn("s", "4", "")["skipped"] == 1.0
