"""`Actor`: a causal language model that returns the logprobs of response tokens instead of logits.

In a training step it runs twice: under `torch.no_grad` for the old logprobs of what was sampled (`rlvr.experience`), and
with gradients for the policy loss (`rlvr.trainer.ppo_update`). `ActorWithValues` gives the critic's values as well.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from rlvr.core.logprobs import TokenStatistics, chunked_logprobs, selected_logprobs
from rlvr.core.masked import at_least_float32
from rlvr.errors import UserError
from rlvr.models.backbone import (
    DTYPE_ARGUMENT,
    at_responses,
    check_whole,
    hidden_states,
    model_inputs,
    scatter_responses,
)
from rlvr.models.batch import SequenceBatch, collate
from rlvr.models.role import Role
from rlvr.models.value_head import HEAD_FILE, ValueHead, check_head

CHUNK_TOKENS = 1024
"""Response tokens that are projected to the vocabulary at once."""


class ActorOutput(NamedTuple):
    """Of each response token, float32 (float64 of a float64 model), zero where there is none."""

    logprobs: Tensor
    """[B, R] log-probability of each response token."""
    entropy: Tensor
    """[B, R] entropy, in nats, of the distribution that the token was drawn from."""
    values: Tensor | None = None
    """[B, R] V(s_t), the state before response token t; None from an actor without a value head."""
    last_values: Tensor | None = None
    """[B] the value after the last token; None likewise."""
    squared_probs: Tensor | None = None
    """[B, R] sum over the vocabulary of squared probabilities, without gradient; None where it was not asked for."""


class Float32Head(nn.Linear):
    """A head that multiplies in float32 whatever the rest of the model runs in, under autocast too.

    bf16 rounds logits to 8 bits, so that the engine that samples and the trainer differ by whole per cents in the probability of a
    token (MiniMax-M1, arXiv:2506.13585, sec. 3.2). It has the weights and names of the `nn.Linear` that it replaces.
    """

    def forward(self, hidden: Tensor) -> Tensor:
        """Logits, [..., V] in float32."""
        bias = None if self.bias is None else at_least_float32(self.bias)
        with torch.autocast(hidden.device.type, enabled=False):
            return F.linear(at_least_float32(hidden), at_least_float32(self.weight), bias)


def use_float32_head(model: PreTrainedModel) -> PreTrainedModel:
    """Make the model's head one of those; returns the model.

    Raises:
        UserError: its head is not a matrix of its own.
    """
    head = model.get_output_embeddings()
    if type(head) is not nn.Linear:
        raise UserError(f"--float32_head: the model's head is no plain matrix, but {type(head).__name__}; leave it out")
    head.__class__ = Float32Head
    return model


def _as_it_is(weight: Tensor) -> Tensor:
    return weight


def _laid_out(found: TokenStatistics, batch: SequenceBatch) -> ActorOutput:
    """[N] statistics of the response tokens at their places in [B, R]."""
    placed = {name: scatter_responses(tensor, batch) for name, tensor in found._asdict().items() if tensor is not None}
    return ActorOutput(**placed)


class Actor(Role):
    """Wraps a transformers causal LM.

    Hidden states are projected to the vocabulary at response positions only, chunk by chunk, and logits are recomputed in
    the backward pass: no [B, T, V] tensor is kept (pitfall A36). Models whose head is more than a matrix (scales and caps
    that we don't know) are found out by comparing once with the model's own logits, and then use those.

    Args:
        model: the causal LM.
        chunk_tokens: response tokens projected at once.
    """

    gives_values = False

    def __init__(self, model: PreTrainedModel, chunk_tokens: int = CHUNK_TOKENS) -> None:
        super().__init__()
        self.model = model
        self.chunk_tokens = chunk_tokens
        self.gather_head: Callable[[Tensor], Tensor] = (
            _as_it_is  # tensor parallelism, which cuts the head, sets another
        )
        self._softcap: float | None = getattr(model.config, "final_logit_softcapping", None)
        self._plain_head = self._head_is_plain()
        if self._plain_head:
            self._try_padding_free()

    @property
    def pretrained(self) -> PreTrainedModel:
        return self.model

    @property
    def has_plain_head(self) -> bool:
        """True if the head is a matrix and nothing else that we don't know, so that `read` gives what `forward` does."""
        return self._plain_head

    def forward(
        self,
        batch: SequenceBatch,
        temperature: float = 1.0,
        with_entropy: bool = True,
        with_squared_probs: bool = False,
    ) -> ActorOutput:
        """Logprobs and entropies of the response tokens at this sampling temperature.

        `with_entropy` False leaves the entropies 0 and saves two passes over the vocabulary; `with_squared_probs` takes two more.
        """
        return self._read(batch, temperature, with_entropy, with_squared_probs)[0]

    def _read(
        self, batch: SequenceBatch, temperature: float, with_entropy: bool, with_squared_probs: bool
    ) -> tuple[ActorOutput, Tensor]:
        """The output without values, and the [B, T, H] hidden states that it comes from."""
        if self._plain_head:
            hidden = hidden_states(self.decoder, batch, self.packs)
            return Actor.read(self, hidden, batch, temperature, with_entropy, with_squared_probs), hidden
        targets = batch.response_ids[batch.response_mask]  # [N]
        out = self.model(**model_inputs(self.model, batch), use_cache=False, output_hidden_states=self.gives_values)
        hidden = out.hidden_states[-1] if self.gives_values else out.logits  # not read without a value head
        logits = at_responses(out.logits, batch)
        found = selected_logprobs(logits, targets, temperature, with_squared_probs=with_squared_probs)
        return _laid_out(found, batch), hidden

    def read(
        self,
        hidden: Tensor,
        batch: SequenceBatch,
        temperature: float = 1.0,
        with_entropy: bool = True,
        with_squared_probs: bool = False,
    ) -> ActorOutput:
        """`forward` from the decoder's [B, T, H] states on, for heads that are a matrix (`has_plain_head`)."""
        weight, bias = self.head()
        found = chunked_logprobs(
            at_responses(hidden, batch),  # [N, H]
            weight,  # [V, H]
            batch.response_ids[batch.response_mask],  # [N]
            bias=bias,
            temperature=temperature,
            softcap=self._softcap,
            chunk_tokens=self.chunk_tokens,
            with_entropy=with_entropy,
            with_squared_probs=with_squared_probs,
            float32=isinstance(self.model.get_output_embeddings(), Float32Head),
        )
        return _laid_out(found, batch)

    def head(self) -> tuple[Tensor, Tensor | None]:
        """The head's [V, H] matrix and its [V] bias, if it has one."""
        head: Any = self.model.get_output_embeddings()
        return self.gather_head(head.weight), None if head.bias is None else self.gather_head(head.bias)

    @torch.no_grad()
    def _head_is_plain(self) -> bool:
        """True if backbone, head matrix and soft cap give the model's own logprobs, tried on four tokens."""
        head = self.model.get_output_embeddings()
        if head is None or self.decoder is self.model or not isinstance(head, nn.Linear):
            return False
        device = next(self.model.parameters()).device
        ids = torch.arange(4) % self.model.config.get_text_config().vocab_size
        batch = collate([ids[:1]], [ids[1:]]).to(device)
        was_training = self.model.training
        self.model.eval()
        results = []
        for self._plain_head in (True, False):  # which `_read` goes by
            results.append(Actor.forward(self, batch).logprobs)
        self.model.train(was_training)
        # Loose, for models in bfloat16: an unknown scale or cap is off by far more.
        return bool(torch.allclose(results[0], results[1], atol=1e-2, rtol=1e-3))

    @staticmethod
    def saved_state(folder: str | Path) -> dict[str, Tensor]:
        """The state dict of what `save_pretrained` wrote.

        Raises:
            UserError: the folder holds no whole causal language model.
        """
        arguments = {DTYPE_ARGUMENT: torch.float32, "output_loading_info": True}
        try:
            model, info = AutoModelForCausalLM.from_pretrained(folder, **arguments)
        except (OSError, ValueError) as error:
            raise UserError(f"{folder} holds no causal language model: {str(error).strip().splitlines()[0]}") from None
        check_whole(info, str(folder))
        return {f"model.{name}": tensor for name, tensor in model.state_dict().items()}


class ActorWithValues(Actor):
    """An actor with a value head on its own trunk: one forward pass gives logprobs and values, and there is no critic.

    Args:
        model: the causal LM.
        seed: of the head's weights.
        chunk_tokens: response tokens projected at once.
    """

    gives_values = True

    def __init__(self, model: PreTrainedModel, seed: int = 0, chunk_tokens: int = CHUNK_TOKENS) -> None:
        super().__init__(model, chunk_tokens)
        self.value_head = ValueHead(model.config.get_text_config().hidden_size, seed)

    def forward(
        self,
        batch: SequenceBatch,
        temperature: float = 1.0,
        with_entropy: bool = True,
        with_squared_probs: bool = False,
    ) -> ActorOutput:
        """Logprobs, entropies and values of the response tokens."""
        return self._with_values(*self._read(batch, temperature, with_entropy, with_squared_probs), batch)

    def read(
        self,
        hidden: Tensor,
        batch: SequenceBatch,
        temperature: float = 1.0,
        with_entropy: bool = True,
        with_squared_probs: bool = False,
    ) -> ActorOutput:
        """`forward` from the decoder's [B, T, H] states on."""
        return self._with_values(
            super().read(hidden, batch, temperature, with_entropy, with_squared_probs), hidden, batch
        )

    def _with_values(self, out: ActorOutput, hidden: Tensor, batch: SequenceBatch) -> ActorOutput:
        values = self.value_head.read(hidden, batch)
        return out._replace(values=values.values, last_values=values.last_values)

    def _save_extras(self, folder: Path) -> None:
        self.value_head.save(folder)

    def _load_extras(self, folder: Path) -> None:
        self.value_head.load(folder)

    @staticmethod
    def saved_state(folder: str | Path) -> dict[str, Tensor]:
        """The state dict of what `save_pretrained` wrote.

        Raises:
            UserError: the folder holds no causal language model, or no value head.
        """
        check_head(folder)
        head = {f"value_head.{name}": tensor for name, tensor in load_file(Path(folder) / HEAD_FILE).items()}
        return Actor.saved_state(folder) | head
