"""A conversation: the prompts that the model sees, what commands change, and what an answer is worth."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from saved_models import save_micro_model
from transformers import GenerationConfig

from rewards import Sample
from rlvr.chat.loop import COMMANDS, ChatLoop, Quit, run_command
from rlvr.chat.screen import PlainScreen
from rlvr.chat.session import DEFAULT_MAX_NEW_TOKENS, AnswerScorer, ChatSession, default_sampling
from rlvr.errors import UserError
from rlvr.evaluation.policy import Policy
from rlvr.rollout.engine import Sampling


@pytest.fixture(scope="module")
def policy(tmp_path_factory) -> Policy:
    return Policy.open(save_micro_model(tmp_path_factory.mktemp("chat")), torch.device("cpu"), mixed_precision="fp32")


@pytest.fixture(scope="module")
def model(policy: Policy):
    return policy.load()


@pytest.fixture
def session(policy: Policy, model) -> ChatSession:
    sampling = replace(default_sampling(model, policy.conversation), max_new_tokens=8, temperature=1.0)
    return ChatSession(policy, model, sampling, seed=3)


def prompt_of(session: ChatSession, answer) -> str:
    return session.policy.tokenizer.decode(answer.sample.prompt_ids)


def test_the_first_prompt_is_that_of_training_and_later_ones_hold_what_was_said(session: ChatSession) -> None:
    first = session.ask("2+3=?")
    assert list(first.sample.prompt_ids) == session.conversation.encode_prompt("2+3=?")
    second = session.ask("and 4?")
    said = first.sample.response
    assert prompt_of(session, second) == f"<|user|>2+3=?<|assistant|>{said}<|end|><|user|>and 4?<|assistant|>"
    session.reset()
    assert list(session.ask("x").sample.prompt_ids) == session.conversation.encode_prompt("x")


def test_single_turns_are_asked_as_in_training(policy: Policy, model) -> None:
    session = ChatSession(policy, model, Sampling(4, stop_ids=policy.conversation.stop_ids), single_turn=True)
    session.ask("1")
    assert list(session.ask("2").sample.prompt_ids) == policy.conversation.encode_prompt("2")


def test_the_text_comes_in_pieces_and_adds_up(session: ChatSession) -> None:
    pieces: list[str] = []
    answer = session.ask("2+3=?", pieces.append)
    assert "".join(pieces) == answer.sample.response and len(pieces) > 2
    assert answer.tokens <= 8 and session.policy.engine.on_tokens is None


@pytest.mark.parametrize("engine", ["generate", "hf"])
def test_engines_that_tell_no_tokens_show_the_whole(engine: str, policy: Policy, model) -> None:
    named = Policy.open(policy.name, policy.device, engine=engine, mixed_precision="fp32")
    pieces: list[str] = []
    answer = ChatSession(named, model, Sampling(8, stop_ids=named.conversation.stop_ids, temperature=0)).ask(
        "1", pieces.append
    )
    assert "".join(pieces) == answer.sample.response and (len(pieces) == 1) == (engine == "generate")


def test_the_same_seed_gives_the_same_answers(session: ChatSession) -> None:
    first = [session.ask(q).sample.response for q in ("1", "2")]
    session.reset()
    assert [session.ask(q).sample.response for q in ("1", "2")] == first
    session.reset()
    session.reseed(4)
    assert [session.ask(q).sample.response for q in ("1", "2")] != first


def test_stopping_an_answer_keeps_what_was_said(session: ChatSession) -> None:
    pieces: list[str] = []

    def impatient(text: str) -> None:
        pieces.append(text)
        if len(pieces) == 3:
            raise KeyboardInterrupt

    answer = session.ask("1", impatient)
    assert answer.stopped and not answer.sample.finished and answer.sample.response == "".join(pieces)
    assert not session.model.training and session.policy.engine.on_tokens is None
    assert answer.sample.response in prompt_of(session, session.ask("2"))


def test_a_conversation_that_is_too_long_says_so(session: ChatSession) -> None:
    places = session.model.config.max_position_embeddings
    answer = session.ask("1" * (places - 6))
    assert answer.tokens == 4  # what is left
    with pytest.raises(UserError, match=rf"has \d+ tokens and the model takes {places}: .*/reset"):
        session.ask("2")
    session.reset()
    assert session.ask("2").tokens


def test_system_messages(session: ChatSession) -> None:
    notes: list[str] = []
    session.ask("1")
    run_command(session, "/system Be brief.", notes.append)
    answer = session.ask("2")
    assert prompt_of(session, answer).startswith("<|system|>Be brief.<|user|>2") or "Be brief." in prompt_of(
        session, answer
    )
    run_command(session, "/system", notes.append)
    assert "Be brief." not in prompt_of(session, session.ask("2"))


def test_commands_change_what_they_name(session: ChatSession) -> None:
    notes: list[str] = []
    for line in ("/temperature 0.5", "/max_new_tokens 3", "/gold  42 ", "/seed 9"):
        run_command(session, line, notes.append)
    assert session.sampling.temperature == 0.5 and session.sampling.max_new_tokens == 3 and session.gold == "42"
    assert session.ask("1").tokens <= 3
    session.sampling = replace(session.sampling, top_k=5, top_p=0.5)
    run_command(session, "/temperature 0", notes.append)
    assert (session.sampling.temperature, session.sampling.top_k, session.sampling.top_p) == (0, 0, 1)
    run_command(session, "/gold", notes.append)
    assert session.gold is None
    notes.clear()
    run_command(session, "/help", notes.append)
    assert len(notes) == len(COMMANDS) and all(f"/{name}" in note for name, note in zip(COMMANDS, notes, strict=True))
    with pytest.raises(Quit):
        run_command(session, "/quit", notes.append)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("/golf 3", "Did you mean 'gold'?"),
        ("/", "unknown command /"),
        ("/temperature", "/temperature: give a number from 0"),
        ("/temperature hot", "/temperature hot: give a number from 0"),
        ("/temperature -1", "give a number from 0"),
        ("/temperature nan", "give a number from 0"),
        ("/temperature inf", "give a number from 0"),
        ("/seed 1.5", "give a whole number from 0"),
        ("/max_new_tokens 0", "give a whole number from 1"),
        ("/reset now", "takes nothing behind it"),
    ],
)
def test_mistakes_in_commands(session: ChatSession, line: str, said: str) -> None:
    before = session.sampling
    with pytest.raises(UserError, match=said.replace("?", r"\?")):
        run_command(session, line, lambda text: None)
    assert session.sampling == before


def test_sampling_is_the_saved_models(policy: Policy, model) -> None:
    own = model.generation_config
    try:
        model.generation_config = GenerationConfig(
            do_sample=True, temperature=0.7, top_k=0, top_p=0.9, max_new_tokens=33
        )
        said = default_sampling(model, policy.conversation)
        assert (said.temperature, said.top_k, said.top_p, said.max_new_tokens) == (0.7, 0, 0.9, 33)
        assert said.stop_ids == policy.conversation.stop_ids
        model.generation_config = GenerationConfig(do_sample=False)
        assert default_sampling(model, policy.conversation).temperature == 0
        model.generation_config = None
        said = default_sampling(model, policy.conversation)
        assert (said.temperature, said.max_new_tokens) == (0, DEFAULT_MAX_NEW_TOKENS)
    finally:
        model.generation_config = own


def sample(response: str, gold: str | None, policy: Policy) -> Sample:
    return Sample(response, gold, prompt="p", question="2+3=?", tags=policy.conversation.tags)


def test_verdicts_name_status_and_reason(policy: Policy) -> None:
    scorer = AnswerScorer(policy)
    assert scorer.score(sample("<think></think><answer>5</answer>", None, policy)) == []
    (right,) = scorer.score(sample("<think></think><answer>5</answer>", "5", policy))
    assert right.status == "correct" and right.reason.startswith("answer 5, gold 5")
    (wrong,) = scorer.score(sample("<think></think><answer>6</answer>", "5", policy))
    assert wrong.status == "wrong" and "answer 6, gold 5" in wrong.reason
    (none,) = scorer.score(sample("no idea", "5", policy))
    assert none.status == "no_answer" and none.reason.startswith("no answer, gold 5")


def test_functions_are_scored_with_their_parts(policy: Policy, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "def parts(response):\n    return {'a': 1.0, 'b': len(response) / 100}\n\n"
        "def fails(response):\n    raise ValueError('no such thing')\n\n"
        "def skips(response):\n    return None\n"
    )
    names = ["gsm8k_reward_fn", *(f"{path}:{name}" for name in ("parts", "fails", "skips"))]
    text = "<think></think><answer>5</answer>"
    found = {one.source: one for one in AnswerScorer(policy, names).score(sample(text, "5", policy))}
    assert list(found) == ["grader", "gsm8k_reward_fn", "parts", "fails", "skips"]
    assert found["gsm8k_reward_fn"].status == "1" and found["parts"].reason == f"a 1, b {len(text) / 100:.4g}"
    assert found["fails"].status == "error" and "no such thing" in found["fails"].reason
    assert found["skips"].status == "does not apply"
    without = AnswerScorer(policy, names[:1]).score(sample(text, None, policy))
    assert [one.source for one in without] == ["gsm8k_reward_fn"]


class Script(PlainScreen):
    """Remembers what is shown."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def part(self, kind, text) -> None:
        self.told.append(f"{kind}:{text}")

    def end(self) -> None:
        self.told.append("end")

    def scores(self, found) -> None:
        self.told += [f"verdict:{one.source}:{one.status}" for one in found]

    def note(self, text) -> None:
        self.told.append(f"note:{text}")

    def error(self, text) -> None:
        self.told.append(f"mistake:{text}")


def test_a_person_errs_stops_answers_and_leaves(session: ChatSession, monkeypatch) -> None:
    screen = Script()
    lines = iter(["", "/nonsense", "1", KeyboardInterrupt, "stop me", "//2", "/gold 5", EOFError])

    def typed(prompt: str) -> str:
        line = next(lines)
        if not isinstance(line, str):
            raise line
        return line

    monkeypatch.setattr("builtins.input", typed)
    asked: list[str] = []
    ask = session.ask

    def watched(question, on_text):
        asked.append(question)

        def impatient(text):
            on_text(text)
            raise KeyboardInterrupt

        return ask(question, impatient if question == "stop me" else on_text)

    monkeypatch.setattr(session, "ask", watched)
    ChatLoop(session, AnswerScorer(session.policy), screen).run_at_terminal()
    assert asked == ["1", "stop me", "/2"]
    assert screen.told[0].startswith("mistake:unknown command /nonsense")
    assert "note:/quit or Ctrl-D ends" in screen.told and any(
        t.startswith("note:(stopped after 1") for t in screen.told
    )
    assert screen.told[-1].startswith("verdict:grader:")  # of the answer that was there when the gold came
