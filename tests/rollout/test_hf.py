"""The transformers engine: what it samples from, where responses end, and what randomness they depend on."""

from dataclasses import dataclass, replace

import pytest
import torch
from tiny_models import VOCAB, tiny_model
from transformers import GenerationConfig

from rlvr.rollout.engine import Sampling, cut_at_stop
from rlvr.rollout.hf import HFEngine


class LetterTokenizer:
    """Token i is the i-th of forty characters."""

    pad_token_id, eos_token_id, bos_token_id = 1, 1, 0
    letters = "".join(chr(ord("A") + i) for i in range(VOCAB))

    def decode(self, ids, skip_special_tokens=False) -> str:
        return "".join(self.letters[i] for i in ids)


@dataclass(frozen=True)
class FakePrompt:
    ids: tuple[int, ...]


PROMPTS = [FakePrompt((5, 6, 7)), FakePrompt((8,)), FakePrompt((9, 10, 11, 12, 13))]
SAMPLING = Sampling(max_new_tokens=12, stop_ids=(1, 2))


def test_responses_are_ragged_and_end_at_the_first_stop_token() -> None:
    model = tiny_model()
    rollouts = HFEngine(LetterTokenizer()).generate(model, PROMPTS * 20, SAMPLING, (0,))
    assert [tuple(r.prompt_ids.tolist()) for r in rollouts] == [p.ids for p in PROMPTS * 20]
    for rollout in rollouts:
        ids = rollout.response_ids.tolist()
        stops = [i for i in ids if i in (1, 2)]
        assert (len(stops) == 1 and ids[-1] in (1, 2)) if rollout.finished else (not stops and len(ids) == 12)
    assert {r.finished for r in rollouts} == {True, False}


def test_a07_greedy_responses_do_not_depend_on_the_padding_of_the_batch() -> None:
    model, engine = tiny_model("gpt2"), HFEngine(LetterTokenizer())
    greedy = replace(SAMPLING, temperature=0.0)
    together = engine.generate(model, PROMPTS, greedy, (0,))
    alone = [engine.generate(model, [p], greedy, (0,))[0] for p in PROMPTS]
    assert [r.response_ids.tolist() for r in together] == [r.response_ids.tolist() for r in alone]


def test_a29_randomness_is_a_function_of_the_place_in_the_run_only() -> None:
    model, engine = tiny_model(), HFEngine(LetterTokenizer())

    def sample(*seed):
        return [r.response_ids.tolist() for r in engine.generate(model, PROMPTS * 4, SAMPLING, seed)]

    first = sample(0, 3, "rank", 0)
    before = torch.get_rng_state()
    torch.rand(7)
    assert sample(0, 3, "rank", 0) == first
    assert sample(0, 3, "rank", 1) != first  # another rank
    assert sample(0, 4, "rank", 0) != first  # another step
    assert sample(1, 3, "rank", 0) != first  # another seed
    torch.set_rng_state(before)
    sample(0, 3, "rank", 0)
    assert torch.equal(torch.get_rng_state(), before)


def test_a03_the_models_own_generation_defaults_do_not_leak_in() -> None:
    """Hub models bring top-k 20 or a repetition penalty; sampling must come from the distribution that is trained."""
    plain, engine = tiny_model(), HFEngine(LetterTokenizer())
    spoiled = tiny_model()
    spoiled.generation_config = GenerationConfig(top_k=1, repetition_penalty=5.0, do_sample=True, temperature=0.1)
    free = [r.response_ids.tolist() for r in engine.generate(plain, PROMPTS * 4, SAMPLING, (0,))]
    assert [r.response_ids.tolist() for r in engine.generate(spoiled, PROMPTS * 4, SAMPLING, (0,))] == free
    assert spoiled.generation_config.top_k == 1  # and they are still there to be saved with the model


def test_a02_sampling_frequencies_follow_the_temperature() -> None:
    model, engine = tiny_model(), HFEngine(LetterTokenizer())
    with torch.no_grad():
        model.lm_head.weight.mul_(40)
        p = (model(torch.tensor([[5]])).logits[0, -1] / 2.0).softmax(0)
    one = Sampling(max_new_tokens=1, temperature=2.0, batch_size=4000)
    rollouts = engine.generate(model, [FakePrompt((5,))] * 4000, one, (0,))
    counts = torch.bincount(torch.stack([r.response_ids[0] for r in rollouts]), minlength=VOCAB) / 4000
    assert (counts - p).abs().max() < 4 * (0.25 / 4000) ** 0.5


def test_stop_strings_end_a_response_where_they_are_complete() -> None:
    tokenizer = LetterTokenizer()
    ids = [5, 6, 7, 8, 9, 1, 3]
    text = tokenizer.decode([7, 8])
    assert cut_at_stop(ids, (1,), (text,), tokenizer.decode) == ([5, 6, 7, 8], True)
    assert cut_at_stop(ids, (1,), ("no",), tokenizer.decode) == ([5, 6, 7, 8, 9, 1], True)


@pytest.mark.parametrize(
    ("ids", "kept", "stopped"),
    [([3, 1, 1, 1], [3, 1], True), ([1, 3], [1], True), ([3, 4], [3, 4], False), ([], [], False)],
)
def test_a04_a05_a06_the_stop_token_is_kept_once_and_nothing_after_it(ids, kept, stopped) -> None:
    assert cut_at_stop(ids, (1,)) == (kept, stopped)
