"""LoRA adapters put into transformers models, switched off, and merged (files: `rlvr.models.adapter_files`).

Adapters are put into the model itself (peft's `inject_adapter_in_model`): it stays the transformers class that it was, so
that generation, the actor's head and the Boosters need not know of them.
Source: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", arXiv:2106.09685.
"""

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from itertools import chain
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from rlvr.errors import UserError
from rlvr.models.lora_settings import LoraSettings, import_peft
from rlvr.seeding import seeded

ADAPTER = "default"
"""The adapter that learns, by peft's name for the only one."""
START = "start"
"""A frozen copy of the adapter that a run starts from, if it starts from one."""
SAMPLED = 64
M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True)
class Base:
    """Which model an adapter belongs to."""

    name: str
    fingerprint: str


def apply_lora(model: PreTrainedModel, settings: LoraSettings, seed: int = 0) -> PreTrainedModel:
    """Freeze the model and put adapters into it, which change nothing yet. Returns the model.

    A decoder (a model without head) takes the settings of the whole model: what they say of the head is left out.

    Args:
        model: a causal LM, classifier or decoder; its own weights may be shared with other models.
        settings: what is adapted.
        seed: of the adapters' first weights.

    Raises:
        UserError: a target matches nothing; the message lists what there is.
    """
    peft = import_peft()
    model.lora_base = base_of(model)
    chosen = _for_decoder(model, settings) if model.base_model is model else settings
    _check_targets(model, chosen)
    config = peft.LoraConfig(task_type=_task(model), base_model_name_or_path=model.lora_base.name, **chosen.arguments())
    _inject(model, config, ADAPTER, seed)
    _refuse_tied(model)
    return model


def _task(model: PreTrainedModel) -> str:
    """How peft's automatic classes are to load the base."""
    if model.base_model is model:
        return "FEATURE_EXTRACTION"
    return "SEQ_CLS" if model.get_output_embeddings() is None else "CAUSAL_LM"


def _inject(model: PreTrainedModel, config: Any, name: str, seed: int) -> None:
    try:
        with seeded("lora", seed), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a second adapter, and of transposed layers, which it sees to itself
            import_peft().inject_adapter_in_model(config, model, adapter_name=name)
    except ValueError as error:
        raise UserError(f"LoRA does not fit {type(model).__name__}: {error} Modules: {_listed(model)}") from None


def keep_start(model: PreTrainedModel) -> None:
    """Keep the adapter as it is now as the policy that `adapter_off` goes back to (and not to the plain base model)."""
    _inject(model, deepcopy(model.peft_config[ADAPTER]), START, 0)
    state = model.state_dict()
    for name, tensor in state.items():
        if (name_of_start := re.sub(rf"\.{ADAPTER}(?=\.|$)", f".{START}", name)) != name:
            state[name_of_start].copy_(tensor)
    _activate(model, ADAPTER)


def _activate(model: nn.Module, name: str) -> None:
    for layer in _layers(model):
        layer.set_adapter(name)


def _enable(model: nn.Module, enabled: bool) -> None:
    for layer in _layers(model):
        layer.enable_adapters(enabled)


def has_adapter(model: nn.Module) -> bool:
    """Whether the model has LoRA adapters."""
    return hasattr(model, "peft_config")


@contextmanager
def adapter_off(model: Any) -> Iterator[None]:
    """Within the block the model is what it was when training began: the base model or, where the run started from an
    adapter, the base model with that one. Not for forward passes that are differentiated."""
    if START in model.peft_config:
        on, off = partial(_activate, model, ADAPTER), partial(_activate, model, START)
    else:
        on, off = partial(_enable, model, True), partial(_enable, model, False)
    off()
    try:
        yield
    finally:
        on()


def _layers(model: nn.Module) -> list[Any]:
    """The modules that adapters were put into, and those that are trained whole (`modules_to_save`)."""
    from peft.tuners.tuners_utils import BaseTunerLayer
    from peft.utils import ModulesToSaveWrapper

    return [m for m in model.modules() if isinstance(m, BaseTunerLayer | ModulesToSaveWrapper)]


def copy_sharing(model: M) -> M:
    """A copy of the modules whose weights and buffers are the same tensors: what one adds to the copy is its own."""
    return deepcopy(model, {id(tensor): tensor for tensor in chain(model.parameters(), model.buffers())})


def merged_copy(model: PreTrainedModel) -> PreTrainedModel:
    """The model with its adapters added into its weights, in float32; weights that have no adapter are shared.

    Float32, because in a lower precision an adapter's small changes would be rounded away.
    """
    share = all(p.dtype == torch.float32 for p in model.parameters())
    plain: Any = copy_sharing(model) if share else deepcopy(model).float()
    for name, module in _merged(plain):
        plain.set_submodule(name, module)
    del plain.peft_config
    return plain


