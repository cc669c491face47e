"""`ChatSession`: a conversation with a model, and `AnswerScorer`: what its answers are worth. Neither knows of terminals.

Prompts are those of training, so that an answer here is what training would see; a later question follows what was said before,
unless each is asked by itself (`single_turn`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from transformers import PreTrainedModel

from rewards import Outcome, Sample, grade
from rewards.audit import score_each
from rlvr.chat.stream import TextStream
from rlvr.data.problems import Problem
from rlvr.data.prompts import Prompt
from rlvr.errors import UserError
from rlvr.evaluation.policy import Policy
from rlvr.prompting.conversation import Conversation
from rlvr.rollout.engine import Sampling
from rlvr.scorers.rules import RLVRRewardModel, make_sample

DEFAULT_MAX_NEW_TOKENS = 512
"""Where neither the user nor the model says how long a response may be."""


@dataclass(frozen=True)
class Answer:
    """A response.

    Attributes:
        sample: as reward functions see it.
        tokens: how many it has.
        stopped: the user stopped it; otherwise `sample.finished` tells if it ended by itself.
    """

    sample: Sample
    tokens: int
    stopped: bool = False


class ChatSession:
    """Asks a model one question after the other, each after what was said before.

    Args:
        policy: the model, opened.
        model: its weights.
        sampling: how to answer; see `default_sampling`.
        seed: of sampling: the same seed and the same questions give the same answers.
        single_turn: ask each question by itself, as in training.

    Attributes:
        gold: the right answer to compare answers with; None = unknown.
        last: the newest answer.
    """

    def __init__(
        self,
        policy: Policy,
        model: PreTrainedModel,
        sampling: Sampling,
        seed: int = 0,
        single_turn: bool = False,
    ) -> None:
        self.policy, self.model, self.sampling, self.single_turn = policy, model, sampling, single_turn
        self.conversation = policy.conversation
        self.gold: str | None = None
        self.last: Answer | None = None
        self._turns: list[tuple[str, str]] = []
        self.reseed(seed)

    def reseed(self, seed: int) -> None:
        """Draw from here on as a conversation that begins with this seed."""
        self._seed, self._asked = seed, 0

    def reset(self) -> None:
        """Forget what was said, and draw from the seed's beginning."""
        self._turns, self._asked, self.last = [], 0, None

    def set_system_message(self, system: str) -> None:
        """Take another system message; "" = none. What was said is forgotten.

        Raises:
            UserError: the chat template can't be rendered with it.
        """
        template = replace(self.conversation.template, system_message=system)
        self.conversation = Conversation(template, self.policy.tokenizer)
        self.reset()

    def prompt_opens_thinking(self) -> bool:
        """True where the template's prompts end in the opening tag of the thinking, as DeepSeek-R1's do."""
        return self.conversation.prompt_text("?").rstrip().endswith(self.conversation.tags.think_start.text)

    def ask(self, question: str, on_text: Callable[[str], None] = lambda text: None) -> Answer:
        """The model's answer. `on_text` gets its text piece by piece, as it is generated; Ctrl-C stops it.

        Raises:
            UserError: the conversation leaves no room for an answer.
        """
        prompt = Prompt(Problem("chat", question, self.gold), tuple(self._encode(question)))
        sampling = replace(self.sampling, max_new_tokens=self._tokens_left(len(prompt.ids)))
        engine, tokens = self.policy.engine, list[int]()
        stream = TextStream(self.conversation.decode_response, self.conversation.stop_strings)

        def on_tokens(newest: dict[int, int]) -> None:
            tokens.append(newest[0])
            if piece := stream.feed(newest[0]):
                on_text(piece)

        engine.on_tokens = on_tokens
        try:
            (rollout,) = engine.generate(self.model, [prompt], sampling, ("chat", self._seed, self._asked))
            ids, finished, stopped = rollout.response_ids.tolist(), rollout.finished, False
        except KeyboardInterrupt:
            ids, finished, stopped = tokens, False, True
        finally:
            engine.on_tokens = None
        if piece := stream.rest(self.conversation.decode_response(ids)):
            on_text(piece)
        self.last = Answer(self._sample(prompt, ids, finished), len(ids), stopped)
        self._turns.append((question, self.last.sample.response))
        self._asked += 1
        return self.last

    def _encode(self, question: str) -> list[int]:
        """Tokens of the conversation up to where the model answers the question."""
        turns = [] if self.single_turn else self._turns
        messages = self.conversation.messages(turns[0][0] if turns else question)
        for place, (_, response) in enumerate(turns):
            following = turns[place + 1][0] if place + 1 < len(turns) else question
            messages += [{"role": "assistant", "content": response}, {"role": "user", "content": following}]
        return self.conversation.encode(self.conversation.render(messages, add_generation_prompt=True))

    def _tokens_left(self, used: int) -> int:
        """Tokens that an answer may have after a prompt of `used` tokens."""
        places = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        room = self.sampling.max_new_tokens if places is None else min(self.sampling.max_new_tokens, places - used)
        if room < 1:
            raise UserError(f"the conversation has {used} tokens and the model takes {places}: begin anew with /reset")
        return room

    def _sample(self, prompt: Prompt, ids: list[int], finished: bool) -> Sample:
        return make_sample(
            self.policy.tokenizer,
            prompt.ids,
            ids,
            gold=self.gold,
            tags=self.conversation.tags,
            question=prompt.problem.question,
            finished=finished,
        )


