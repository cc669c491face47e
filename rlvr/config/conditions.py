"""The conditions under which settings are read, by name. Fields name them: `read_when(has_critic)`.

A condition is a predicate over a whole tree of settings, of PPO or of supervised training, with the text of its message. No
import here loads torch, or `--help` and completion would take seconds: the registry of estimators (`rlvr.core.advantages`) does,
so it is imported only when a condition is checked.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr.config.fields import condition
from rlvr.config.reward_options import function_names, is_multi_objective
from rlvr.errors import UserError

if TYPE_CHECKING:
    from rlvr.core.advantages import Estimator
    from rlvr.core.kl import KLKind
    from rlvr.core.mismatch import Correction, How, Level

GENERATED = ("builtin", "arithmetic", "word_problems")
"""Names of the data sets that are generated here (`rlvr/data/generated.py`)."""
PROCEDURAL = "reasoning_gym"
"""Before the name of a task of that package (`rlvr/data/procedural.py`): `reasoning_gym:chain_sum`."""
ADAPTER_CONFIG = "adapter_config.json"
WITHOUT_LOGPROBS = ("generate", "replay")
"""Engines that give no logprobs of what they sampled."""


# Shared by several conditions and by the checks of combinations.


def estimator_of(c: Any) -> "Estimator":
    """The advantage estimator of the run, with what it needs.

    Raises:
        UserError: there is none of this name.
    """
    from rlvr.core.advantages import get_estimator

    try:
        return get_estimator(c.algo.estimator)
    except ValueError as error:
        raise UserError(f"--estimator: {error}") from None


def given_estimator(c: Any) -> str:
    """The estimator in words, as the user gave it: by flag or by preset."""
    flag = f"--preset {c.algo.preset}: estimator" if c.algo.preset else "--estimator"
    return f"{flag} {c.algo.estimator}"


def estimators_with(**traits: bool) -> str:
    """Names of the estimators with these traits (attributes of `Estimator`), to choose from."""
    from rlvr.core.advantages import estimator_names, get_estimator

    found = (get_estimator(name) for name in estimator_names())
    return ", ".join(e.name for e in found if all(getattr(e, trait) == value for trait, value in traits.items()))


def is_adapter(folder: str | Path | None) -> bool:
    """True if the folder holds an adapter of peft rather than whole weights."""
    return folder is not None and (Path(folder) / ADAPTER_CONFIG).is_file()


def is_generated(source: str) -> bool:
    """True if the problems are made from a seed: `word_problems`, `word_problems@2:test`, `reasoning_gym:chain_sum`."""
    return is_procedural(source) or source.partition(":")[0].partition("@")[0] in GENERATED


def is_procedural(source: str) -> bool:
    """True if the problems are those of a task of reasoning-gym."""
    return source.partition(":")[0] == PROCEDURAL


def names_split(source: str) -> bool:
    """True if a generated source says which split of it is meant."""
    return source.partition("?")[0].count(":") > is_procedural(source)


def have_test_splits(sources: Sequence[str]) -> bool:
    """True if all are generated and none says which split of it is meant: what is held out is their test splits then."""
    return all(is_generated(source) and not names_split(source) for source in sources)


def trains_on_generated(data: Any) -> bool:
    """True if generated problems, which have a test split, are all there is to train on."""
    return data.prompt_csv_url is None and have_test_splits(data.prompt_dataset)


# Estimators and their critics.


@condition(
    why=lambda c: f": {given_estimator(c)} has no critic",
    instead=lambda c: f"choose one that has: {estimators_with(critic=True)}",
)
def has_critic(c: Any) -> bool:
    return estimator_of(c).critic


def _no_own_critic(c: Any) -> str:
    if not has_critic(c):
        return f": {given_estimator(c)} has no critic"
    return (
        " with --share_trunk, which does without a critic of its own: its value head starts from --checkpoint_path, if one "
        "lies there, and learns at --lr"
    )


def _with_own_critic(c: Any) -> str:
    return "leave --share_trunk out" if has_critic(c) else f"choose one that has: {estimators_with(critic=True)}"


@condition(why=_no_own_critic, instead=_with_own_critic)
def has_own_critic(c: Any) -> bool:
    return has_critic(c) and not c.model.share_trunk


@condition(why=_no_own_critic, instead=_with_own_critic)
def has_critic_or_adapter_base(c: Any) -> bool:
    """A reward model that is saved as an adapter needs its base model too, named by the same setting as the critic's."""
    return has_own_critic(c) or is_adapter(c.model.rm_checkpoint_path)


