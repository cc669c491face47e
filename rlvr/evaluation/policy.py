"""`Policy`: a model opened by name to be asked questions, by `rlvr eval` and `rlvr chat`: tokenizer, template, engine, weights.

The weights are loaded last (`load`), so that a mistake in template, data or reward functions is told at once.
"""

from dataclasses import dataclass

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rewards import RewardFunction
from rlvr.boost.plugins import resolve_precision
from rlvr.models.loading import load_causal_lm, load_tokenizer
from rlvr.prompting.conversation import Conversation, choose_template
from rlvr.rollout.engine import Engine
from rlvr.rollout.episodes import MAX_TURNS, play
from rlvr.rollout.registry import make_engine


@dataclass(frozen=True)
class Policy:
    """A model's tokenizer, template and engine.

    Attributes:
        name: `tiny`, `smollm2-135m`, a run's folder, a model's folder, or a hub name.
        tokenizer: the model's.
        conversation: the template that it was trained with, if that is known, bound to the tokenizer.
        engine: samples responses.
        device: where the weights go.
        trust_remote_code: whether code that comes with a hub model is run.
    """

    name: str
    tokenizer: PreTrainedTokenizerBase
    conversation: Conversation
    engine: Engine
    device: torch.device
    trust_remote_code: bool = False

    @classmethod
    def open(
        cls,
        name: str,
        device: torch.device,
        *,
        template: str = "auto",
        engine: str = "hf",
        environment: RewardFunction | None = None,
        max_turns: int = MAX_TURNS,
        mixed_precision: str = "auto",
        trust_remote_code: bool = False,
    ) -> "Policy":
        """Load everything but the weights. With an environment a response is an episode of at most `max_turns`.

        Raises:
            UserError: a model, template, engine or environment that can't be used.
        """
        tokenizer = load_tokenizer(name, trust_remote_code)
        conversation = Conversation(choose_template(template, tokenizer), tokenizer)
        made = play(make_engine(engine, tokenizer), conversation, environment, max_turns)
        made.autocast = resolve_precision(mixed_precision, device) == "bf16"
        return cls(name, tokenizer, conversation, made, device, trust_remote_code)

    def load(self) -> PreTrainedModel:
        """The weights, on the device, ready to answer.

        Raises:
            UserError: they can't be loaded.
        """
        return load_causal_lm(self.name, trust_remote_code=self.trust_remote_code).to(self.device).eval()
