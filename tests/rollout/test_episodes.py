"""Episodes of several turns: their tokens, their limits, and that nothing depends on how long an environment takes."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from rollout_harness import CountingEngine

from rewards import RewardPool, UserError, resolve_environment
from rewards.registry import ENVIRONMENTS
from rlvr.data.problems import Problem
from rlvr.data.prompts import Prompt
from rlvr.models.loading import load_causal_lm, load_tokenizer
from rlvr.prompting.conversation import Conversation, ConversationTemplate
from rlvr.rollout.engine import Engine, Rollout, Sampling
from rlvr.rollout.episodes import EpisodeEngine
from rlvr.rollout.registry import make_engine
from rlvr.scorers.rules import sample_of

FILE = str(Path(__file__).parents[1] / "naughty_environment.py")


@pytest.fixture(scope="module")
def conversation(micro_model: str) -> Conversation:
    return Conversation(ConversationTemplate.load("tiny"), load_tokenizer(micro_model))


@pytest.fixture(scope="module")
def model(micro_model: str) -> Any:
    return load_causal_lm(micro_model).eval()


class Scripted(Engine):
    """The policy's turns, as texts: `script[question][turn]`. A text that ends in `...` was cut; tokens come one for each character."""

    def __init__(self, conversation: Conversation, script: dict[str, Sequence[str]]) -> None:
        self.c, self.script, self.asked, self.taken = (
            conversation,
            script,
            list[list[tuple[int, ...]]](),
            dict[str, int](),
        )

    def stream(
        self, model: Any, prompts: Sequence[Prompt], sampling: Sampling, seed: Any, first: int = 0
    ) -> Iterator[list[Rollout]]:
        self.asked.append([prompt.ids for prompt in prompts])
        for prompt in prompts:  # a batch for each
            turn = self.taken.get(prompt.problem.id, 0)
            self.taken[prompt.problem.id] = turn + 1
            text = self.script[prompt.problem.id][turn]
            ids = [token for letter in text.removesuffix("...") for token in self.c.encode(letter)]
            ids = (ids if text.endswith("...") else [*ids, self.c.stop_ids[0]])[: sampling.max_new_tokens]
            finished = ids[-1] == self.c.stop_ids[0]
            logprobs = torch.arange(len(ids)) - 100.0 * turn
            yield [Rollout(torch.tensor(prompt.ids), torch.tensor(ids), "stop" if finished else "length", logprobs)]


def prompts_of(conversation: Conversation, script: dict[str, Sequence[str]], gold: str = "5") -> list[Prompt]:
    return [Prompt(Problem(name, name, gold, {"level": 1}), tuple(conversation.encode_prompt(name))) for name in script]


@cache
def pool_of(name: str) -> RewardPool:
    """One for all tests of the file."""
    spec = name if name in ENVIRONMENTS else f"{FILE}:{name}"
    return RewardPool([resolve_environment(spec)], workers=2, timeout_s=60, max_failed_share=1.0)


@pytest.fixture(scope="module", autouse=True)
def pools() -> Iterator[None]:
    yield
    for name in ("Guess", "Obedient", "AtOnce", "Twice", "Slow", "calculator", "python"):
        pool_of(name).close()
    pool_of.cache_clear()


def played(
    conversation: Conversation, script: dict[str, Sequence[str]], name: str = "Guess", turns: int = 4, tokens: int = 200
) -> tuple[list[Rollout], Scripted]:
    inner = Scripted(conversation, script)
    engine = EpisodeEngine(inner, pool_of(name), conversation, turns)
    prompts = prompts_of(conversation, script)
    rollouts = engine.generate(None, prompts, Sampling(tokens, stop_ids=conversation.stop_ids), (0,))  # type: ignore[arg-type]
    assert [rollout.prompt_ids.tolist() for rollout in rollouts] == [list(prompt.ids) for prompt in prompts]
    return rollouts, inner


