"""LoRA adapters in transformers models: put in, switched off, merged, saved and loaded.

Adapters are put into the model itself (peft's `inject_adapter_in_model`): it stays the transformers class that it was, so
that generation, the actor's head and the Boosters need not know of them. peft's `PeftModel`, a wrapper with other names
for everything, is left out on purpose. Settings of adapters: `rlvr.models.lora_config`.
Source: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", arXiv:2106.09685.
"""

import json
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy, deepcopy
from dataclasses import asdict, replace
from functools import partial
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from rlvr.core.seeding import seeded
from rlvr.errors import UserError
from rlvr.models.lora_config import (
    BASE,
    Base,
    LoraSettings,
    import_peft,
    is_adapter,
    parse_lora_settings,
    read_adapter_config,
    read_base,
)
from rlvr.models.quantized import NF4, Linear4bit, quantize

ADAPTER = "default"
"""The adapter that learns, by peft's name for the only one."""
START = "start"
"""A frozen copy of the adapter that a run starts from, if it starts from one."""
SAMPLED = 64
"""Numbers of each weight that go into a base model's fingerprint."""
M = TypeVar("M", bound=nn.Module)


def quantize_base(model: PreTrainedModel) -> None:
    """Hold the model's decoder in 4 bits, to put adapters over it.

    Raises:
        UserError: it can't be, or bitsandbytes is missing.
    """
    # Of the weights as they were read: rounding follows from them.
    base, of_decoder = base_of(model), base_of(model.base_model)
    model.lora_base = replace(base, quantization=NF4)
    model.base_model.lora_base = replace(of_decoder, quantization=NF4)
    quantize(model)


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
    _refuse_rounded(model)
    return model


def _task(model: PreTrainedModel) -> str:
    """The task by which peft's automatic classes choose how to load the base."""
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
    """True if the model has LoRA adapters."""
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
    for name, module in list(_outermost(plain)):
        plain.set_submodule(name, _as_plain(module))
    del plain.peft_config
    return plain


