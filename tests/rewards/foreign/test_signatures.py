"""Whose function it is, and what an adapted one keeps."""

import functools
import pickle

import pytest

import rewards
from rewards import RewardFunction, Sample, UserError, resolve
from rewards.call import score
from rewards.foreign import adapt, peer_of


def trl(completions, **kwargs): ...
def trl_prompts(prompts, completions, **kwargs): ...
def trl_ids(completion_ids, **kwargs): ...
def verl(data_source, solution_str, ground_truth, extra_info=None): ...
def verl_short(solution_str, ground_truth, method="strict"): ...
def verl_batch(data_sources, solution_strs, ground_truths, extra_infos): ...
def openrlhf(queries, prompts, labels, **kwargs): ...
def openrlhf_old(queries, prompts): ...
def colossal_v1(input_ids, attention_mask, **kwargs): ...
def colossal(input_ids, gt_answer, response_idx, **kwargs): ...
def colossal_code(input_ids, test_cases, response_idx, **kwargs): ...
def ours(response, gold, completions): ...
def ours_batched(responses, prompts, queries): ...
def ours_length(prompt, question): ...


async def trl_async(completions, **kwargs): ...


class Callable_:
    """A reward that is an object."""

    def __call__(self, completions, **kwargs): ...


@pytest.mark.parametrize(
    ("function", "peer"),
    [
        (trl, "trl"), (trl_prompts, "trl"), (trl_ids, "trl"), (trl_async, "trl"), (Callable_(), "trl"),
        (functools.partial(verl, extra_info=1), "verl"), (verl, "verl"), (verl_short, "verl"), (verl_batch, "verl_batch"),
        (openrlhf, "openrlhf"), (openrlhf_old, "openrlhf"), (colossal_v1, "colossalai"), (colossal, "colossalai"),
        (colossal_code, "colossalai"), (ours, None), (ours_batched, None), (ours_length, None),
    ],
)  # fmt: skip
def test_the_argument_names_decide(function, peer) -> None:
    assert peer_of(function) == peer
    assert (adapt(function) is None) == (peer is None)


@pytest.mark.parametrize("name", rewards.names())
def test_none_of_our_own_functions_is_taken_for_a_peers(name) -> None:
    assert adapt(resolve(name).function) is None


def test_name_and_docstring_stay_and_an_adapted_function_is_ours() -> None:
    adapted = adapt(Callable_())
    assert adapted.__name__ == "Callable_" and adapted.__doc__ == "A reward that is an object."
    assert resolve(adapted).name == "Callable_" and resolve(adapted).batched
    assert adapt(adapted) is None
    assert adapt(functools.partial(verl, extra_info=1)).__name__ == "verl"


def brevity(completions, limit=10, **kwargs):
    return [float(len(c) < limit) for c in completions]


def test_it_pickles() -> None:
    adapted = pickle.loads(pickle.dumps(adapt(brevity, {"limit": 3})))
    assert adapted.__name__ == "brevity"
    assert [s.value for s in score(resolve(adapted), [Sample("abc", None), Sample("ab", None)])] == [0.0, 1.0]


def test_options_reach_the_function_and_unknown_ones_are_refused() -> None:
    def strict(completions, limit=10): ...

    with pytest.raises(UserError, match="strict.*TRL.*bonus.*conversational, limit"):
        adapt(strict, {"bonus": 1})
    with pytest.raises(UserError, match="true or false, not 'yes'"):
        adapt(strict, {"conversational": "yes"})
    function = RewardFunction("brevity", adapt(brevity, {"limit": 3}), "", {"limit": 3}, batched=True)
    assert [s.value for s in score(function, [Sample("abc", None)])] == [0.0]


def test_what_only_a_peers_trainer_has_is_said() -> None:
    def scheduled(completions, trainer_state): ...

    with pytest.raises(UserError, match="scheduled.*trainer_state.*TRL's own trainer"):
        adapt(scheduled)