@condition(
    why=lambda c: f": {given_estimator(c)} gives a response one advantage",
    instead=lambda c: f"choose one that looks at tokens: {estimators_with(per_token=True)}",
)
def has_token_advantages(c: Any) -> bool:
    return estimator_of(c).per_token


@condition(why=lambda c: f": --lam_alpha {c.algo.lam_alpha} gives each length its own", instead="leave --lam_alpha out")
def has_fixed_lambda(c: Any) -> bool:
    return c.algo.lam_alpha is None


# Adapters.


def _continues_adapter(c: Any) -> bool:
    """A reward model's adapter is merged before it is trained further."""
    return is_adapter(c.model.checkpoint_path) and not hasattr(c.data, "preference_dataset")


@condition(
    why=" without LoRA: all weights learn, and 4 bits can't",
    instead="give --lora_config FILE (docs/lora.md)",
)
def trains_adapters(c: Any) -> bool:
    """Adapters learn, over a base model that doesn't."""
    return c.model.lora_config is not None or _continues_adapter(c)


# Terms of the loss and what they compare with.


@condition(why=" at --kl_coef 0", instead="give a coefficient")
def measures_divergence(c: Any) -> bool:
    return c.algo.kl_coef > 0


def _no_copied_reference(c: Any) -> str:
    if not measures_divergence(c):
        return " at --kl_coef 0: there is no reference model"
    if c.model.ref_model is not None:
        return f": --ref_model {c.model.ref_model} is what is to be measured from"
    return " with --lora_config: the reference is the actor with its adapter off, and so can't become the actor"


@condition(why=_no_copied_reference)
def copies_reference(c: Any) -> bool:
    """The reference is a copy of the actor's starting weights."""
    return measures_divergence(c) and c.model.lora_config is None and c.model.ref_model is None


@condition(why=" without --reference_reset_interval", instead="give one")
def resets_reference(c: Any) -> bool:
    return c.algo.reference_reset_interval > 0


@condition(why=" without --kl_target", instead="give a target")
def adapts_kl_coef(c: Any) -> bool:
    return c.algo.kl_target is not None


@condition(why=" with --policy_loss sapo, whose gate --tau_pos and --tau_neg shape", instead="take ppo or cispo")
def clips_ratio(c: Any) -> bool:
    return c.algo.policy_loss != "sapo"


@condition(why=lambda c: f" with --policy_loss {c.algo.policy_loss}", instead="take ppo")
def has_ppo_loss(c: Any) -> bool:
    return c.algo.policy_loss == "ppo"


@condition(why=lambda c: f" with --policy_loss {c.algo.policy_loss}", instead="take sapo")
def gates_ratio(c: Any) -> bool:
    return c.algo.policy_loss == "sapo"


@condition(why=" without --entropy_control", instead="give --entropy_control top_entropy, clip_cov or kl_cov")
def controls_entropy(c: Any) -> bool:
    return c.algo.entropy_control != "off"


@condition(why=" without --entropy_control clip_cov", instead="take that")
def clips_covariances(c: Any) -> bool:
    return c.algo.entropy_control == "clip_cov"


@condition(why=" without --entropy_control kl_cov", instead="take that")
def penalises_covariances(c: Any) -> bool:
    return c.algo.entropy_control == "kl_cov"


@condition(why=" at --positive_lm_coef 0", instead="give a coefficient (VAPO: 0.1)")
def learns_from_right_responses(c: Any) -> bool:
    return c.algo.positive_lm_coef > 0


@condition(why=" without --ptx_dataset", instead="give --ptx_dataset and --ptx_coef")
def has_ptx_data(c: Any) -> bool:
    return bool(c.data.ptx_dataset)


@condition(why=" at --kl_coef 0: there is no reference model")
def has_frozen_models(c: Any) -> bool:
    return measures_divergence(c) or has_reward_model(c)


