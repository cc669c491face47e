"""The paged engine (transformers' continuous batching) against the default one."""

from dataclasses import replace

import pytest
import torch
import transformers
from rollout_harness import Ids, ids, model_of, random_prompts
from tiny_models import tiny_model
from trainer_harness import LetterTokenizer

from rlvr.errors import UserError
from rlvr.rollout.engine import Sampling
from rlvr.rollout.hf import HFEngine
from rlvr.rollout.registry import make_engine

TOKENIZER = LetterTokenizer()
available = hasattr(transformers, "ContinuousBatchingConfig")
pytestmark = pytest.mark.skipif(not available, reason="this version of transformers has no continuous batching")


@pytest.mark.parametrize("family", ["llama", "gpt2", "qwen3", "gemma3-sliding"])
def test_greedy_tokens_are_those_of_hf(family: str) -> None:
    model = model_of(family)
    prompts = random_prompts(7, 12, groups=2)
    sampling = Sampling(14, temperature=0.0, stop_ids=(1, 2, 3, 4))
    expected = HFEngine(TOKENIZER).generate(model, prompts, sampling, (0,))
    got = make_engine("paged", TOKENIZER).generate(model, prompts, replace(sampling, batch_size=5), (0,))
    assert ids(got) == ids(expected)
    assert [r.stop_reason for r in got] == [r.stop_reason for r in expected]
    assert [r.prompt_ids.tolist() for r in got] == [list(p.ids) for p in prompts]


def test_samples_are_reproducible_and_carry_their_logprobs() -> None:
    model, engine = tiny_model(), make_engine("paged", TOKENIZER)
    prompts, sampling = random_prompts(20, 9), Sampling(8, temperature=1.7, stop_ids=(1, 2))
    before = torch.get_rng_state()
    first = engine.generate(model, prompts, sampling, (0, 1))
    assert torch.equal(before, torch.get_rng_state())
    assert ids(engine.generate(model, prompts, sampling, (0, 1))) == ids(first)
    assert ids(engine.generate(model, prompts, sampling, (0, 2))) != ids(first)
    for r in first:
        with torch.no_grad():
            logits = model(torch.cat([r.prompt_ids, r.response_ids])[None]).logits[0, len(r.prompt_ids) - 1 : -1]
        expected = (logits / 1.7).log_softmax(-1).gather(1, r.response_ids[:, None])[:, 0]
        torch.testing.assert_close(r.logprobs, expected, atol=1e-4, rtol=0)


def test_stop_strings_end_responses_and_the_cut_is_progress() -> None:
    model, engine, calls = tiny_model(), make_engine("paged", TOKENIZER), []
    engine.on_progress = lambda *a: calls.append(a)
    strings = tuple(TOKENIZER.letters[5:15])
    rollouts = engine.generate(model, random_prompts(20, 9), Sampling(20, stop_strings=strings), (0,))
    for r in rollouts:
        text = TOKENIZER.decode(r.response_ids.tolist())
        assert not any(s in text[:-1] for s in strings) and r.finished == any(s in text for s in strings)
    assert calls[-1] == (20, 20, sum(len(r.response_ids) for r in rollouts))


def test_a_model_with_attention_of_its_own_is_refused() -> None:
    with pytest.raises(UserError, match="does not work for BloomForCausalLM.*--engine hf"):
        make_engine("paged", TOKENIZER).generate(tiny_model("bloom"), [Ids((5,))], Sampling(4), (0,))


def test_a_version_without_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlvr.rollout.registry.version", lambda package: "4.51.3")
    with pytest.raises(UserError, match="transformers 5.17 and later have it, not 4.51.3: upgrade.*--engine hf"):
        make_engine("paged", TOKENIZER)


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(UserError, match="--engine pagd: there is no such engine.*Did you mean 'paged'"):
        make_engine("pagd", TOKENIZER)
