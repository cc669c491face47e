"""Whether what the settings name is there: reward functions, data, templates, models. Loads no torch, so that a mistake is told
within a second, before a run has a folder. The user's plugins are imported.
"""

import importlib.util
import re
from pathlib import Path
from typing import Any

from rlvr.config import Config, RewardTrainingConfig, SFTConfig
from rlvr.config.hub_names import split_revision
from rlvr.config.layers import AnyConfig
from rlvr.config.reward_options import function_names, reward_options
from rlvr.data.readers import check_prompt_csv, check_source
from rlvr.errors import UserError, did_you_mean
from rlvr.prompting.template import ConversationTemplate

OWN_MODELS = ("tiny", "smollm2-135m")
MODELS = (
    "pretrain",
    "tokenizer_dir",
    "checkpoint_path",
    "rm_pretrain",
    "ref_model",
    "critic_checkpoint_path",
    "rm_checkpoint_path",
)
"""Settings that name a model."""
ANSWER_S = 10.0
"""Longest that the hub may take to say whether it has a model."""
_HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
_CACHED = ("config.json", "tokenizer_config.json", "adapter_config.json")


def check_sources(config: AnyConfig) -> None:
    """Refuse reward functions, data, templates and models that are not there. A name on the hub is asked for once, unless the model
    is in the cache.

    Raises:
        UserError: names the first that is missing, and the nearest that is there.
    """
    if isinstance(config, Config):
        check_functions(config)
    for source in _data_of(config):
        check_source(source)
    if isinstance(config, Config) and config.data.prompt_csv_url is not None:
        check_prompt_csv(config.data.prompt_csv_url)
    if (template := config.template.conversation_template_config) != "auto":
        load_template(template)
    if config.model.use_flash_attn and importlib.util.find_spec("flash_attn") is None:
        raise UserError(
            "--use_flash_attn needs the package flash-attn and a CUDA GPU: pip install flash-attn, or leave the flag out (PyTorch's own "
            "attention is used)"
        )
    for name in MODELS:
        if value := getattr(config.model, name, None):
            check_model(value, f"--{name}")


def check_functions(config: Config) -> None:
    """Import the plugins, and find the reward functions with their options.

    Raises:
        UserError: one of them can't be imported, is unknown, or takes no such option.
    """
    from rewards import load_plugins, resolve

    load_plugins(config.reward.reward_plugins)
    options = reward_options(config)
    for name in function_names(config):
        resolve(name, options=options)


def load_template(name: str) -> ConversationTemplate:
    """A shipped template, or a file's. A tokenizer that it names must be there, or on the hub.

    Raises:
        UserError: there is none of this name, it can't be used, or it names a tokenizer that is nowhere.
    """
    template = ConversationTemplate.load(name)
    if template.names_tokenizer and template.chat_template is not None:
        where = f"conversation template {template.source}, key 'chat_template': no jinja text, so it names a tokenizer:"
        check_model(template.chat_template, where)
    return template


def _data_of(config: AnyConfig) -> list[str]:
    data: Any = config.data
    if isinstance(config, SFTConfig):
        return [*data.dataset, *data.eval_dataset]
    if isinstance(config, RewardTrainingConfig):
        return [*data.preference_dataset, *data.eval_dataset]
    prompts = [] if data.prompt_csv_url is not None else data.prompt_dataset
    return [*prompts, *data.eval_datasets, *data.ptx_dataset]


def check_model(name: str, flag: str) -> None:
    """Refuse a model that is neither one of ours, nor a folder that is there, nor on the hub.

    transformers would ask the hub for each file of it, each with retries: more than a minute without a network.

    Args:
        name: as the user gave it.
        flag: what gave it, for the message.

    Raises:
        UserError: there is no such model; names the nearest folder.
    """
    path = Path(name)
    if name in OWN_MODELS or path.exists():
        return
    try:
        on_hub, revision = split_revision(name)
    except UserError as error:
        raise UserError(f"{flag} {error}") from None
    if revision is not None and on_hub in OWN_MODELS:
        raise UserError(f"{flag} {name}: {on_hub} is built in and has no revisions: leave #{revision} out")
    may_be_on_hub = _HUB_NAME.fullmatch(on_hub) is not None
    reason = _absent_on_hub(on_hub, revision) if may_be_on_hub else None
    if may_be_on_hub and reason is None:
        return
    folders = [p.name for p in path.parent.iterdir() if p.is_dir()] if path.parent.is_dir() else []
    near = did_you_mean(path.name, folders) or did_you_mean(name, OWN_MODELS)
    raise UserError(
        f"{flag} {name}: there is no such folder{f', and {reason}' if reason else ''}.{near} Give {', '.join(OWN_MODELS)}, a folder that "
        "save_pretrained wrote or of a run, or a hub name"
    )


def _absent_on_hub(name: str, revision: str | None) -> str | None:
    """Why the hub has no such model for us; None if it has, or if it is in the cache."""
    import huggingface_hub as hub
    from huggingface_hub.errors import HTTPError, RepositoryNotFoundError, RevisionNotFoundError

    if any(isinstance(hub.try_to_load_from_cache(name, file, revision=revision), str) for file in _CACHED):
        return None
    if hub.constants.HF_HUB_OFFLINE:
        return "it is not in the cache, while HF_HUB_OFFLINE forbids to ask the hub"
    try:
        hub.HfApi().model_info(name, revision=revision, timeout=ANSWER_S)
    except RevisionNotFoundError:
        return f"the hub's {name} has no revision {revision!r}"
    except RepositoryNotFoundError:
        return "the hub has no such model, or it is private: then log in with `hf auth login`"
    except (HTTPError, OSError) as error:
        if getattr(error, "response", None) is not None:
            return None  # it answered, and may know better when it is asked for a file
        return f"the hub can't be asked ({type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no reason given'})"
    return None