def kl_kind_of(c: Any) -> "KLKind":
    """The estimate of the divergence that the run uses: the one given, or the one that suits its place.

    Raises:
        UserError: the gradient of the given one is wrong in its place.
    """
    from rlvr.core.kl import SUITED, WHY_NOT

    place, given = c.algo.kl_in, c.algo.kl_estimator
    suited = SUITED[place]
    if given is None or given in suited or not measures_divergence(c):
        return given or suited[0]
    elsewhere = next(other for other, kinds in SUITED.items() if given in kinds)
    raise UserError(
        f"--kl_estimator {given} with --kl_in {place} {WHY_NOT[place]}. Give --kl_estimator {' or '.join(suited)} there, or "
        f"--kl_in {elsewhere}"
    )


# The optimizer.


@condition(why=" with --lr_schedule constant", instead="take cosine or linear")
def lowers_lr(c: Any) -> bool:
    return c.train.lr_schedule != "constant"


# The policy that sampled and the one that learns.


def correction_of(c: Any) -> "Correction":
    """What is done about probabilities of the engine that are not the trainer's."""
    from rlvr.core.mismatch import BOUNDS, Correction

    a = c.algo
    how: How = a.mismatch_correction or ("truncate" if _differs_by_design(c) else "none")
    level: Level = a.mismatch_level or ("sequence" if a.ratio == "sequence" else "token")
    low, high = BOUNDS[level]
    usual = Correction(how, level, 0.0 if how == "truncate" else low, high)
    given = {"low": a.mismatch_low, "high": a.mismatch_high}
    return replace(usual, **{bound: value for bound, value in given.items() if value is not None})


def _differs_by_design(c: Any) -> bool:
    """The engine's kernels or its weights are not the trainer's, and old logprobs are the trainer's."""
    if c.algo.old_logprobs == "sampled":  # the ratio is that to the policy that sampled: nothing is left to correct
        return False
    return c.ray.max_staleness > 0 or (c.rollout.engine == "vllm" and gives_logprobs(c))


def gives_logprobs(c: Any) -> bool:
    """The engine gives the logprobs that it sampled with, over the whole vocabulary."""
    r = c.rollout
    return r.engine not in WITHOUT_LOGPROBS and not (r.engine == "vllm" and (r.top_k or r.top_p < 1))


@condition(why=" without a correction", instead="give --mismatch_correction truncate or mask")
def corrects_mismatch(c: Any) -> bool:
    return correction_of(c).how != "none"


# Responses and data.


@condition(why=" with --truncated bootstrap, where the critic's value takes the place of a cut response's score")
def pays_cut_responses(c: Any) -> bool:
    return c.algo.truncated != "bootstrap"


@condition(why=" without --engine vllm", instead="give --engine vllm")
def samples_with_vllm(c: Any) -> bool:
    return c.rollout.engine == "vllm"


@condition(why=" without --dynamic_sampling", instead="give --dynamic_sampling")
def samples_dynamically(c: Any) -> bool:
    return c.algo.dynamic_sampling


@condition(why=" without a --curriculum", instead="give --curriculum")
def has_curriculum(c: Any) -> bool:
    return c.data.curriculum != "uniform"


@condition(why=" without --curriculum target_success", instead="give --curriculum target_success")
def aims_at_success(c: Any) -> bool:
    return c.data.curriculum == "target_success"


@condition(why=" without --positive_lm_coef or --curriculum", instead="give a coefficient (VAPO: 0.1), or a curriculum")
def asks_what_is_right(c: Any) -> bool:
    return learns_from_right_responses(c) or has_curriculum(c)


@condition(why=" with --engine replay, which takes responses from the data")
def samples_responses(c: Any) -> bool:
    return c.rollout.engine != "replay"


@condition(why=" with --prompt_csv_url, which names the data", instead="leave --prompt_csv_url out")
def reads_prompt_dataset(c: Any) -> bool:
    return c.data.prompt_csv_url is None


@condition(why=": generated problems have no columns to choose from", instead="name your data: --prompt_dataset")
def reads_problems_from_files(c: Any) -> bool:
    return c.data.prompt_csv_url is not None or not all(
        map(is_generated, (*c.data.prompt_dataset, *c.data.eval_datasets))
    )


@condition(why=": there are no held-out problems", instead="give --eval_datasets or --eval_share")
def has_held_out_problems(c: Any) -> bool:
    return bool(c.data.eval_datasets or c.data.eval_share) or trains_on_generated(c.data)


def _sources(c: Any) -> list[str]:
    """The data that supervised training learns from."""
    return c.data.dataset if hasattr(c.data, "dataset") else c.data.preference_dataset


@condition(why=": generated data has no columns to choose from")
def reads_examples_from_files(c: Any) -> bool:
    return not all(map(is_generated, (*_sources(c), *c.data.eval_dataset)))


