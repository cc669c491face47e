"""Responses of which each version of the weights samples some tokens: which version samples which, however late answers and weights come, and
that their logprobs are those of that version. Without a cluster: a pool that answers when it is told to, and a worker in this process."""

import random
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from trainer_harness import LetterTokenizer, loader

import rlvr.ray.ahead as ahead
from rewards import Sample
from rlvr.data.prompts import Prompt
from rlvr.models.actor import Actor
from rlvr.models.loading import load_tokenizer
from rlvr.ray.ahead import PartialRollouts
from rlvr.ray.roles import RayPPORollout
from rlvr.ray.rollout import Part, Weights
from rlvr.ray.splitting import Piece, Request
from rlvr.rollout.engine import Rollout, Sampling, cut_into_parts, go_on
from rlvr.rollout.hf import HFEngine

LENGTHS = (1, 3, 4, 5, 8, 9, 12, 30, 2, 2, 2, 7)
"""Tokens after which the response to each prompt ends by itself."""
SAMPLING = Sampling(max_new_tokens=14, stop_ids=(1,), batch_size=4)
SEED, N, EPISODE, STALENESS = (0, 5, 0, 0), 4, 5, 2


class Pool:
    """Answers a request when it is told to. A token is 2 + the place where the version samples it."""

    def __init__(self) -> None:
        self.open: list[Callable[[], None]] = []
        self.asked: list[Request] = []
        self.numbers: list[int] = []

    def take_number(self) -> int:
        return 7

    def ask(
        self, prompts: Sequence[Prompt], sampling: Sampling, seed: Any, *, ahead: bool, begun: Any, weights: Weights, number: int
    ) -> list[Part]:  # fmt: skip
        parts = []
        for rows in cut_into_parts(prompts, sampling.batch_size):
            request = Request(
                [prompts[row] for row in rows], sampling, seed, 0, [begun[row] for row in rows] if begun else ()
            )
            part = Part(rows, Future())
            self.asked.append(request)
            self.numbers.append(number)
            self.open.append(partial(self._answer, request, weights.version, part.answer))
            parts.append(part)
        return parts

    def _answer(self, request: Request, version: int, answer: "Future[Any]") -> None:
        rollouts = [self._more(prompt, row, request, version) for row, prompt in enumerate(request.prompts)]
        answer.set_result((None, Piece(rollouts, [Sample(str(len(r.response_ids)), gold=None) for r in rollouts])))

    def _more(self, prompt: Prompt, row: int, request: Request, version: int) -> Rollout:
        nothing = Rollout(
            torch.tensor(prompt.ids), torch.zeros(0).long(), "length", torch.zeros(0), versions=torch.zeros(0).long()
        )
        begun = request.begun[row] if request.begun else nothing
        first, length = len(begun.response_ids), LENGTHS[prompt.ids[0]]
        end = min(length, first + request.sampling.max_new_tokens)
        ids = torch.tensor([1 if t == length - 1 else 2 + t for t in range(first, end)])
        new = Rollout(
            begun.prompt_ids,
            ids,
            "stop" if end == length else "length",
            ids / 8,
            versions=torch.full_like(ids, version),
        )
        return go_on(begun, new, SAMPLING, lambda ids: "")


PROMPTS = [Prompt(loader(per_step=1).items[0].problem, (row,)) for row in range(len(LENGTHS))]


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch) -> None:
    monkeypatch.setattr(ahead, "import_ray", lambda: SimpleNamespace(put=lambda value: value))


def begin(pool: Pool) -> PartialRollouts:
    return PartialRollouts(pool, PROMPTS, SAMPLING, SEED, N, EPISODE)  # type: ignore[arg-type]


def run(pool: Pool, responses: PartialRollouts, versions: Sequence[int], chance: random.Random) -> None:
    """Publish these versions and answer all requests, in an order that chance gives."""
    left = list(versions)
    while left or pool.open:
        if left and (not pool.open or chance.random() < 0.5):
            responses.take(Weights(left.pop(0), ()))
        else:
            pool.open.pop(chance.randrange(len(pool.open)))()


def facts(responses: PartialRollouts) -> list[tuple[list[int], list[int], str]]:
    found = []
    for rollout in responses.rollouts():
        assert rollout.versions is not None and rollout.logprobs is not None
        assert torch.equal(rollout.logprobs, rollout.response_ids / 8)
        found.append((rollout.response_ids.tolist(), rollout.versions.tolist(), rollout.stop_reason))
    return found


def pieces(responses: PartialRollouts) -> dict[int, str]:
    return {
        row: sample.response
        for rows, _, piece in responses.pieces()
        for row, sample in zip(rows, piece.samples, strict=True)
    }


