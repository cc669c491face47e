"""LoRA's settings, from a JSON file with the keys of peft's `LoraConfig` or ColossalChat's lora_config.json; and adapter
folders as peft writes them: recognising, reading and merging one.

Free of torch and of peft until they are used, because settings are checked with it. Adapters in a model: `rlvr.models.lora`.
"""

import logging
from dataclasses import MISSING, Field, asdict, dataclass, fields
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from packaging.version import Version
from pydantic import ConfigDict, TypeAdapter, ValidationError

from rlvr.config.conditions import ADAPTER_CONFIG
from rlvr.config.conditions import is_adapter as is_adapter
from rlvr.config.files import read_json
from rlvr.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

BASE = "base.json"


@dataclass(frozen=True)
class LoraSettings:
    """The settings of an adapter; names, meanings and defaults are those of peft's `LoraConfig`.

    Left out: everything that changes the base model's own weights (`bias`, PiSSA, LoftQ, ...), because actor, critic and
    reference share them, and what serves other tasks than training a language model.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    r: int = 8
    lora_alpha: int | float = 8
    lora_dropout: float = 0.0
    target_modules: list[str] | str | None = None
    exclude_modules: list[str] | str | None = None
    modules_to_save: list[str] | None = None
    bias: Literal["none"] = "none"
    use_rslora: bool = False
    use_dora: bool = False
    init_lora_weights: Literal[True, "gaussian"] = True
    fan_in_fan_out: bool = False
    layers_to_transform: list[int] | int | None = None
    layers_pattern: list[str] | str | None = None
    rank_pattern: dict[str, int] | None = None
    alpha_pattern: dict[str, int | float] | None = None

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of peft's `LoraConfig`."""
        return {name: value for name, value in asdict(self).items() if value is not None}


_EXAMPLE = '{"r": 16, "lora_alpha": 32, "target_modules": ["q_proj", "v_proj"]}'
# ColossalChat's names of the same settings. Both its dropouts are one in peft.
_COLOSSALCHAT = {
    "linear_lora_dropout": "lora_dropout",
    "embedding_lora_dropout": "lora_dropout",
    "lora_train_bias": "bias",
    "lora_initialization_method": "init_lora_weights",
}
# What peft writes into adapter_config.json about the adapter, and what does not change training.
_ABOUT = {
    "task_type", "peft_type", "auto_mapping", "peft_version", "base_model_name_or_path", "revision", "inference_mode",
    "runtime_config",
}  # fmt: skip
_REMEDIES = {
    "bias": 'trained biases are the base model\'s own, which actor, critic and reference share: give "none"',
    "init_lora_weights": (
        'these initial weights would change the base model, which actor, critic and reference share: give true, "gaussian", '
        'or (ColossalChat) "kaiming_uniform"'
    ),
}


LEAST_PEFT = "0.18"
_INSTALL = f"pip install 'peft>={LEAST_PEFT}' (pip then warns that colossalai asks for an older one; it runs with this)"


def import_peft() -> ModuleType:
    """The library peft.

    Raises:
        UserError: it is not installed, or too old.
    """
    # peft loads bitsandbytes where it is installed, which warns of a kernel that nothing here calls.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    try:
        import peft
    except ImportError:
        raise UserError(f"LoRA needs the package peft: {_INSTALL}") from None
    if Version(peft.__version__) < Version(LEAST_PEFT):
        raise UserError(f"LoRA needs peft {LEAST_PEFT} or newer, and here is {peft.__version__}: {_INSTALL}")
    return peft


def read_lora_config(path: str | Path) -> LoraSettings:
    """Read and check a file of LoRA settings; an adapter_config.json that peft wrote is one, too.

    Raises:
        UserError: it can't be read, is no JSON object, or has an unknown key or an unsuitable value.
    """
    path = Path(path)
    try:
        given = read_json(path)
    except OSError as error:
        raise UserError(f"--lora_config {path}: {error.strerror}; give a JSON file such as {_EXAMPLE}") from None
    except ValueError as error:
        raise UserError(f"--lora_config {path}: not valid JSON ({error}); it should look like {_EXAMPLE}") from None
    if not isinstance(given, dict):
        raise UserError(f"--lora_config {path}: holds a {type(given).__name__}; it should look like {_EXAMPLE}")
    return parse_lora_settings(given, f"--lora_config {path}")