@condition(why=": nothing is held out", instead="give --eval_dataset or --eval_share")
def has_held_out_rows(c: Any) -> bool:
    return bool(c.data.eval_dataset or c.data.eval_share) or have_test_splits(_sources(c))


# Rewards.


@condition(why=": it is for a neural reward model, and there is none", instead="give --rm_checkpoint_path")
def has_reward_model(c: Any) -> bool:
    return bool(c.model.rm_checkpoint_path)


@condition(
    why=": the reward functions run in the training process, where nothing can end them",
    instead="give --reward_workers N (1 or more)",
)
def runs_workers(c: Any) -> bool:
    """Functions that are not rlvr's own might hang, so they run in worker processes unless the user says otherwise; an environment
    always does."""
    if c.env.environment is not None:
        return True
    if c.reward.reward_workers is not None:
        return c.reward.reward_workers > 0
    from rewards import names, resolve

    own = [n for n in function_names(c) if n in names()]
    own = [n for n in own if resolve(n).is_bounded]
    return len(own) < len(function_names(c))


@condition(why=" with several objectives, whose weights --rl_reward_weights gives by name")
def has_weights_by_position(c: Any) -> bool:
    return not is_multi_objective(c)


@condition(why=" without --rl_multi_objective (or --rl_env_type multi_objective)", instead="give that")
def has_weights_by_name(c: Any) -> bool:
    return is_multi_objective(c)


@condition(why=" without --environment, as a response is one turn", instead="give that")
def has_turns(c: Any) -> bool:
    return c.env.environment is not None


@condition(why=" without --rl_env_type, whose settings it holds", instead="give that")
def has_environment(c: Any) -> bool:
    return c.env.rl_env_type is not None


# Plugins and parallelism.


@condition(
    why=lambda c: (
        f" with --plugin {c.parallel.plugin}: it belongs to --plugin 3d (zero1 and zero2 are plugins of their own)"
    )
)
def is_3d(c: Any) -> bool:
    return c.parallel.plugin == "3d"


@condition(why=" without --enable_sequence_parallelism")
def splits_sequences(c: Any) -> bool:
    return c.parallel.enable_sequence_parallelism


@condition(why=lambda c: f" with --plugin {c.parallel.plugin}", instead="take a ZeRO plugin: zero1, zero2")
def has_zero(c: Any) -> bool:
    return c.parallel.plugin.startswith("zero") or is_3d(c)


# Results.


@condition(why=" without --push_to_hub", instead="name the repository")
def uploads(c: Any) -> bool:
    return c.ckpt.push_to_hub is not None


@condition(why=" without a tracker that has such names", instead="give --use_wandb, --use_mlflow or --use_trackio")
def has_named_tracker(c: Any) -> bool:
    return c.log.use_wandb or c.log.use_mlflow or c.log.use_trackio


# Ray.


@condition(why=" without --ray", instead="give --ray")
def on_ray(c: Any) -> bool:
    return c.ray.ray


@condition(why=" with --ray: experience is in the driver's main memory")
def keeps_own_buffer(c: Any) -> bool:
    return not on_ray(c)


@condition(why=" with --ray: each role has a device of its own")
def shares_device(c: Any) -> bool:
    return not on_ray(c)


@condition(
    why=lambda c: (
        ": with LoRA the reference is the actor with its adapter off" if measures_divergence(c) else " at --kl_coef 0"
    )
)
def has_reference_role(c: Any) -> bool:
    return measures_divergence(c) and (c.model.lora_config is None or c.model.ref_model is not None)


@condition(
    why=": they are for a neural reward model; rules run in --min_reward_workers to --max_reward_workers processes"
)
def has_reward_role(c: Any) -> bool:
    return has_reward_model(c)


@condition(why=": with a neural reward model, rules run in its processes (--num_reward_nodes)")
def has_workers_of_their_own(c: Any) -> bool:
    return not has_reward_model(c)


@condition(
    why=" without rollout workers: the actor itself generates", instead="give --num_rollout_workers N (1 or more)"
)
def has_rollout_workers(c: Any) -> bool:
    return c.ray.num_rollout_workers > 0


@condition(why=" without episodes generated ahead", instead="give --max_staleness K (1 or more)")
def generates_ahead(c: Any) -> bool:
    return c.ray.max_staleness > 0
