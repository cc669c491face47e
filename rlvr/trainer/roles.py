"""From the models that a user gives a trainer to the roles that it needs.

A plain causal LM becomes an `Actor`, a classifier a scorer, the initial model a frozen reference; what can't be used is refused
with a message. Trainers that are made of plain Python objects call these; a run from settings makes its roles in
`rlvr.run.parts`.
"""

from collections.abc import Mapping
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rlvr.boost.boosted import Boosted
from rlvr.boost.frozen import AdapterOff, Frozen, Reference
from rlvr.core.advantages import Estimator, estimator_names, get_estimator
from rlvr.errors import UserError
from rlvr.experience.maker import SampleScorer
from rlvr.models.actor import Actor
from rlvr.models.lora import ADAPTER
from rlvr.models.padding_free import recomputes_activations
from rlvr.models.reward_model import RewardModel
from rlvr.prompting.conversation import Conversation
from rlvr.rollout.engine import Sampling
from rlvr.scorers.neural import NeuralRewardModel


def inner_of(model: Any) -> Any:
    """The module inside a Booster's wrapper, if there is one."""
    return model.unwrap() if hasattr(model, "unwrap") else model


def choose_estimator(name: str, actor: Any, critic: Any, num_generations: int) -> Estimator:
    """The estimator of this name, after a check that actor and critic suit it.

    Args:
        actor: the `Actor`, wrapped by a Booster or not.
        critic: of any kind; None = there is none of its own.
        num_generations: responses to each prompt.

    Raises:
        UserError: it is unknown; it reads values and nothing or both give them, or reads none and something does; or it compares
            responses and there is one to each prompt.
    """
    try:
        found = get_estimator(name)
    except ValueError as error:
        raise UserError(str(error)) from None
    gives_values = inner_of(actor).gives_values
    if critic is not None and gives_values:
        raise UserError(
            "the actor gives values itself (ActorWithValues); pass critic, critic_booster, critic_optim as None"
        )
    if found.critic and critic is None and not gives_values:
        without = ", ".join(n for n in estimator_names() if not get_estimator(n).critic)
        raise UserError(f"estimator {name!r} needs a critic; give one, or choose one that needs none: {without}")
    if gives_values and not found.critic:
        raise UserError(f"estimator {name!r} reads no values; pass an Actor instead of an ActorWithValues")
    if critic is not None and not found.critic:
        raise UserError(f"estimator {name!r} reads no values; pass critic=None, critic_booster=None, critic_optim=None")
    if found.groups and num_generations < 2:
        raise UserError(
            f"estimator {name!r} compares responses to the same prompt: num_generations {num_generations} must be at least 2"
        )
    return found


def as_actor(model: Any) -> Any:
    """A plain causal LM as an `Actor`; an `Actor`, boosted or not, is returned as it is. Of a peft model the transformers
    model inside is taken, which holds the adapters.

    Raises:
        UserError: a model that was boosted already, one that was loaded quantised, or a peft model without LoRA.
    """
    if hasattr(model, "get_base_model"):
        _check_lora(model)
        model = model.get_base_model()
    inner = inner_of(model)
    if getattr(inner, "quantization_method", None) not in (None, "gguf"):
        raise UserError(
            "actor was loaded quantised: load it whole, call rlvr.models.lora.quantize_base(model), which rounds it to 4 bits, and put "
            "adapters in with apply_lora(model, settings)"
        )
    if isinstance(inner, Actor):
        return model
    if inner is not model:
        raise UserError(
            "actor is a causal LM that was boosted already; pass it before booster.boost (the trainer boosts it), or boost "
            "rlvr.models.actor.Actor(model) instead"
        )
    return Actor(model)


def _check_lora(model: Any) -> None:
    kinds = sorted({str(getattr(config.peft_type, "value", config.peft_type)) for config in model.peft_config.values()})
    if kinds != ["LORA"] or list(model.peft_config) != [ADAPTER]:
        raise UserError(
            f"actor is a peft model with {', '.join(kinds)} adapters named {', '.join(model.peft_config)}; give one with a "
            f"single LoRA adapter named {ADAPTER!r} (peft's name for it), or a plain model"
        )


