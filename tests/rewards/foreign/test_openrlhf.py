"""Functions in OpenRLHF's form."""

import pytest
import torch

from rewards import Sample, UserError, resolve
from rewards.call import score
from rewards.foreign import adapt

SAMPLES = [Sample("so 4", "4", prompt="<user>2+2<bot>"), Sample("so 5", None, prompt="<user>2+2<bot>")]


def results(function, samples=SAMPLES, **options):
    return score(resolve(adapt(function, options)), samples)


def right(queries, prompts, labels):
    responses = [query[len(prompt) :] for query, prompt in zip(queries, prompts, strict=True)]
    assert responses == ["so 4", "so 5"] and labels == ["4", ""]
    return torch.tensor([1.0 if label and label in r else 0.0 for r, label in zip(responses, labels, strict=True)])


def tensor(queries, prompts, labels):
    return right(queries, prompts, labels)


def plain_list(queries, prompts, labels, **kwargs):
    return right(queries, prompts, labels).tolist()


def in_a_dict(queries, prompts, labels, scale=1.0, **kwargs):
    rewards = right(queries, prompts, labels)
    return {
        "rewards": scale * rewards,
        "scores": rewards,
        "extra_logs": {"per_sample": rewards + 1, "mean": rewards.mean(), "text": ["a", "b"], "other": torch.zeros(5)},
    }


def without_labels(queries, prompts):
    return [float("4" in query) for query in queries]


async def awaited(queries, prompts, labels, **kwargs):
    return in_a_dict(queries, prompts, labels)


@pytest.mark.parametrize("function", [tensor, plain_list, in_a_dict, without_labels, awaited], ids=lambda f: f.__name__)
def test_every_documented_result(function) -> None:
    assert [r.value for r in results(function)] == [1.0, 0.0]


def test_what_it_logs_becomes_components() -> None:
    first, second = results(in_a_dict, scale=10.0)
    assert (first.value, second.value) == (10.0, 0.0)
    assert first.components == {"scores": 1.0, "per_sample": 2.0, "mean": 0.5}
    assert second.components == {"scores": 0.0, "per_sample": 1.0, "mean": 0.5}


def test_results_are_checked_as_usual() -> None:
    with pytest.raises(UserError, match="lambda.*'rewards'.*scores"):
        results(lambda queries, prompts: {"scores": [1, 1]})
    with pytest.raises(UserError, match="1 scores for 2"):
        results(lambda queries, prompts: {"rewards": torch.ones(1)})
    with pytest.raises(UserError, match="nan"):
        results(lambda queries, prompts: torch.tensor([float("nan"), 1.0]))
