"""Keys and values that are kept between turns: nothing is computed twice, and nothing comes out otherwise."""

from typing import Any

import pytest
import torch
from rollout_harness import CountingEngine, Ids, model_of, random_prompts
from tiny_models import VOCAB
from trainer_harness import LetterTokenizer

from rlvr.rollout.decode import ForwardCall
from rlvr.rollout.engine import Rollout, Sampling
from rlvr.rollout.hf import HFEngine
from rlvr.rollout.kv_cache import Prefixes

SAMPLING = Sampling(9, temperature=0.7, stop_ids=(1, 2, 3, 4, 5, 6), batch_size=5)
CLOSE: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-9}


def turns(model: Any, limit: int, *, stop_strings: tuple[str, ...] = ()) -> tuple[list[list[Rollout]], int]:
    """Three turns of each of twelve episodes, with made-up observations of several lengths between them; some end after one."""
    engine, prompts, found = CountingEngine(LetterTokenizer()), random_prompts(6, 9, groups=2), []
    engine.prefixes = Prefixes(limit)
    lots = torch.Generator().manual_seed(3)
    for turn in range(3):
        engine.prefixes.begin_turn()
        rollouts = engine.generate(
            model,
            prompts,
            SAMPLING if not stop_strings else Sampling(9, 0.7, stop_strings=stop_strings, batch_size=5),
            (0, turn),
        )
        found.append(rollouts)
        following = []
        for prompt, rollout in zip(prompts, rollouts, strict=True):
            said = torch.randint(7, VOCAB, (int(torch.randint(1, 6, (1,), generator=lots)),), generator=lots).tolist()
            if turn or torch.rand(1, generator=lots) < 0.8:
                following.append(Ids((*prompt.ids, *rollout.response_ids.tolist(), *said)))
        prompts = following
    return found, engine.tokens


@pytest.mark.parametrize("family", ["llama", "gpt2", "opt", "qwen3"])
def test_turns_are_those_without_anything_kept(family: str) -> None:
    model = model_of(family).double()
    (kept, few), (plain, many) = turns(model, 99), turns(model, 0)
    assert few < 0.8 * many
    for ours, theirs in zip(kept, plain, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            assert torch.equal(one.prompt_ids, other.prompt_ids) and torch.equal(one.response_ids, other.response_ids)
            torch.testing.assert_close(one.logprobs, other.logprobs, rtol=1e-5, atol=1e-5)  # they are float32
    assert {len(r.response_ids) for r in kept[2]} - {9}, "some end by themselves"


@pytest.mark.parametrize("family", ["llama", "gpt2", "opt", "qwen3"])
def test_logprobs_are_those_of_the_whole_sequence(family: str) -> None:
    """Against a pass without any cache, in float64."""
    model = model_of(family).double()
    for rollouts in turns(model, 99, stop_strings=("B", "CC", "D"))[0]:
        for r in rollouts:
            with torch.no_grad():
                logits = model(torch.cat([r.prompt_ids, r.response_ids])[None], use_cache=False).logits[0].double()
            expected = torch.log_softmax(logits[len(r.prompt_ids) - 1 : -1] / 0.7, -1).gather(
                1, r.response_ids[:, None]
            )[:, 0]
            torch.testing.assert_close(r.logprobs.double(), expected, rtol=1e-5, atol=1e-5)


def test_short_turns_after_long_beginnings() -> None:
    """There is less to come than a full buffer would grow by."""
    model, engine = model_of("llama").double(), HFEngine(LetterTokenizer())
    prompts, short = random_prompts(5, 40), Sampling(2, 0.7, stop_ids=tuple(range(20)))
    engine.prefixes = Prefixes(99)
    first = engine.generate(model, prompts, short, (0,))
    assert any(rollout.finished for rollout in first)
    engine.prefixes.begin_turn()
    following = [Ids((*p.ids, *r.response_ids.tolist(), 30)) for p, r in zip(prompts, first, strict=True)]
    kept = engine.generate(model, following, short, (1,))
    engine.prefixes = None
    plain = engine.generate(model, following, short, (1,))
    assert [r.response_ids.tolist() for r in kept] == [r.response_ids.tolist() for r in plain]


def test_a_window_of_columns_allows_no_gaps() -> None:
    model = model_of("mistral-sliding").double()
    assert not ForwardCall.of(model).gaps
    (kept, few), (plain, many) = turns(model, 99), turns(model, 0)
    assert few == many
    assert [[r.response_ids.tolist() for r in rs] for rs in kept] == [
        [r.response_ids.tolist() for r in rs] for rs in plain
    ]


def test_what_is_kept_of_a_turn_is_for_the_next_alone() -> None:
    row, other = ([(torch.zeros(1, n, 2), torch.zeros(1, n, 2))] for n in (3, 4))
    prefixes = Prefixes(3)
    for ids in ((0, 8, 9), (0, 8, 9, 7), (1, 8, 9), (2, 8, 9)):
        prefixes.keep(ids, other if len(ids) == 4 else row)
    assert prefixes.take((1, 8, 9, 1)) is None, "not in the same turn"
    prefixes.begin_turn()
    assert prefixes.take((2, 8, 9, 1)) is None, "there was no room for it"
    assert prefixes.take((1, 8, 9)) is None, "a token has to be left to be computed"
    assert prefixes.take((1, 8, 9, 1)) is row and prefixes.take((1, 8, 9, 1)) is None, "once"
    assert prefixes.take((0, 8, 9, 7, 6)) is other, "the longest"
    prefixes.keep((5, 6), row)
    prefixes.begin_turn()
    assert prefixes.take((0, 8, 9, 1)) is None and prefixes.take((5, 6, 7)) is row