@pytest.mark.parametrize("chance", range(8))
def test_which_version_samples_which_token_depends_on_its_place_alone(chance: int) -> None:
    pool = Pool()
    responses = begin(pool)
    run(pool, responses, range(EPISODE - STALENESS, EPISODE + 3), random.Random(chance))
    for length, (ids, versions, reason) in zip(LENGTHS, facts(responses), strict=True):
        count = min(length, SAMPLING.max_new_tokens)
        assert ids == [1 if t == length - 1 else 2 + t for t in range(count)] and reason == (
            "stop" if count == length else "length"
        )
        assert versions == [min(EPISODE, EPISODE - STALENESS + t // N) for t in range(count)]
    assert pieces(responses) == {row: str(min(length, 14)) for row, length in enumerate(LENGTHS)}
    assert set(pool.numbers) == {7}


def test_what_is_left_goes_on_together_in_full_requests() -> None:
    pool = Pool()
    responses = begin(pool)
    run(pool, responses, (3, 4, 5), random.Random(0))
    sizes = {}
    for request in pool.asked:
        sizes.setdefault(request.seed, []).append((len(request.prompts), request.sampling.max_new_tokens))
    assert sizes == {
        SEED: [(4, 4)] * 3,
        (*SEED, "after", 4): [(4, 4), (2, 4)],  # of 12, those longer than 4 tokens
        (*SEED, "after", 8): [(3, 6)],  # the weights of the episode itself sample the rest
    }


@pytest.mark.parametrize("stop", [1, 2, 3])
def test_a_checkpoint_holds_what_there_is_and_the_rest_is_the_same(stop: int) -> None:
    pool, whole = Pool(), begin(Pool())
    run(whole.workers, whole, (3, 4, 5), random.Random(1))  # type: ignore[arg-type]
    first = begin(pool)
    run(pool, first, (3, 4, 5)[:stop], random.Random(2))
    saved = [Rollout(**vars(rollout)) for rollout in first.rollouts()]
    again, other = begin(Pool()), Pool()
    again.workers = other  # type: ignore[assignment]
    again.restore(Piece(saved, [Sample(str(len(r.response_ids)), gold=None) for r in saved]))
    run(other, again, (3, 4, 5)[stop - 1 :], random.Random(3))  # the newest is published anew
    assert facts(again) == facts(whole) and pieces(again) == pieces(whole)
    assert [(r.seed, len(r.prompts)) for r in [*pool.asked, *other.asked]] == [
        (r.seed, len(r.prompts)) for r in whole.workers.asked
    ]  # type: ignore[attr-defined]


def test_a_worker_that_fails_fails_those_who_wait() -> None:
    pool = Pool()
    responses = begin(pool)
    responses.take(Weights(3, ()))
    pool._answer = None  # type: ignore[assignment,method-assign]
    answers = [one.args[2] for one in pool.open]
    answers[0].set_exception(RuntimeError("a worker is broken"))
    for wait in (responses.rollouts, lambda: list(responses.pieces())):
        with pytest.raises(RuntimeError, match="a worker is broken"):
            wait()


def test_a_stop_string_may_begin_in_one_part_and_end_in_the_other() -> None:
    decode = LetterTokenizer().decode
    sampling = replace(SAMPLING, stop_strings=(decode([7, 8, 9]),))

    def of(ids: list[int], version: int) -> Rollout:
        tokens = torch.tensor(ids)
        return Rollout(torch.tensor([5]), tokens, "length", tokens / 8, versions=torch.full_like(tokens, version))

    whole = go_on(of([4, 6, 7, 8], 0), of([9, 3, 3, 3], 1), sampling, decode)
    assert whole.response_ids.tolist() == [4, 6, 7, 8, 9] and whole.finished
    assert whole.versions is not None and whole.versions.tolist() == [0, 0, 0, 0, 1]
    assert whole.logprobs is not None and len(whole.logprobs) == 5
    assert not go_on(of([4, 6, 7, 8], 0), of([3, 9, 3, 3], 1), sampling, decode).finished


# A worker, and a real model.


@pytest.fixture
def worker(micro_model) -> RayPPORollout:
    from transformers import AutoModelForCausalLM

    made = object.__new__(RayPPORollout)  # without its process
    made.tokenizer = load_tokenizer(micro_model)
    made.actor = Actor(AutoModelForCausalLM.from_pretrained(micro_model, dtype=torch.float32).eval())
    made.engine, made.version, made.conversation = HFEngine(made.tokenizer), 0, None
    return made


def answer(worker: RayPPORollout, count: int, begun: Sequence[Rollout] = (), **sampling: Any) -> list[Rollout]:
    prompts = [Prompt(PROMPTS[0].problem, tuple(range(5 + row, 9 + 2 * row))) for row in range(3)]
    return worker.answer(Request(prompts, Sampling(count, **sampling), (0, len(begun)), 0, begun)).rollouts


def test_a_response_goes_on_by_its_tokens(worker) -> None:
    whole = answer(worker, 12, temperature=0.0)
    parts = answer(worker, 7, answer(worker, 5, temperature=0.0), temperature=0.0)
    assert [r.response_ids.tolist() for r in parts] == [r.response_ids.tolist() for r in whole]
    assert all(r.logprobs is None for r in parts)


def test_each_token_has_the_logprob_of_the_version_that_sampled_it(worker) -> None:
    def logprobs(rollout: Rollout) -> torch.Tensor:
        ids = torch.cat([rollout.prompt_ids, rollout.response_ids])
        with torch.no_grad():
            rows = worker.actor.model(ids[None]).logits[0, len(rollout.prompt_ids) - 1 : -1].log_softmax(-1)
        return rows.gather(1, rollout.response_ids[:, None])[:, 0]

    begun = answer(worker, 5)
    first = [logprobs(rollout) for rollout in begun]
    worker.version = 1
    with torch.no_grad():
        for weight in worker.actor.parameters():
            weight.mul_(1.5)
    for rollout, before in zip(answer(worker, 7, begun), first, strict=True):
        after = logprobs(rollout)
        assert rollout.logprobs is not None and rollout.versions is not None
        assert rollout.versions.tolist() == [0] * 5 + [1] * 7
        assert torch.allclose(rollout.logprobs, torch.cat([before, after[5:]]), atol=1e-5)
        assert (after[:5] - before).abs().max() > 0.01  # of the present weights they would be others