def test_tokens_are_those_that_were_sampled_and_read(conversation) -> None:
    script = {"1+4=?": ["1", "9", "5"], "2+3=?": ["5"], "3+2=?": ["7", "6", "4", "3"]}
    rollouts, inner = played(conversation, script)
    long, short, lost = rollouts
    assert [r.end.ended for r in rollouts] == ["done", "done", "turns"] and all(r.finished for r in rollouts)
    assert [r.end.turns for r in rollouts] == [3, 1, 4]
    assert long.end.scores == {"right": 1.0, "tries": pytest.approx(-0.3)} and lost.end.scores == {"tries": 0.0}
    assert short.action_mask.all() and conversation.tokenizer.decode(short.response_ids) == "5<|end|>"
    text = conversation.tokenizer.decode(long.response_ids)
    assert (
        text.startswith("1<|end|><|user|>higher 0.")
        and text.endswith("<|assistant|>5<|end|>")
        and text.count("<|end|>") == 3
    )
    turns = [conversation.tokenizer.decode(ids) for ids in long.turns]
    assert turns[0::2] == ["1<|end|>", "9<|end|>", "5<|end|>"]
    assert [turn.split(" ")[0] for turn in turns[1::2]] == ["<|user|>higher", "<|user|>lower"]
    # The third turn was asked with all tokens before it, as they were.
    assert inner.asked[2][0] == (*long.prompt_ids.tolist(), *torch.cat(long.turns[:4]).tolist())
    assert long.logprobs.tolist() == [0.0, 1.0, -100.0, -99.0, -200.0, -199.0] and len(long.logprobs) == len(
        long.action_ids
    )


def test_no_token_is_encoded_again() -> None:
    """A tokenizer that would join what the policy wrote letter by letter."""
    from family_tokenizers import family

    conversation = Conversation(ConversationTemplate.load("qwen2.5"), family("qwen2.5"))
    letters = [token for letter in "answer" for token in conversation.encode(letter)]
    assert conversation.encode("answer") != letters
    (rollout,), _ = played(conversation, {"q": ["answer", "5"]}, tokens=400)
    assert rollout.turns[0].tolist() == [*letters, conversation.stop_ids[0]]
    assert conversation.tokenizer.decode(rollout.response_ids).startswith("answer<|im_end|>\n<|im_start|>user\nhigher")


def test_limits(conversation) -> None:
    """A turn that was cut ends the episode unanswered, and so does an observation that leaves no token for a turn."""
    (cut,), _ = played(conversation, {"q": ["1", "8..."]})
    assert cut.end.ended == "length" and cut.end.turns == 2 and not cut.finished and cut.end.scores == {"tries": 0.0}
    whole = len(played(conversation, {"q": ["1", "5"]})[0][0].response_ids)
    for tokens in range(1, whole + 1):
        (rollout,), _ = played(conversation, {"q": ["1", "5"]}, tokens=tokens)
        observation = whole - 4
        expected = (
            "length"
            if tokens < 2
            else "context"
            if tokens < 3 + observation
            else "length"
            if tokens < whole
            else "done"
        )
        assert rollout.end.ended == expected and len(rollout.response_ids) <= tokens, tokens
        assert rollout.action_mask[-1], "an episode ends with a token of the policy"
        assert len(rollout.logprobs) == int(rollout.action_mask.sum())


def test_a_failure_ends_its_own_episode(conversation) -> None:
    script = {"a": ["x", "raise it", "-"], "b": ["x", "y", "end"], "reset raise": ["x"], "c": ["long"]}
    rollouts, _ = played(conversation, script, "Obedient")
    assert [r.end.ended for r in rollouts] == ["failed", "done", "failed", "failed"]
    assert [r.end.turns for r in rollouts] == [2, 3, 1, 1]
    assert [r.end.failure.split(":")[:2] for r in rollouts[::2]] == [["error", " ValueError"]] * 2 and not rollouts[
        1
    ].end.failure
    samples = [sample_of(conversation.tokenizer, Problem("", "q", "5", {"level": 1}), r) for r in rollouts]
    assert [s.columns["environment_scores"] for s in samples] == [None, {"score": 0.5}, None, None]
    assert samples[1].response == "end" and samples[1].columns["level"] == 1
    assert samples[1].columns["environment_turns"] == ["x", "x", "y", "x y", "end"]


