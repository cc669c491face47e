"""The vLLM engine against the transformers one. Runs only where vLLM is installed (see CONTRIBUTING)."""

from dataclasses import replace
from importlib.util import find_spec

import pytest
import torch
from rollout_harness import Ids, ids, random_prompts
from tiny_models import tiny_model
from trainer_harness import LetterTokenizer
from transformers import LlamaConfig, LlamaForCausalLM

from rlvr.errors import UserError
from rlvr.models.tiny import build_tiny_tokenizer
from rlvr.rollout.engine import Engine, Sampling
from rlvr.rollout.hf import HFEngine
from rlvr.rollout.registry import check_engine, make_engine

installed = find_spec("vllm") is not None
needs_vllm = pytest.mark.skipif(not installed, reason="vLLM is not installed here")


@pytest.mark.skipif(installed, reason="vLLM is installed here")
def test_without_vllm_the_remedy_is_named() -> None:
    with pytest.raises(UserError, match=r"vLLM is not installed; `pip install vllm`.*--engine hf"):
        make_engine("vllm", LetterTokenizer())


def test_several_processes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlvr.rollout.registry.find_spec", lambda name: True)
    with pytest.raises(UserError, match="works with one training process, not with 2"):
        check_engine("vllm", world_size=2)


@pytest.fixture(scope="module")
def engine() -> Engine:
    return make_engine("vllm", build_tiny_tokenizer())


@pytest.fixture(scope="module", params=[False, True], ids=["a head of its own", "tied to the embedding"])
def model(request) -> LlamaForCausalLM:
    torch.manual_seed(0)
    size = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=104,
            num_key_value_heads=1,
            max_position_embeddings=512,
            tie_word_embeddings=request.param,
            **size,
        )
    ).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(4 if p.ndim > 1 else 1)
    return model


@needs_vllm
def test_greedy_tokens_are_those_of_hf_before_and_after_an_update(engine: Engine, model: LlamaForCausalLM) -> None:
    hf = HFEngine(build_tiny_tokenizer())
    prompts = random_prompts(6, 12, groups=2)
    sampling = Sampling(20, temperature=0.0, stop_ids=(1, 2, 3, 50))
    seen = []
    for _ in range(2):
        expected = hf.generate(model, prompts, sampling, (0,))
        got = engine.generate(model, prompts, sampling, (0,))
        assert ids(got) == ids(expected)
        assert [r.stop_reason for r in got] == [r.stop_reason for r in expected]
        seen.append(ids(got))
        with torch.no_grad():
            for p in model.parameters():
                p.add_(0.1 * torch.randn_like(p))
    assert seen[0] != seen[1]


@needs_vllm
def test_a_model_with_heads_that_its_kernels_do_not_have_is_refused() -> None:
    with pytest.raises(UserError, match="takes heads of 32, 64, .* this model has heads of 4: take another"):
        make_engine("vllm", build_tiny_tokenizer()).generate(tiny_model(), [Ids((5,))], Sampling(4), (0,))


@needs_vllm
def test_samples_are_reproducible_and_carry_their_logprobs(engine: Engine, model: LlamaForCausalLM) -> None:
    sampling = Sampling(12, temperature=1.5)
    prompts = [Ids((5, 6, 7))] * 8
    first = engine.generate(model, prompts, sampling, (0, 1))
    assert ids(engine.generate(model, prompts, sampling, (0, 1))) == ids(first)
    assert ids(engine.generate(model, prompts, sampling, (0, 2))) != ids(first)
    assert len({tuple(i) for i in ids(first)}) > 1
    for r in first:
        with torch.no_grad():
            logits = model(torch.cat([r.prompt_ids, r.response_ids])[None]).logits[0, len(r.prompt_ids) - 1 : -1]
        expected = (logits / 1.5).log_softmax(-1).gather(1, r.response_ids[:, None])[:, 0]
        torch.testing.assert_close(r.logprobs, expected, atol=1e-3, rtol=0)
    assert engine.generate(model, prompts, replace(sampling, top_k=3), (0,))[0].logprobs is None


@needs_vllm
def test_stop_strings_end_responses(engine: Engine, model: LlamaForCausalLM) -> None:
    tokenizer = build_tiny_tokenizer()
    sampling = Sampling(60, temperature=1.0, stop_strings=("1", "2", "a", "b", "c", "d", "e"))
    rollouts = engine.generate(model, random_prompts(8, 5), sampling, (0,))
    for r in rollouts:
        before = tokenizer.decode(r.response_ids[:-1].tolist())
        assert not any(s in before for s in sampling.stop_strings)
        assert r.finished == any(s in tokenizer.decode(r.response_ids.tolist()) for s in sampling.stop_strings)
    assert any(r.finished for r in rollouts)
