"""A conversation: the prompts that the model sees, what commands change, and what an answer is worth."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from saved_models import save_micro_model
from transformers import GenerationConfig

from rewards import Sample
from rlvr.chat.commands import COMMANDS, Quit, run_command
from rlvr.chat.loop import Chat
from rlvr.chat.screen import PlainScreen
from rlvr.chat.talk import MAX_NEW_TOKENS, Talk, default_sampling
from rlvr.chat.verdict import Judge
from rlvr.errors import UserError
from rlvr.policy import Policy
from rlvr.rollout.engine import Sampling


@pytest.fixture(scope="module")
def policy(tmp_path_factory) -> Policy:
    return Policy.open(save_micro_model(tmp_path_factory.mktemp("chat")), torch.device("cpu"), mixed_precision="fp32")


@pytest.fixture(scope="module")
def model(policy: Policy):
    return policy.load()


@pytest.fixture
def talk(policy: Policy, model) -> Talk:
    sampling = replace(default_sampling(model, policy.conversation), max_new_tokens=8, temperature=1.0)
    return Talk(policy, model, sampling, seed=3)


def prompt_of(talk: Talk, answer) -> str:
    return talk.policy.tokenizer.decode(answer.sample.prompt_ids)


def test_the_first_prompt_is_that_of_training_and_later_ones_hold_what_was_said(talk: Talk) -> None:
    first = talk.ask("2+3=?")
    assert list(first.sample.prompt_ids) == talk.conversation.encode_prompt("2+3=?")
    second = talk.ask("and 4?")
    said = first.sample.response
    assert prompt_of(talk, second) == f"<|user|>2+3=?<|assistant|>{said}<|end|><|user|>and 4?<|assistant|>"
    talk.reset()
    assert list(talk.ask("x").sample.prompt_ids) == talk.conversation.encode_prompt("x")


def test_single_turns_are_asked_as_in_training(policy: Policy, model) -> None:
    talk = Talk(policy, model, Sampling(4, stop_ids=policy.conversation.stop_ids), single_turn=True)
    talk.ask("1")
    assert list(talk.ask("2").sample.prompt_ids) == policy.conversation.encode_prompt("2")


def test_the_text_comes_in_pieces_and_adds_up(talk: Talk) -> None:
    pieces: list[str] = []
    answer = talk.ask("2+3=?", pieces.append)
    assert "".join(pieces) == answer.sample.response and len(pieces) > 2
    assert answer.tokens <= 8 and talk.policy.engine.on_tokens is None


@pytest.mark.parametrize("engine", ["generate", "hf"])
def test_engines_that_tell_no_tokens_show_the_whole(engine: str, policy: Policy, model) -> None:
    named = Policy.open(policy.name, policy.device, engine=engine, mixed_precision="fp32")
    pieces: list[str] = []
    answer = Talk(named, model, Sampling(8, stop_ids=named.conversation.stop_ids, temperature=0)).ask(
        "1", pieces.append
    )
    assert "".join(pieces) == answer.sample.response and (len(pieces) == 1) == (engine == "generate")


def test_the_same_seed_gives_the_same_answers(talk: Talk) -> None:
    first = [talk.ask(q).sample.response for q in ("1", "2")]
    talk.reset()
    assert [talk.ask(q).sample.response for q in ("1", "2")] == first
    talk.reset()
    talk.reseed(4)
    assert [talk.ask(q).sample.response for q in ("1", "2")] != first


def test_stopping_an_answer_keeps_what_was_said(talk: Talk) -> None:
    pieces: list[str] = []

    def impatient(text: str) -> None:
        pieces.append(text)
        if len(pieces) == 3:
            raise KeyboardInterrupt

    answer = talk.ask("1", impatient)
    assert answer.stopped and not answer.sample.finished and answer.sample.response == "".join(pieces)
    assert not talk.model.training and talk.policy.engine.on_tokens is None
    assert answer.sample.response in prompt_of(talk, talk.ask("2"))


def test_a_conversation_that_is_too_long_says_so(talk: Talk) -> None:
    places = talk.model.config.max_position_embeddings
    answer = talk.ask("1" * (places - 6))
    assert answer.tokens == 4  # what is left
    with pytest.raises(UserError, match=rf"has \d+ tokens and the model takes {places}: .*/reset"):
        talk.ask("2")
    talk.reset()
    assert talk.ask("2").tokens


def test_system_messages(talk: Talk) -> None:
    notes: list[str] = []
    talk.ask("1")
    run_command(talk, "/system Be brief.", notes.append)
    answer = talk.ask("2")
    assert prompt_of(talk, answer).startswith("<|system|>Be brief.<|user|>2") or "Be brief." in prompt_of(talk, answer)
    run_command(talk, "/system", notes.append)
    assert "Be brief." not in prompt_of(talk, talk.ask("2"))


def test_commands_change_what_they_name(talk: Talk) -> None:
    notes: list[str] = []
    for line in ("/temperature 0.5", "/max_new_tokens 3", "/gold  42 ", "/seed 9"):
        run_command(talk, line, notes.append)
    assert talk.sampling.temperature == 0.5 and talk.sampling.max_new_tokens == 3 and talk.gold == "42"
    assert talk.ask("1").tokens <= 3
    talk.sampling = replace(talk.sampling, top_k=5, top_p=0.5)
    run_command(talk, "/temperature 0", notes.append)
    assert (talk.sampling.temperature, talk.sampling.top_k, talk.sampling.top_p) == (0, 0, 1)
    run_command(talk, "/gold", notes.append)
    assert talk.gold is None
    notes.clear()
    run_command(talk, "/help", notes.append)
    assert len(notes) == len(COMMANDS) and all(f"/{name}" in note for name, note in zip(COMMANDS, notes, strict=True))
    with pytest.raises(Quit):
        run_command(talk, "/quit", notes.append)


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
def test_mistakes_in_commands(talk: Talk, line: str, said: str) -> None:
    before = talk.sampling
    with pytest.raises(UserError, match=said.replace("?", r"\?")):
        run_command(talk, line, lambda text: None)
    assert talk.sampling == before


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
        assert (said.temperature, said.max_new_tokens) == (0, MAX_NEW_TOKENS)
    finally:
        model.generation_config = own


def sample(response: str, gold: str | None, policy: Policy) -> Sample:
    return Sample(response, gold, prompt="p", question="2+3=?", tags=policy.conversation.tags)


def test_verdicts_name_status_and_reason(policy: Policy) -> None:
    judge = Judge(policy)
    assert judge.verdicts(sample("<think></think><answer>5</answer>", None, policy)) == []
    (right,) = judge.verdicts(sample("<think></think><answer>5</answer>", "5", policy))
    assert right.status == "correct" and right.text.startswith("answer 5, gold 5")
    (wrong,) = judge.verdicts(sample("<think></think><answer>6</answer>", "5", policy))
    assert wrong.status == "wrong" and "answer 6, gold 5" in wrong.text
    (none,) = judge.verdicts(sample("no idea", "5", policy))
    assert none.status == "no_answer" and none.text.startswith("no answer, gold 5")


def test_functions_are_scored_with_their_parts(policy: Policy, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "def parts(response):\n    return {'a': 1.0, 'b': len(response) / 100}\n\n"
        "def fails(response):\n    raise ValueError('no such thing')\n\n"
        "def skips(response):\n    return None\n"
    )
    names = ["gsm8k_reward_fn", *(f"{path}:{name}" for name in ("parts", "fails", "skips"))]
    text = "<think></think><answer>5</answer>"
    found = {one.judge: one for one in Judge(policy, names).verdicts(sample(text, "5", policy))}
    assert list(found) == ["grader", "gsm8k_reward_fn", "parts", "fails", "skips"]
    assert found["gsm8k_reward_fn"].status == "1" and found["parts"].text == f"a 1, b {len(text) / 100:.4g}"
    assert found["fails"].status == "error" and "no such thing" in found["fails"].text
    assert found["skips"].status == "does not apply"
    without = Judge(policy, names[:1]).verdicts(sample(text, None, policy))
    assert [one.judge for one in without] == ["gsm8k_reward_fn"]


class Script(PlainScreen):
    """Remembers what is shown."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def part(self, kind, text) -> None:
        self.told.append(f"{kind}:{text}")

    def end(self) -> None:
        self.told.append("end")

    def verdicts(self, found) -> None:
        self.told += [f"verdict:{one.judge}:{one.status}" for one in found]

    def note(self, text) -> None:
        self.told.append(f"note:{text}")

    def mistake(self, text) -> None:
        self.told.append(f"mistake:{text}")


def test_a_person_errs_stops_answers_and_leaves(talk: Talk, monkeypatch) -> None:
    screen = Script()
    lines = iter(["", "/nonsense", "1", KeyboardInterrupt, "stop me", "//2", "/gold 5", EOFError])

    def typed(prompt: str) -> str:
        line = next(lines)
        if not isinstance(line, str):
            raise line
        return line

    monkeypatch.setattr("builtins.input", typed)
    asked: list[str] = []
    ask = talk.ask

    def watched(question, on_text):
        asked.append(question)

        def impatient(text):
            on_text(text)
            raise KeyboardInterrupt

        return ask(question, impatient if question == "stop me" else on_text)

    monkeypatch.setattr(talk, "ask", watched)
    Chat(talk, Judge(talk.policy), screen).at_terminal()
    assert asked == ["1", "stop me", "/2"]
    assert screen.told[0].startswith("mistake:unknown command /nonsense")
    assert "note:/quit or Ctrl-D ends" in screen.told and any(
        t.startswith("note:(stopped after 1") for t in screen.told
    )
    assert screen.told[-1].startswith("verdict:grader:")  # of the answer that was there when the gold came