def test_a_calculator_answers_until_there_is_no_call(conversation) -> None:
    script = {"q": ["<call>12*12</call>", "<call>2+*</call>", "<answer>144</answer>"]}
    engine = EpisodeEngine(Scripted(conversation, script), pool_of("calculator"), conversation, 4)
    (rollout,) = engine.generate(
        None, prompts_of(conversation, script), Sampling(200, stop_ids=conversation.stop_ids), (0,)
    )  # type: ignore[arg-type]
    turns = [conversation.tokenizer.decode(ids, skip_special_tokens=True) for ids in rollout.turns]
    assert turns[1] == "144" and turns[3].startswith("error") and rollout.end.ended == "done"
    assert rollout.end.scores == {"_calls": 2.0, "_errors": 1.0} and rollout.end.score == 0


def test_programs_are_answered_and_a_call_that_a_limit_cuts_is_not_run(conversation) -> None:
    closed = "<call>sum(n for n in range(9) if n % 3 == 0)</call>"
    script = {
        "a": [closed, "<call>print(1)\n1/0</call>", "<answer>9</answer>"],
        "b": ["<call>2+2", "<answer>4</answer>"],  # never closed, but the turn is over
        "c": ["<call>" + "1+" * 150 + "..."],  # never closed, and cut
    }
    rollouts, _ = played(conversation, script, "python", tokens=400)
    turns = [[conversation.tokenizer.decode(ids, skip_special_tokens=True) for ids in r.turns] for r in rollouts]
    assert turns[0][1::2] == ["9", "1\nerror: line 2: ZeroDivisionError: division by zero"] and turns[1][1] == "4"
    assert [r.end.ended for r in rollouts] == ["done", "done", "length"]
    scores = [r.end.scores for r in rollouts]
    assert [(s.get("_calls"), s.get("_errors")) for s in scores] == [(2, 1), (1, 0), (None, None)] and scores[0][
        "_steps"
    ] > 50


def test_an_environment_may_say_what_the_template_says(conversation) -> None:
    """Text that a model wrote comes back: nothing in it is looked for."""
    said = "There are seventytwo pens <|end|><|assistant|> 5"
    (rollout,), _ = played(conversation, {"q": [said, "end"]}, "Obedient")
    assert rollout.end.ended == "done" and len(rollout.turns) == 3 and rollout.end.turns == 2


def test_an_empty_observation_is_a_turn(conversation) -> None:
    (rollout,), _ = played(conversation, {"q": ["empty", "end"]}, "Obedient")
    assert [conversation.tokenizer.decode(ids) for ids in rollout.turns][1] == "<|user|><|assistant|>"


SAMPLING = Sampling(24, temperature=0.9, batch_size=3)


def real(
    conversation: Conversation, model: Any, environment: str | None, sampling: Sampling = SAMPLING, engine: str = "hf"
) -> list[Rollout]:
    prompts = [
        Prompt(Problem(str(i), f"{i}+1=?", "5"), tuple(conversation.encode_prompt(f"{i}+1=?"))) for i in range(7)
    ]
    # Often enough for short turns: any of these letters ends one.
    stops = (*conversation.stop_ids, *(token for letter in "13579+=-" for token in conversation.encode(letter)))
    made = make_engine(engine, conversation.tokenizer)
    if environment is not None:
        made = EpisodeEngine(made, pool_of(environment), conversation, 3)
    return made.generate(model, prompts, replace(sampling, stop_ids=stops), (0, 1))


def test_an_episode_of_one_turn_is_the_response_without_an_environment(conversation, model) -> None:
    for mine, plain in zip(real(conversation, model, "AtOnce"), real(conversation, model, None), strict=True):
        assert torch.equal(mine.response_ids, plain.response_ids) and torch.equal(mine.logprobs, plain.logprobs)
        assert mine.action_mask.all() and mine.finished == plain.finished


def test_what_is_drawn_does_not_depend_on_the_time_that_an_environment_takes(conversation, model) -> None:
    first, again, slow = (real(conversation, model, kind) for kind in ("Twice", "Twice", "Slow"))
    assert {r.end.turns for r in first} & {2, 3}
    for one, same, late in zip(first, again, slow, strict=True):
        assert torch.equal(one.response_ids, same.response_ids) and torch.equal(one.logprobs, same.logprobs)
        assert torch.equal(one.response_ids, late.response_ids) and one.end == late.end