def merged_parameters(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Names and values of the parameters as the model without adapters would have them, one at a time. On a plain model:
    its own."""
    if not has_adapter(model):
        yield from model.named_parameters()
        return
    changed = list(_outermost(model))
    inside = tuple(f"{name}." for name, _ in changed)
    yield from ((name, p) for name, p in model.named_parameters() if not name.startswith(inside))
    for name, module in changed:
        yield from ((f"{name}.{own}", p) for own, p in _as_plain(module).named_parameters())


def _outermost(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The modules by name that are adapted, trained whole, or in 4 bits; none that lies inside another of them."""
    layers = set(map(id, _layers(model)))
    found = None
    for name, module in model.named_modules():  # each before those inside it
        if found is not None and name.startswith(found):
            continue
        if id(module) in layers or isinstance(module, Linear4bit):
            found = f"{name}."
            yield name, module


def _as_plain(module: nn.Module) -> nn.Module:
    """Such a module as a plain one, with the adapter merged; it stays as it is."""
    if isinstance(module, Linear4bit):
        return module.plain()
    own: Any = deepcopy(module)
    if not hasattr(own, "merge"):
        return own.modules_to_save[ADAPTER]
    if isinstance(own.base_layer, Linear4bit):
        own.base_layer = own.base_layer.plain()
    own.float().merge(adapter_names=[ADAPTER])
    return own.get_base_layer()


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


# Settings against the modules that a model has.


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


def _refuse_rounded(model: nn.Module) -> None:
    """A layer that is trained whole can't be one whose weights are in 4 bits."""
    for name, module in model.named_modules():
        if "modules_to_save" in name and isinstance(module, Linear4bit):
            layer = name.partition(".modules_to_save")[0]
            raise UserError(
                f"LoRA's modules_to_save would train {layer} whole, whose weights --load_in_4bit rounds to 4 bits, which can't learn: "
                "name it among target_modules instead, or leave --load_in_4bit out"
            )


# On disk: whole models as `from_pretrained` reads them, adapters as peft's `PeftModel` does.

WEIGHTS = "adapter_model.safetensors"
_PREFIX = "base_model.model."


def save_model(model: PreTrainedModel, folder: str | Path) -> None:
    """Write a plain model; adapters are merged into it."""
    (merged_copy(model) if has_adapter(model) else model).save_pretrained(folder)


def save_adapter(model: PreTrainedModel, folder: str | Path) -> None:
    """Write the adapter alone (`PeftModel.from_pretrained(base, folder)` reads it), and which base it belongs to."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = copy(model.peft_config[ADAPTER])
    config.inference_mode = True
    config.save_pretrained(folder)
    tensors = {_PREFIX + name: tensor.contiguous().cpu() for name, tensor in _tensors(model).items()}
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    (folder / BASE).write_text(json.dumps(asdict(base_of(model)), indent=1))


def load_adapter(model: PreTrainedModel, folder: str | Path) -> None:
    """Put the weights of a saved adapter into the model's own.

    Raises:
        UserError: it is damaged, belongs to another base model, or has other modules or sizes.
    """
    from peft import set_peft_model_state_dict

    folder = Path(folder)
    _check_base(model, folder)
    try:
        tensors = {name.removeprefix(_PREFIX): t for name, t in load_file(folder / WEIGHTS).items()}
    except (OSError, SafetensorError) as error:
        raise UserError(f"the adapter {folder} can't be read: {error}") from None
    own = _tensors(model)
    wrong = [n for n in sorted(own.keys() | tensors.keys()) if _shape(own.get(n)) != _shape(tensors.get(n))]
    if wrong:
        raise UserError(
            f"the adapter {folder} does not fit {type(model).__name__} with these LoRA settings: {', '.join(wrong[:3])}"
        )
    set_peft_model_state_dict(model, tensors, adapter_name=ADAPTER)


def _tensors(model: PreTrainedModel) -> dict[str, Tensor]:
    """The adapter's tensors under peft's names, which leave out the adapter's own."""
    from peft import get_peft_model_state_dict

    return get_peft_model_state_dict(model, adapter_name=ADAPTER, save_embedding_layers=False)


def _shape(tensor: Tensor | None) -> torch.Size | None:
    return None if tensor is None else tensor.shape


def _check_base(model: PreTrainedModel, folder: Path) -> None:
    """Adapters that others wrote don't say to which weights they belong, and are believed."""
    saved, base = read_base(folder), base_of(model)
    if saved is None:
        return
    if saved.quantization != base.quantization:
        held, remedy = ("in 4 bits", "give") if saved.quantization else ("whole", "leave out")
        raise UserError(
            f"the adapter {folder} was trained over a base model whose weights were {held}, and corrects that one: {remedy} --load_in_4bit"
        )
    if saved.fingerprint != base.fingerprint:
        raise UserError(
            f"the adapter {folder} was trained on another base model ({saved.name}) than {base.name}: give that one as --pretrain"
        )


def adapter_settings(folder: str | Path) -> LoraSettings:
    """The settings of a saved adapter. Its dropout is left behind: a policy is trained without.

    Raises:
        UserError: it is no LoRA adapter, or one that can't be trained here.
    """
    return replace(parse_lora_settings(read_adapter_config(folder), f"the adapter {folder}"), lora_dropout=0.0)


def continue_adapter(model: PreTrainedModel, folder: str | Path) -> PreTrainedModel:
    """Put a saved adapter into the model, to be trained further; `adapter_off` then goes back to this one.

    Raises:
        UserError: it does not fit the model.
    """
    apply_lora(model, adapter_settings(folder))
    load_adapter(model, folder)
    keep_start(model)
    return model


def start_adapter(
    model: PreTrainedModel, settings: LoraSettings | None, start: str | None, seed: int
) -> PreTrainedModel:
    """Put in the adapter that a run starts from, if `start` is one, or a new one, if there are settings.

    Raises:
        UserError: it does not fit the model.
    """
    if start is not None and is_adapter(start):
        return continue_adapter(model, start)
    return model if settings is None else apply_lora(model, settings, seed)
