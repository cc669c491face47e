"""The `paged` engine: transformers' continuous batching, whose cache is pages that any request may take.

Worth it on a GPU with FlashAttention, where prompts are many and lengths differ widely. On a CPU it works, slower than
`hf`: every token of a batch meets every cached token of all requests, and a mask hides those of the others.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
import transformers
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from rlvr.core.seeding import derive_seed, seeded
from rlvr.errors import UserError
from rlvr.rollout.decode import ATTENTION, inference
from rlvr.rollout.engine import Engine, Rollout, Sampling, cut_at_stop

if TYPE_CHECKING:
    from rlvr.data.prompts import Prompt

PAGE_TOKENS = 16
BATCH_TOKENS = 2048
"""Prompt tokens read at once on a CPU."""
INSTEAD = "take --engine hf, which works with every causal language model"


class PagedEngine(Engine):
    """Hands all prompts to transformers' `ContinuousBatchingManager`; at most `batch_size` are in work at once.

    Stop strings are cut afterwards: to cancel a request in the middle would make the draws of the others depend on how
    fast the machine is. Autocast does not reach the manager's thread: the model runs in the precision of its weights.
    """

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
        """One response to each prompt, all in one batch.

        Raises:
            UserError: continuous batching does not work for this model; the message has the reason.
        """
        _check_model(model)
        ids = [list(p.ids) for p in prompts]
        with inference(model), seeded("rollout", *seed, first):
            outputs = self._generate(model, ids, sampling, derive_seed("rollout", *seed, first) % 2**31)
        rollouts = [self._rollout(prompt, output, sampling) for prompt, output in zip(ids, outputs, strict=True)]
        self.report(len(prompts), len(prompts), sum(len(r.response_ids) for r in rollouts))
        yield rollouts

    def _generate(self, model: Any, prompts: list[list[int]], sampling: Sampling, seed: int) -> list[Any]:
        """The manager's output for each prompt. Requests are handed in before it starts, so that the batches, and with
        them the draws, don't depend on which came first."""
        manager = model.init_continuous_batching(
            self._generation_config(sampling), _batching_config(model, prompts, sampling, seed)
        )
        names = manager.add_requests(prompts, max_new_tokens=sampling.max_new_tokens)
        outputs: dict[str, Any] = {}
        tokens = 0
        manager.start()
        try:
            while len(outputs) < len(names):
                output = manager.get_result(timeout=0.2)
                if output is not None and output.is_finished():
                    outputs[output.request_id] = output
                    tokens += len(output.generated_tokens)
                    self.report(len(outputs), len(names), tokens)
                elif output is None and not manager.is_running():
                    break
        finally:
            manager.stop(block=True, hard_stop=len(outputs) < len(names))
            manager.destroy()
        missing = [
            outputs[name].error if name in outputs else "no result" for name in names if not _good(outputs, name)
        ]
        if missing:
            reason = manager.background_thread_status.fatal_error or missing[0]
            raise UserError(f"--engine paged failed for {type(model).__name__} ({reason}): {INSTEAD}")
        return [outputs[name] for name in names]

    def _generation_config(self, sampling: Sampling) -> GenerationConfig:
        greedy = sampling.temperature == 0
        arguments: dict[str, Any] = {}
        if not greedy:
            arguments = {"temperature": sampling.temperature, "top_k": sampling.top_k, "top_p": sampling.top_p}
        return GenerationConfig(
            max_new_tokens=sampling.max_new_tokens,
            do_sample=not greedy,
            eos_token_id=list(sampling.stop_ids) or -1,
            pad_token_id=self.tokenizer.pad_token_id or 0,
            **arguments,
        )

    def _rollout(self, prompt: Sequence[int], output: Any, sampling: Sampling) -> Rollout:
        kept, stopped = cut_at_stop(output.generated_tokens, sampling.stop_ids, sampling.stop_strings, self._decode)
        # What the manager calls logprobs are those of the truncated distribution.
        whole = sampling.temperature > 0 and not sampling.top_k and sampling.top_p >= 1
        logprobs = torch.tensor(output.logprobs[: len(kept)]) if whole else None
        return Rollout(torch.tensor(prompt), torch.tensor(kept), "stop" if stopped else "length", logprobs)

    def _decode(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(list(ids), skip_special_tokens=False)


def _good(outputs: dict[str, Any], name: str) -> bool:
    return name in outputs and outputs[name].error is None


def _batching_config(model: PreTrainedModel, prompts: list[list[int]], sampling: Sampling, seed: int) -> Any:
    """On a CPU, pages for the requests in work and no more: the default is a share of the machine's memory."""
    config: dict[str, Any] = {
        "seed": seed,
        "return_logprobs": True,
        "max_requests_per_batch": sampling.batch_size,
        "auto_switch_to_flash": False,
    }
    if model.device.type == "cpu":
        lengths = sorted((len(p) for p in prompts), reverse=True)[: sampling.batch_size]
        pages = sum(-(-(length + sampling.max_new_tokens) // PAGE_TOKENS) + 1 for length in lengths)
        config |= {
            "page_size": PAGE_TOKENS,
            "num_blocks": pages + 1,
            "max_batch_tokens": max(BATCH_TOKENS, len(lengths)),
            "use_async_batching": False,
            "use_cuda_graph": False,
        }
    return transformers.ContinuousBatchingConfig(**config)


def _check_model(model: PreTrainedModel) -> None:
    """Refuse a model whose attention can't read pages."""
    kinds = set(getattr(model.config.get_text_config(), "layer_types", None) or ())
    if kinds <= ATTENTION and getattr(model, "_supports_attention_backend", False):
        return
    name = type(model).__name__
    reason = (
        f"it has {', '.join(sorted(kinds - ATTENTION))} layers" if kinds - ATTENTION else "its attention is its own"
    )
    raise UserError(f"--engine paged: continuous batching does not work for {name} ({reason}); {INSTEAD}")
