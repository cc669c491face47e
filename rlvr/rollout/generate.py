"""Generation with transformers' `generate`: works for every causal LM, on every device, and is the slow oracle of `hf`."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from rlvr.core.seeding import seeded
from rlvr.rollout.decode import inference
from rlvr.rollout.engine import Engine, Rollout, Sampling, cut_at_stop

if TYPE_CHECKING:
    from rlvr.data.prompts import Prompt


class GenerateEngine(Engine):
    """Samples with `model.generate` on left-padded prompts, and returns ragged responses."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer

    def stream(
        self,
        model: PreTrainedModel,
        prompts: Sequence["Prompt"],
        sampling: Sampling,
        seed: Sequence[int | str],
        first: int = 0,
    ) -> Iterator[list[Rollout]]:
        """One response to each prompt, `sampling.batch_size` at a time."""
        tokens = 0
        for start in range(0, len(prompts), sampling.batch_size):
            ids = [torch.tensor(p.ids) for p in prompts[start : start + sampling.batch_size]]
            with seeded("rollout", *seed, first + start), _clean_defaults(model):
                responses = self._sample(model, ids, sampling)
            rollouts = [self._rollout(p, r, sampling) for p, r in zip(ids, responses, strict=True)]
            tokens += sum(len(r.response_ids) for r in rollouts)
            self.report(start + len(ids), len(prompts), tokens)
            yield rollouts

    def _rollout(self, prompt: Tensor, response: Sequence[int], sampling: Sampling) -> Rollout:
        kept, stopped = cut_at_stop(response, sampling.stop_ids, sampling.stop_strings, self._decode)
        return Rollout(prompt, torch.tensor(kept), "stop" if stopped else "length")

    def _decode(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(list(ids), skip_special_tokens=False)

    def _sample(self, model: PreTrainedModel, prompts: Sequence[Tensor], sampling: Sampling) -> list[list[int]]:
        device = next(model.parameters()).device
        ids, mask = _pad_left(prompts, self.tokenizer.pad_token_id or 0)
        stops: dict[str, Any] = {}
        if sampling.stop_strings:
            stops = {"stop_strings": list(sampling.stop_strings), "tokenizer": self.tokenizer}
        autocast = self.autocast and next(model.parameters()).dtype == torch.float32
        with inference(model, autocast):
            out = model.generate(
                ids.to(device),
                attention_mask=mask.to(device),
                generation_config=self._generation_config(sampling),
                **stops,
            )
        return out[:, ids.size(1) :].tolist()

    def _generation_config(self, sampling: Sampling) -> GenerationConfig:
        greedy = sampling.temperature == 0
        arguments: dict[str, Any] = (
            {}
            if greedy
            else {
                "temperature": sampling.temperature,
                "top_k": sampling.top_k,
                "top_p": sampling.top_p,
            }
        )
        return GenerationConfig(
            max_new_tokens=sampling.max_new_tokens,
            do_sample=not greedy,
            eos_token_id=list(sampling.stop_ids) or None,
            pad_token_id=self.tokenizer.pad_token_id or 0,
            bos_token_id=self.tokenizer.bos_token_id,
            **arguments,
        )


def _pad_left(prompts: Sequence[Tensor], pad_id: int) -> tuple[Tensor, Tensor]:
    size = max(len(p) for p in prompts)
    ids = torch.full((len(prompts), size), pad_id)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, size - len(prompt) :] = prompt
        mask[row, size - len(prompt) :] = 1
    return ids, mask


@contextmanager
def _clean_defaults(model: PreTrainedModel) -> Iterator[None]:
    """Hide the model's own generation defaults (top-k, repetition penalty, ...), which would be merged in silently:
    sampled responses must come from the distribution whose logprobs are trained."""
    saved, model.generation_config = model.generation_config, GenerationConfig()
    try:
        yield
    finally:
        model.generation_config = saved
