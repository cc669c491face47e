"""The decoding loop against `model.generate`, over families, padding, batch sizes and shrinking batches."""

from dataclasses import replace

import pytest
import torch
import transformers
from rollout_harness import MORE, Ids, ids, model_of, random_prompts
from tiny_models import FAMILIES, VOCAB, tiny_model
from trainer_harness import LetterTokenizer

from rlvr.errors import UserError
from rlvr.models.padding_free import attends_to_all
from rlvr.rollout import decode
from rlvr.rollout.decode import can_decode
from rlvr.rollout.engine import Sampling
from rlvr.rollout.generate import GenerateEngine
from rlvr.rollout.hf import HFEngine
from rlvr.rollout.registry import make_engine

TOKENIZER = LetterTokenizer()
OLD = transformers.__version__.startswith("4.")


@pytest.mark.parametrize("family", [*FAMILIES, *MORE])
def test_greedy_tokens_are_those_of_generate(family: str) -> None:
    if OLD and "gemma" in family and "sliding" in family:
        pytest.skip("this version's own `generate` depends on padding here")
    model, engine = model_of(family), HFEngine(TOKENIZER)
    prompts = random_prompts(9, 12, groups=2)
    sampling = Sampling(14, temperature=0.0)
    free = GenerateEngine(TOKENIZER).generate(model, prompts, sampling, (0,))
    sampling = replace(
        sampling, stop_ids=tuple({i[n % 14] for n, i in enumerate(ids(free)) if n % 6 == 0})
    )  # rows end here and there
    expected = GenerateEngine(TOKENIZER).generate(model, prompts, replace(sampling, batch_size=1), (0,))
    for batch_size in (1, 4, 7, 64):
        rollouts = engine.generate(model, prompts, replace(sampling, batch_size=batch_size), (0,))
        assert ids(rollouts) == ids(expected)
        assert [r.stop_reason for r in rollouts] == [r.stop_reason for r in expected]
        assert [tuple(r.prompt_ids.tolist()) for r in rollouts] == [p.ids for p in prompts]
    assert len({len(i) for i in ids(expected)}) > 1  # some end early, so that the batch has shrunk


@pytest.mark.parametrize("family", [*FAMILIES, *MORE])
def test_what_all_prompts_begin_with_is_run_once(family: str) -> None:
    """But for models with a window of columns, which padding between tokens would fill."""
    if OLD and "gemma" in family and "sliding" in family:
        pytest.skip("this version's own `generate` depends on padding here")
    model, beginning = model_of(family), tuple(2 + i % 30 for i in range(decode.WORTH_SHARING))
    prompts = [Ids((*beginning, *p.ids)) for p in random_prompts(5, 7, groups=1)]
    assert len({len(p.ids) for p in prompts}) > 1
    sampling, tokens = Sampling(5, temperature=0.0, batch_size=8), []
    expected = GenerateEngine(TOKENIZER).generate(model, prompts, replace(sampling, batch_size=1), (0,))
    model.get_input_embeddings().register_forward_hook(lambda m, given, out: tokens.append(given[0].numel()))
    assert ids(HFEngine(TOKENIZER).generate(model, prompts, sampling, (0,))) == ids(expected)
    if can_decode(model) and attends_to_all(model.config):
        longest = max(len(p.ids) for p in prompts) - len(beginning)
        assert len(beginning) in tokens and len(prompts) * longest in tokens
    else:
        assert len(beginning) not in tokens


@pytest.mark.parametrize("family", ["llama", "gpt2", "opt", "qwen2-tied", "qwen3", "gemma"])
def test_the_common_families_take_the_loop(family: str) -> None:
    if OLD and family == "gpt2":
        pytest.skip("this version's GPT-2 has a cache of its own kind")
    assert can_decode(model_of(family))


def test_models_with_other_memory_are_left_to_generate(monkeypatch: pytest.MonkeyPatch) -> None:
    """A state-space model has no keys to select rows of: its greedy tokens come from `generate`."""
    config = transformers.MambaConfig(
        vocab_size=VOCAB, hidden_size=16, num_hidden_layers=2, state_size=4, pad_token_id=1, eos_token_id=1
    )
    model = transformers.MambaForCausalLM(config).eval()
    assert not can_decode(model)
    used = []
    stream = GenerateEngine.stream
    monkeypatch.setattr(GenerateEngine, "stream", lambda *a: used.append(1) or stream(*a))
    rollouts = HFEngine(TOKENIZER).generate(model, [Ids((5, 6)), Ids((7, 8))], Sampling(4, stop_ids=(1,)), (0,))
    assert used and len(rollouts) == 2


