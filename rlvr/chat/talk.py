"""`Talk`: a conversation with a model. It knows nothing of terminals."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from transformers import PreTrainedModel

from rewards import Sample
from rlvr.chat.stream import TextStream
from rlvr.conversation import Conversation
from rlvr.data.problem import Problem
from rlvr.data.prompts import Prompt
from rlvr.errors import UserError
from rlvr.policy import Policy
from rlvr.rewarding import make_sample
from rlvr.rollout.engine import Sampling

MAX_NEW_TOKENS = 512
"""Where neither the user nor the model says how long a response may be."""


@dataclass(frozen=True)
class Answer:
    """A response.

    Attributes:
        sample: as reward functions see it.
        tokens: how many it has.
        stopped: whether the user stopped it; else `sample.finished` tells whether it ended by itself.
    """

    sample: Sample
    tokens: int
    stopped: bool = False


class Talk:
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

    def instruct(self, system: str) -> None:
        """Take another system message; "" = none. What was said is forgotten.

        Raises:
            UserError: the chat template can't be rendered with it.
        """
        template = replace(self.conversation.template, system_message=system)
        self.conversation = Conversation(template, self.policy.tokenizer)
        self.reset()

    def begins_thinking(self) -> bool:
        """Whether the template's prompts end in the opening tag of the thinking."""
        return self.conversation.prompt_text("?").rstrip().endswith(self.conversation.tags.think_start.text)

    def ask(self, question: str, on_text: Callable[[str], None] = lambda text: None) -> Answer:
        """The model's answer. `on_text` gets its text piece by piece, as it is generated; Ctrl-C stops it.

        Raises:
            UserError: the conversation leaves no room for an answer.
        """
        prompt = Prompt(Problem("chat", question, self.gold), tuple(self._encode(question)))
        sampling = replace(self.sampling, max_new_tokens=self._room(len(prompt.ids)))
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

    def _room(self, used: int) -> int:
        """Tokens that an answer may have."""
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
    """As the model's generation settings say, which hold what it was trained with if it was trained here; greedy without."""
    said = model.generation_config
    drawn = {}
    if said is not None and said.do_sample:
        drawn = {
            "temperature": 1.0 if said.temperature is None else float(said.temperature),
            "top_k": said.top_k or 0,
            "top_p": 1.0 if said.top_p is None else float(said.top_p),
        }
    return Sampling(
        max_new_tokens=(said.max_new_tokens if said is not None else None) or MAX_NEW_TOKENS,
        stop_ids=conversation.stop_ids,
        stop_strings=conversation.stop_strings,
        **({"temperature": 0.0} | drawn),
    )