def make_reference(model: Any, actor: Boosted, kl_coef: float) -> Reference | None:
    """The frozen initial model, or the actor with its adapter off if there is none; None at `kl_coef` 0.

    Raises:
        UserError: a divergence is asked for, and there is neither an initial model nor an adapter.
    """
    if not kl_coef:
        return None
    if model is not None:
        reference = model if isinstance(model, Actor) else Actor(model)
        if recomputes_activations(actor.unwrapped.decoder):  # and so keeps its padding
            reference.keep_padding()
        return actor.freeze(reference)
    if actor.unwrapped.has_adapter:
        return AdapterOff(actor.unwrapped, actor.forward)
    raise UserError(f"kl_coef {kl_coef} needs initial_model, from which the divergence is measured; or set kl_coef=0")


def check_follows(reference: Reference | None, actor: Boosted, share: float) -> None:
    """Raise `UserError` unless this reference can move towards the actor by this share (`reference_mix`)."""
    if not isinstance(reference, Frozen) or actor.unwrapped.has_adapter:
        why = (
            "with LoRA it is not made of the actor's weights" if reference is not None else "at kl_coef 0 there is none"
        )
        raise UserError(f"reference_reset_interval lets the reference become the actor, and {why}: leave it out")
    reference.check_follows(actor.shapes(), share)


def as_scorer(
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    conversation: Conversation | None,
    *,
    actor: Boosted,
    offload: bool,
) -> SampleScorer:
    """A `RewardModel`, or a sequence classifier of transformers, as a scorer that reads the policy's own tokens; anything else
    is taken to be a scorer already.

    Raises:
        UserError: a classifier that is no reward model.
    """
    if isinstance(model, PreTrainedModel):
        model = RewardModel(model)
    if not isinstance(model, RewardModel):
        return model
    tags = conversation.tags if conversation is not None else None
    return NeuralRewardModel(actor.freeze(model), tokenizer, tags, offload=offload)


def make_sampling(
    tokenizer: PreTrainedTokenizerBase, conversation: Conversation | None, given: Mapping[str, Any]
) -> Sampling:
    """Sampling settings from `generate_kwargs`, ColossalChat's among them; stops come from the template, or else are the tokenizer's
    end token.

    Raises:
        UserError: an unknown name, or a value that PPO can't use.
    """
    given = _of_colossalchat(given)
    known = set(Sampling.__dataclass_fields__)
    if unknown := set(given) - known:
        raise UserError(f"unknown generation settings {sorted(unknown)}; known: {', '.join(sorted(known))}")
    stops: dict[str, Any]
    if conversation is not None:
        stops = {"stop_ids": tuple(conversation.stop_ids), "stop_strings": tuple(conversation.stop_strings)}
    else:
        stops = {"stop_ids": () if tokenizer.eos_token_id is None else (tokenizer.eos_token_id,)}
    return Sampling(**{"max_new_tokens": 256, **stops, **given})


def _of_colossalchat(given: Mapping[str, Any]) -> dict[str, Any]:
    """Names that ColossalChat and transformers give these settings, as ours. What is always so here is checked and left out."""
    settings = dict(given)
    if not settings.pop("do_sample", True):
        raise UserError("do_sample=False: PPO needs sampled responses; leave it out")
    settings.pop("use_cache", None)  # the cache changes nothing but speed, and is always used
    for name in ("eos_token_id", "stop_token_ids"):
        if (stops := settings.pop(name, None)) is not None:
            settings["stop_ids"] = (stops,) if isinstance(stops, int) else tuple(stops)
    if "max_length" in settings:
        raise UserError(
            "max_length counts prompt and response together, and prompts come from your loader: give max_new_tokens, the most tokens of "
            "a response"
        )
    return settings