@pytest.mark.parametrize("break_it", ["mask", "positions"])
def test_the_trial_finds_models_that_ignore_padding(break_it: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if OLD and break_it == "positions":
        pytest.skip("this version's GPT-2 has a cache of its own kind")
    model = tiny_model("gpt2" if break_it == "positions" else "llama")
    forward = model.forward
    assert can_decode(model)

    def ignorant(*args, attention_mask=None, position_ids=None, **kwargs):
        if break_it == "mask":
            return forward(*args, position_ids=position_ids, **kwargs)
        return forward(*args, attention_mask=attention_mask, **kwargs)

    monkeypatch.setattr(model, "forward", ignorant)
    with torch.no_grad():
        model.transformer.wpe.weight.mul_(30) if break_it == "positions" else model.model.embed_tokens.weight.mul_(30)
    assert not can_decode(model)


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_when_a_batch_shrinks_changes_no_greedy_token(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("llama")
    prompts, sampling = random_prompts(30, 10), Sampling(40, temperature=0.0, stop_ids=tuple(range(1, 8)))
    expected = HFEngine(TOKENIZER).generate(model, prompts, sampling, (0,))
    monkeypatch.setattr(decode, "SHRINK_AT", share)
    monkeypatch.setattr(decode, "FIRST_COLUMNS", 3)  # the cache has to grow, too
    assert ids(HFEngine(TOKENIZER).generate(model, prompts, sampling, (0,))) == ids(expected)


def test_rare_looks_for_ended_rows_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU, rows that have ended go on for some steps."""
    model, prompts = model_of("llama"), random_prompts(30, 10)
    sampling = Sampling(37, temperature=0.0, stop_ids=tuple(range(1, 8)))
    expected = HFEngine(TOKENIZER).generate(model, prompts, sampling, (0,))
    monkeypatch.setattr(decode.Decoder, "_looks", lambda self: self.step % 8 == 0 or self.step == 37)
    assert ids(HFEngine(TOKENIZER).generate(model, prompts, sampling, (0,))) == ids(expected)


def test_logprobs_are_those_of_a_forward_pass_at_the_temperature() -> None:
    model, temperature = tiny_model(), 1.7
    sampling = Sampling(12, temperature=temperature, stop_ids=(1, 2, 3, 4, 5))
    for truncation in ({}, {"top_k": 5, "top_p": 0.8}):
        rollouts = HFEngine(TOKENIZER).generate(model, random_prompts(20, 9), replace(sampling, **truncation), (0,))
        for r in rollouts:
            with torch.no_grad():
                logits = model(torch.cat([r.prompt_ids, r.response_ids])[None]).logits[0, len(r.prompt_ids) - 1 : -1]
            expected = (logits / temperature).log_softmax(-1).gather(1, r.response_ids[:, None])[:, 0]
            assert r.logprobs is not None and r.logprobs.dtype == torch.float32
            torch.testing.assert_close(r.logprobs, expected, atol=1e-4, rtol=0)


def test_responses_come_in_order_and_before_the_last_is_done() -> None:
    model = tiny_model()
    prompts = sorted(random_prompts(64, 9), key=lambda p: len(p.ids))
    sampling = Sampling(30, stop_ids=(1, 2, 3, 4, 5), batch_size=16)
    batches = list(HFEngine(TOKENIZER).stream(model, prompts, sampling, (0,)))
    assert len(batches) > 3
    assert any(len(batch) % 16 for batch in batches)
    given = [tuple(r.prompt_ids.tolist()) for batch in batches for r in batch]
    assert given == [p.ids for p in prompts]


def test_nothing_of_the_callers_state_changes_while_the_stream_waits() -> None:
    model = tiny_model().train()
    state = torch.get_rng_state()
    stream = HFEngine(TOKENIZER).stream(model, random_prompts(64, 9), Sampling(60, stop_ids=(1, 2, 3)), (0,))
    for _ in stream:
        assert model.training and torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
    assert torch.equal(state, torch.get_rng_state())


def test_stop_strings_end_responses() -> None:
    """'FG' across two tokens ends a response, the way that cutting a full one does."""
    model = tiny_model()
    with torch.no_grad():
        model.lm_head.weight.zero_()  # all tokens equally likely
    letters = TOKENIZER.letters
    strings = (letters[5:7], letters[9])
    free = Sampling(40, stop_ids=(1,), stop_strings=strings, batch_size=64)
    prompts = random_prompts(200, 5)
    rollouts = make_engine("hf", TOKENIZER).generate(model, prompts, free, (0,))
    ends = {"string": 0, "id": 0, "length": 0}
    for r in rollouts:
        text = TOKENIZER.decode(r.response_ids.tolist())
        before = TOKENIZER.decode(r.response_ids.tolist()[:-1])
        assert not any(s in before for s in strings) and letters[1] not in before
        by_string = any(s in text for s in strings)
        assert r.finished == (by_string or text.endswith(letters[1]))
        assert r.finished or len(text) == 40
        ends["string" if by_string else "id" if r.finished else "length"] += 1
    assert min(ends.values()) > 0


def test_progress_counts_responses_and_tokens() -> None:
    engine, calls = HFEngine(TOKENIZER), []
    engine.on_progress = lambda *a: calls.append(a)
    rollouts = engine.generate(tiny_model(), random_prompts(40, 5), Sampling(30, stop_ids=(1,), batch_size=16), (0,))
    assert calls[-1] == (40, 40, sum(len(r.response_ids) for r in rollouts))
    assert all(a <= b for x, y in zip(calls, calls[1:], strict=False) for a, b in zip(x[:1], y[:1], strict=True))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_model_that_has_diverged_is_reported(temperature) -> None:
    model = tiny_model()
    with torch.no_grad():
        model.lm_head.weight[3, 0] = torch.nan
    with pytest.raises(UserError, match="not finite numbers: it is broken"):
        HFEngine(TOKENIZER).generate(model, [Ids((5,))], Sampling(4, temperature=temperature), (0,))


def test_autocast_is_close_to_float32() -> None:
    model, engine = tiny_model(), HFEngine(TOKENIZER)
    sampling = Sampling(6, temperature=1.0)
    exact = engine.generate(model, random_prompts(64, 5), sampling, (0,))
    engine.autocast = True
    rough = engine.generate(model, random_prompts(64, 5), sampling, (0,))
    first = [
        (a.logprobs[0] - b.logprobs[0]).abs()
        for a, b in zip(exact, rough, strict=True)
        if a.response_ids[0] == b.response_ids[0]
    ]
    assert len(first) > 50 and 0 < max(first) < 0.05
