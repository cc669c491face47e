"""`Actor`: a causal language model that returns the logprobs of response tokens instead of logits."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from rlvr.core.logprobs import chunked_logprobs, selected_logprobs
from rlvr.models.backbone import at_responses, hidden_states, model_inputs, scatter_responses
from rlvr.models.batch import SequenceBatch, collate
from rlvr.models.packed import can_pack, computes_again


class ActorOutput(NamedTuple):
    """Per response token, float32, zero where there is none."""

    logprobs: Tensor
    """[B, R] log-probability of each response token."""
    entropy: Tensor
    """[B, R] entropy, in nats, of the distribution that the token was drawn from."""


class Actor(nn.Module):
    """Wraps a transformers causal LM; a module, so that any Booster plugin can wrap it in turn.

    Hidden states are projected to the vocabulary at response positions only, chunk by chunk, and recomputed in the
    backward pass: no [B, T, V] tensor is kept (pitfall A36). Models whose head is more than a matrix (soft caps,
    scales that we don't know) are found out by comparing once with the model's own logits, and then use those.

    Args:
        model: the causal LM.
        chunk_tokens: response tokens projected at once.
    """

    def __init__(self, model: PreTrainedModel, chunk_tokens: int = 1024) -> None:
        super().__init__()
        self.model = model
        self.chunk_tokens = chunk_tokens
        self._softcap: float | None = getattr(model.config, "final_logit_softcapping", None)
        self._can_pack = False
        self._plain_head = self._head_is_plain()
        self._can_pack = self._plain_head and can_pack(self._backbone)

    @property
    def packs(self) -> bool:
        """Whether batches run without padding."""
        return self._can_pack and not computes_again(self._backbone)

    def forward(self, batch: SequenceBatch, temperature: float = 1.0, with_entropy: bool = True) -> ActorOutput:
        """Logprobs and entropies of the response tokens at this sampling temperature.

        `with_entropy` False leaves the entropies 0 and saves two passes over the vocabulary.
        """
        targets = batch.response_ids[batch.response_mask]
        if self._plain_head:
            states = at_responses(hidden_states(self._backbone, batch, self.packs), batch)
            head: Any = self.model.get_output_embeddings()
            logprobs, entropy = chunked_logprobs(
                states,
                head.weight,
                targets,
                bias=getattr(head, "bias", None),
                temperature=temperature,
                softcap=self._softcap,
                chunk_tokens=self.chunk_tokens,
                with_entropy=with_entropy,
            )
        else:
            logits = self.model(**model_inputs(self.model, batch), use_cache=False).logits
            logprobs, entropy = selected_logprobs(at_responses(logits, batch), targets, temperature)
        return ActorOutput(scatter_responses(logprobs, batch), scatter_responses(entropy, batch))

    @property
    def _backbone(self) -> nn.Module:
        return self.model.base_model

    @torch.no_grad()
    def _head_is_plain(self) -> bool:
        """Whether backbone, head matrix and soft cap give the model's own logprobs, on four tokens."""
        head = self.model.get_output_embeddings()
        if head is None or self._backbone is self.model or not isinstance(head, nn.Linear):
            return False
        device = next(self.model.parameters()).device
        ids = torch.arange(4) % self.model.config.get_text_config().vocab_size
        batch = collate([ids[:1]], [ids[1:]]).to(device)
        was_training = self.model.training
        self.model.eval()
        results = []
        for self._plain_head in (True, False):
            results.append(self.forward(batch).logprobs)
        self.model.train(was_training)
        return bool(torch.allclose(results[0], results[1], atol=1e-2, rtol=1e-3))

    def state_dict_of_model(self) -> Mapping[str, Tensor]:
        """The language model's own state dict, as transformers saves it."""
        return self.model.state_dict()