def merged_parameters(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Names and values of the parameters as the model without adapters would have them, one at a time. On a plain model:
    its own."""
    if not has_adapter(model):
        yield from model.named_parameters()
        return
    layers = set(map(id, _layers(model)))
    inside = tuple(f"{name}." for name, module in model.named_modules() if id(module) in layers)
    yield from ((name, p) for name, p in model.named_parameters() if not name.startswith(inside))
    for name, module in _merged(model):
        yield from ((f"{name}.{own}", p) for own, p in module.named_parameters())


def _merged(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Each adapted module by name, as a plain one with the adapter merged; the model stays as it is."""
    layers = set(map(id, _layers(model)))
    for name, module in list(model.named_modules()):
        if id(module) in layers:
            own: Any = deepcopy(module)
            if hasattr(own, "merge"):
                own.float().merge(adapter_names=[ADAPTER])
                yield name, own.get_base_layer()
            else:
                yield name, own.modules_to_save[ADAPTER]


def base_of(model: Any) -> Base:
    """Name and fingerprint of the model without adapters: enough to tell another model, even of the same shape."""
    if hasattr(model, "lora_base"):
        return model.lora_base
    digest = blake2b(digest_size=12)
    for name, tensor in model.named_parameters():
        if "lora_" in name or "modules_to_save" in name:
            continue
        flat = tensor.detach().flatten()
        # In integers: float32 can't count the elements of an embedding.
        places = torch.arange(min(SAMPLED, flat.numel()), device=flat.device) * (flat.numel() - 1) // (SAMPLED - 1)
        digest.update(f"{list(tensor.shape)}".encode())
        digest.update(flat[places].float().cpu().numpy().tobytes())
    return Base(str(getattr(model.config, "_name_or_path", "")), digest.hexdigest())


def _adaptable(model: nn.Module) -> list[str]:
    return [name for name, module in model.named_modules() if isinstance(module, nn.Linear | Conv1D | nn.Embedding)]


def _listed(model: nn.Module) -> str:
    """The last parts of the names of modules that can be adapted."""
    return ", ".join(sorted({name.rpartition(".")[2] for name in _adaptable(model)}))


def _matching(wanted: str, names: Sequence[str], regex: bool) -> list[str]:
    """The names that peft would adapt: a list's entry is a name or its end, a single string is a regular expression."""
    if not regex:
        return [name for name in names if name == wanted or name.endswith(f".{wanted}")]
    try:
        return [name for name in names if re.fullmatch(wanted, name)]
    except re.error as error:
        raise UserError(f"LoRA's target_modules {wanted!r} is no regular expression: {error}") from None


def _check_targets(model: nn.Module, settings: LoraSettings) -> None:
    adaptable, every = _adaptable(model), [name for name, _ in model.named_modules()]
    for key, names in (("target_modules", adaptable), ("exclude_modules", every), ("modules_to_save", every)):
        given = getattr(settings, key)
        if given is None or given == "all-linear":
            continue
        for wanted in [given] if isinstance(given, str) else given:
            if not _matching(wanted, names, isinstance(given, str)):
                raise UserError(
                    f"LoRA's {key}: {wanted!r} matches nothing in {type(model).__name__}, whose modules are named "
                    f"{_listed(model)}"
                )


def _for_decoder(model: PreTrainedModel, settings: LoraSettings) -> LoraSettings:
    """Settings of a whole model for its decoder, whose modules have shorter names: what they say of the head is left out."""
    changes: dict[str, Any] = {}
    for key in ("target_modules", "exclude_modules", "modules_to_save"):
        given = getattr(settings, key)
        if given is None or given == "all-linear":
            continue
        entries = [given] if isinstance(given, str) else given
        names = _adaptable(model) if key == "target_modules" else [name for name, _ in model.named_modules()]
        whole = {name: [name, f"{model.base_model_prefix}.{name}"] for name in names}
        found = [n for n in names if any(_matching(entry, whole[n], isinstance(given, str)) for entry in entries)]
        changes[key] = found or None
    if settings.target_modules is not None and not changes.get("target_modules", True):
        raise UserError(
            f"LoRA's target_modules {settings.target_modules!r} match nothing in {type(model).__name__}, whose modules are "
            f"named {_listed(model)}"
        )
    return replace(settings, **changes)


def _refuse_tied(model: Any) -> None:
    """An embedding that is the head's matrix as well can't be adapted alone: the merged model would be another."""
    head = model.get_output_embeddings()
    if head is None or not getattr(model.config.get_text_config(), "tie_word_embeddings", False):
        return
    if any(layer in (model.get_input_embeddings(), head) for layer in _layers(model)):
        raise UserError(
            f"LoRA can't adapt the embeddings or the head of {type(model).__name__}, which are one tied matrix: leave them "
            "out of target_modules and modules_to_save"
        )