def default_sampling(model: PreTrainedModel, conversation: Conversation) -> Sampling:
    """Sampling by the model's own generation settings, which hold those of training if it was trained here; greedy without."""
    said = model.generation_config
    drawn = {}
    if said is not None and said.do_sample:
        drawn = {
            "temperature": 1.0 if said.temperature is None else float(said.temperature),
            "top_k": said.top_k or 0,
            "top_p": 1.0 if said.top_p is None else float(said.top_p),
        }
    return Sampling(
        max_new_tokens=(said.max_new_tokens if said is not None else None) or DEFAULT_MAX_NEW_TOKENS,
        stop_ids=conversation.stop_ids,
        stop_strings=conversation.stop_strings,
        **({"temperature": 0.0} | drawn),
    )


@dataclass(frozen=True)
class AnswerScore:
    """The grader's or one reward function's score of an answer.

    Attributes:
        source: `grader`, or the function's name.
        status: the verdict (`correct`, `wrong`, `error`, ...), the score, or `does not apply`.
        reason: why, in a line.
    """

    source: str
    status: str
    reason: str


class AnswerScorer:
    """Compares answers with the right one by rule, and scores them with functions, if some are named.

    Args:
        policy: whose tokenizer functions may ask for.
        functions: names, as `--reward_functions` takes them.
        options: keyword arguments by function name.

    Raises:
        UserError: there is no such function.
    """

    def __init__(
        self, policy: Policy, functions: Sequence[str] = (), options: Mapping[str, Mapping[str, Any]] | None = None
    ) -> None:
        rewards = RLVRRewardModel(functions, policy.tokenizer, policy.conversation.tags, options=options)
        self._functions = rewards.rewards.functions

    def score(self, sample: Sample) -> list[AnswerScore]:
        """The grader's verdict, where the right answer is known, and each function's score; a function that raises does not end
        the chat but scores `error`."""
        found = []
        if sample.gold is not None:
            outcome = grade(sample.response, sample.gold, tags=sample.tags, question=sample.question)
            found.append(AnswerScore("grader", outcome.status, _reason(outcome, sample.gold)))
        for function in self._functions:
            (score,) = score_each(function, [sample])
            parts = [f"{part} {value:.4g}" for part, value in score.components.items()]
            if score.outcome is not None and score.outcome.message:
                parts.append(score.outcome.message)
            status = f"{score.value:.4g}" if score.value is not None else "does not apply"
            if score.value is None and score.outcome is not None:
                status = score.outcome.status
            found.append(AnswerScore(function.name, status, ", ".join(parts)))
        return found


def _reason(outcome: Outcome, gold: str) -> str:
    said = f"answer {outcome.answer}" if outcome.answer is not None else "no answer"
    how = f" ({outcome.stage})" if outcome.stage else ""
    return f"{said}, gold {gold}{how}" + (f": {outcome.message}" if outcome.message else "")