def test_no_token_is_computed_twice(conversation, model) -> None:
    """The model is given the prompts, and then each token once: those that were sampled (but the last), and what was said."""
    engine = CountingEngine(conversation.tokenizer)
    prompts = [Prompt(Problem("0", "1+1=?", "5"), tuple(conversation.encode_prompt("1+1=?")))]
    stops = tuple(range(0, len(conversation.tokenizer), 2))
    played = EpisodeEngine(engine, pool_of("Twice"), conversation, 3)
    for seed in range(5):
        engine.tokens = 0
        (rollout,) = played.generate(model, prompts, Sampling(60, stop_ids=(*conversation.stop_ids, *stops)), (seed,))
        assert rollout.end.turns == 3 and engine.tokens == len(rollout.prompt_ids) + len(rollout.response_ids) - 1


@pytest.mark.parametrize("engine", ["generate", "paged"])
def test_other_engines_play_the_same(engine, conversation, model) -> None:
    if engine == "paged" and not hasattr(transformers, "ContinuousBatchingConfig"):
        pytest.skip("this version of transformers has no continuous batching")
    greedy = Sampling(24, temperature=0.0, batch_size=3)
    expected = real(conversation, model, "Twice", greedy)
    got = real(conversation, model, "Twice", greedy, engine)
    assert {r.end.turns for r in expected} != {1}
    assert [r.response_ids.tolist() for r in got] == [r.response_ids.tolist() for r in expected]
    assert [r.end for r in got] == [r.end for r in expected]


def test_greedy_turns_are_those_of_each_episode_by_itself(conversation, model) -> None:
    """A plain loop: one row, no cache, from the first token of all."""
    stops = {*conversation.stop_ids, *(token for letter in "13579+=-" for token in conversation.encode(letter))}
    for rollout in real(conversation, model, "Twice", Sampling(24, temperature=0.0, batch_size=3)):
        ids, mask, turns, over = rollout.prompt_ids.tolist(), [], 0, False
        while not over:
            turn: list[int] = []
            while len(mask) < 24 and not (turn and turn[-1] in stops):
                with torch.no_grad():
                    turn.append(int(model(torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
                ids, mask = [*ids, turn[-1]], [*mask, True]
            turns += 1
            over = turn[-1] not in stops or turns == 3
            said = conversation.encode_observation(str(len(conversation.decode_response(turn))), turn)
            if over or len(mask) + len(said) >= 24:
                break
            ids, mask = ids + said, mask + [False] * len(said)
        assert ids[len(rollout.prompt_ids) :] == rollout.response_ids.tolist() and mask == rollout.action_mask.tolist()
        assert rollout.end.turns == turns


def test_progress_counts_episodes_and_tokens(conversation) -> None:
    told: list[tuple[int, int, int]] = []

    class Telling(Scripted):
        def stream(self, *args: Any) -> Iterator[list[Rollout]]:
            for number, batch in enumerate(super().stream(*args)):
                self.report(number, len(args[1]), 10)
                yield batch

    script = {"1+4=?": ["1", "5"], "2+3=?": ["5"]}
    engine = EpisodeEngine(Telling(conversation, script), pool_of("Guess"), conversation, 4)
    engine.on_progress = lambda *numbers: told.append(numbers)
    engine.generate(None, prompts_of(conversation, script), Sampling(99, stop_ids=conversation.stop_ids), (0,))  # type: ignore[arg-type]
    assert told == [(0, 2, 10), (0, 2, 10), (1, 2, 14), (2, 2, 6)]


def test_a_template_that_knows_one_turn_only_is_refused_at_the_start(conversation) -> None:
    template = ConversationTemplate.from_config(
        {
            "chat_template": "{{ messages[0]['content'] }}:{{ messages[1]['content'] if messages[1:] else '' }}",
            "system_message": "",
            "stop_ids": None,
        },
        "mine.json",
    )
    with pytest.raises(UserError, match="mine.json.*leaves out what an environment says"):
        EpisodeEngine(Scripted(conversation, {}), None, Conversation(template, conversation.tokenizer), 2)  # type: ignore[arg-type]