def parse_lora_settings(given: dict[str, Any], source: str) -> LoraSettings:
    """Settings from the keys of peft or ColossalChat. `source` names them in errors.

    Raises:
        UserError: an unknown key, or a value that is not allowed.
    """
    kind = given.get("peft_type") or "LORA"
    if kind != "LORA":
        raise UserError(f"{source}: peft_type {kind!r} is no LoRA; only LoRA adapters can be trained")
    renamed = _from_colossalchat(given, source)
    known = {f.name for f in fields(LoraSettings)}
    of_peft = {f.name: f for f in fields(import_peft().LoraConfig)}
    for name, value in renamed.items():
        if name not in known | _ABOUT and (name not in of_peft or value != _default(of_peft[name])):
            what = "unknown key" if name not in of_peft else "this setting of peft's is not supported:"
            raise UserError(f"{source}: {what} {name!r}; allowed: {', '.join(sorted(known))}")
    return _checked({name: value for name, value in renamed.items() if name in known}, source)


def _default(field: Field) -> Any:
    return field.default_factory() if field.default_factory is not MISSING else field.default


def _from_colossalchat(given: dict[str, Any], source: str) -> dict[str, Any]:
    renamed: dict[str, Any] = {}
    for key, value in given.items():
        name = _COLOSSALCHAT.get(key, key)
        if key == "lora_initialization_method" and value == "kaiming_uniform":
            value = True
        if renamed.get(name, value) != value:
            raise UserError(
                f"{source}: {key} {value!r} differs from {renamed[name]!r} given for {name}; give one of them"
            )
        renamed[name] = value
    return renamed


def _checked(given: dict[str, Any], source: str) -> LoraSettings:
    # peft writes null for "not set".
    given = {name: value for name, value in given.items() if value is not None}
    try:
        settings = TypeAdapter(LoraSettings).validate_python(given)
    except ValidationError as error:
        name = str(error.errors()[0]["loc"][0])
        why = _REMEDIES.get(name, error.errors()[0]["msg"])
        raise UserError(f"{source}: {name} {given[name]!r}: {why}") from None
    for name, value, allowed, remedy in (
        ("r", settings.r, settings.r >= 1, "must be at least 1; leave --lora_config out to train all weights"),
        ("lora_alpha", settings.lora_alpha, settings.lora_alpha > 0, "must be above 0 (twice r is usual)"),
        ("lora_dropout", settings.lora_dropout, 0 <= settings.lora_dropout < 1, "must lie between 0 and 1"),
        ("target_modules", settings.target_modules, settings.target_modules not in ([], ""), "names no module"),
    ):
        if not allowed:
            raise UserError(f"{source}: {name} {value!r}: {remedy}")
    return settings


def refuse_dropout(settings: LoraSettings, source: str) -> None:
    """Training runs without dropout, as a policy has to (pitfall A17).

    Raises:
        UserError: the adapters have dropout.
    """
    if settings.lora_dropout:
        raise UserError(
            f"{source}: lora_dropout {settings.lora_dropout:g}: models are trained without dropout (old and new probabilities "
            "of a policy would come from different networks); set it to 0"
        )


# Adapter folders, as peft writes them, and a file of ours in them.


@dataclass(frozen=True)
class Base:
    """The model that an adapter belongs to.

    Attributes:
        name: as `from_pretrained` was given it.
        fingerprint: of its weights as they were read.
        quantization: how they were rounded since (`nf4`); None if they are as they were.
    """

    name: str
    fingerprint: str
    quantization: str | None = None


def read_base(folder: str | Path) -> Base | None:
    """What an adapter of ours says of its base model; None of those that others wrote, which don't say.

    Raises:
        UserError: the file is damaged.
    """
    path = Path(folder) / BASE
    if not path.is_file():
        return None
    try:
        return TypeAdapter(Base).validate_python(read_json(path))
    except (OSError, ValueError) as error:
        reason = f"{error}".strip().splitlines()[0]
        raise UserError(
            f"{path} does not say which base model the adapter belongs to ({reason}): delete it to go without"
        ) from None


def read_adapter_config(folder: str | Path) -> dict[str, Any]:
    """The adapter_config.json of the folder.

    Raises:
        UserError: it is no JSON object.
    """
    path = Path(folder) / ADAPTER_CONFIG
    try:
        found = read_json(path)
    except (OSError, ValueError):
        found = None
    if not isinstance(found, dict):
        raise UserError(f"{path} is not what peft writes: no JSON object")
    return found


def merge_adapter(model: "PreTrainedModel", folder: str | Path) -> "PreTrainedModel":
    """`model` with the adapter's weights merged into its own, which are first rounded as those were that it was trained over.

    Raises:
        UserError: peft is not installed, or the adapter does not fit the model.
    """
    try:
        from peft import PeftModel
    except ImportError:
        raise UserError(f"{folder} is a LoRA adapter, which needs the package peft: pip install peft") from None
    base = read_base(folder)
    if base is not None and base.quantization:
        from rlvr.models.quantized import dequantize, quantize

        quantize(model)
        dequantize(model)
    try:
        merged: Any = PeftModel.from_pretrained(model, str(folder))
    except (RuntimeError, ValueError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"the adapter {folder} does not fit {model.config.name_or_path}: {reason}") from None
    return merged.merge_and_unload()
