"""`LLMTrainingParams`: the parameters of `aitraining llm` with their names, defaults and ranges.

    params = LLMTrainingParams(
        model="tiny", data_path="prompts.jsonl", project_name="ppo-model", trainer="ppo", rl_reward_fn="correctness"
    )
    Project(params=params, backend="local", process=True).create()

`PARAMETERS` says which of our settings each becomes and which trainers read it; `rlvr/compat/aitraining_project.py` does the rest
and trains. `rlvr llm --help` shows the same parameters, group by group.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Literal, get_type_hints

from pydantic import TypeAdapter, ValidationError

from rlvr.errors import UserError, did_you_mean

RL = ("ppo", "grpo")
PPO = ("ppo",)
SUPERVISED = ("sft", "reward")
ALL = (*RL, *SUPERVISED)
Trainer = Literal["ppo", "grpo", "sft", "reward"]
REQUIRED = ("model", "data_path", "project_name", "trainer")


@dataclass(kw_only=True)
class General:
    """What is trained, on what, and where it goes."""

    model: str
    """Model to train: `tiny` (built in), `smollm2-135m`, a folder, or a hub name."""
    data_path: str
    """JSONL, CSV or Parquet file, folder, hub name, or `builtin`."""
    project_name: str
    """Folder for everything that the run writes."""
    trainer: Trainer
    """`sft`: supervised; `reward`: a reward model on preferences; `ppo`, `grpo`: reinforcement learning."""
    epochs: int = 1
    """Passes over the data."""
    batch_size: int = 4
    """Samples in one forward and backward pass, over all processes."""
    lr: float = 1e-5
    """Peak learning rate (5e-6 to 1e-5 is usual for ppo)."""
    seed: int = 42
    """The one seed of the run."""
    resume: bool = False
    """Go on from the newest checkpoint in the project's folder."""
    mixed_precision: Literal["fp32", "bf16", "fp16"] | None = None
    """Arithmetic of the models. Default: bf16 on GPUs and CPUs that are fast in it, else fp32."""


@dataclass(kw_only=True)
class Data:
    """Columns and prompts. Columns have usual names that are found by themselves (`prompt`, `text`, `question`, ...)."""

    prompt_text_column: str | None = None
    """Column with the prompt."""
    text_column: str | None = None
    """Column with the response (sft), with the chosen response (reward), or with the prompt (ppo, grpo)."""
    rejected_text_column: str | None = None
    """Column with the rejected response (reward)."""
    chat_template: str = "auto"
    """Conversation template: a shipped name or a JSON file. `auto`: prompts stay as they are (`as_is`), unless a rule reads the
    format of responses; then it goes by the model."""
    model_max_length: int | None = None
    """Most tokens of prompt and response together. Default: 2048, or what suits the built-in model."""


@dataclass(kw_only=True)
class CorePPO:
    """Core PPO parameters (ppo; grpo has no critic, and reads reward model, reference, KL and clip range of these)."""

    rl_reward_model_path: str | None = None
    """Reward model: the folder of a run with `--trainer reward`, or a transformers sequence classifier with one label."""
    model_ref: str | None = None
    """Frozen model that the divergence is measured from. Default: the model as it starts."""
    rl_gamma: float = 0.99
    """Discount per token, from 0.9 to 0.99."""
    rl_gae_lambda: float = 0.95
    """Lambda of generalised advantage estimation, from 0.9 to 0.99."""
    rl_kl_coef: float = 0.1
    """Weight of the divergence from the reference, from 0.01 to 0.5."""
    rl_value_loss_coef: float = 1.0
    """Weight of the value loss, from 0.5 to 2.0."""
    rl_clip_range: float = 0.2
    """Clip range of the probability ratio, from 0.1 to 0.3."""
    rl_value_clip_range: float = 0.2
    """Clip range of the value's change."""


@dataclass(kw_only=True)
class Updates:
    """Training parameters (ppo, grpo)."""

    rl_num_ppo_epochs: int = 4
    """Passes over each batch of responses."""
    rl_mini_batch_size: int = 8
    """Responses of an optimizer step: passes of `batch_size` are accumulated to it."""
    rl_rollout_batch_size: int | None = None
    """Responses that are sampled before each update, over all processes. Default: four mini-batches."""
    rl_num_generations: int | None = None
    """Responses to each prompt. Default: 8 for grpo and where responses are compared, else 1."""
    rl_chunk_size: int = 128
    """Response tokens that are projected to the vocabulary at once: fewer take less memory."""
    rl_optimize_device_cache: bool = True
    """Give cached device memory back between sampling and learning."""


@dataclass(kw_only=True)
class Generation:
    """Generation parameters (ppo, grpo)."""

    rl_max_new_tokens: int = 128
    """Most tokens of a response."""
    rl_top_k: int = 50
    """Sample among the k likeliest tokens; 0 = all, which keeps ratios unbiased."""
    rl_top_p: float = 1.0
    """Sample from the smallest set of tokens with this much probability; 1 = all."""
    rl_temperature: float = 1.0
    """Sampling temperature; it applies to old, new and reference logprobs alike."""


@dataclass(kw_only=True)
class Advanced:
    """Rewards and environments (ppo, grpo)."""

    rl_reward_fn: str | None = None
    """`default` (the reward model's score; without one, 1 for a right answer), `length_penalty`, `correctness`, another
    registered function, `package.module:function`, or `path/to/file.py:function`."""
    rl_multi_objective: bool = False
    """Weigh several objectives by name."""
    rl_reward_weights: str | None = None
    """JSON: weights by objective, such as `{"correctness": 1.0, "formatting": 0.1}`."""
    rl_env_type: Literal["text_generation", "multi_objective", "preference_comparison"] | None = None
    """What a response is paid: its score, its weighted objectives, or the share of its prompt's responses that it beats."""
    rl_env_config: str | None = None
    """JSON: settings of the environment."""


GROUPS = (General, Data, CorePPO, Updates, Generation, Advanced)


@dataclass(kw_only=True)
class LLMTrainingParams(Advanced, Generation, Updates, CorePPO, Data, General):
    """All parameters of a run, checked against the ranges that the reference gives.

    `rlvr train` has the same settings under other names, without these ranges, and more.

    Raises:
        UserError: an unknown parameter, a value outside its range, one that the trainer does not read, or neither
            `rl_reward_model_path` nor `model_ref` for reinforcement learning without a reward function.
    """

    def __new__(cls, *args: Any, **given: Any) -> "LLMTrainingParams":
        """Only here to name unknown and missing parameters; the dataclass does the rest. (A copy is made without any.)"""
        known = [f.name for f in fields(cls)]
        if unknown := [name for name in given if name not in known]:
            raise UserError(
                f"LLMTrainingParams: there is no parameter {unknown[0]!r}; there are: {', '.join(known)}."
                f"{did_you_mean(unknown[0], known)}"
            )
        if given and (missing := [name for name in REQUIRED if name not in given]):
            raise UserError(f"LLMTrainingParams: {', '.join(missing)} must be given")
        return super().__new__(cls)

    def __post_init__(self) -> None:
        check_params(self)


# What becomes of each parameter.


@dataclass(frozen=True)
class Parameter:
    """The setting that a parameter becomes.

    Attributes:
        field: `section.name` in `rlvr.Config`; None where it becomes more than one setting (`rlvr/compat/aitraining_project.py`).
        trainers: those that read it.
        low, high: the range, ends included.
        supervised: its place in `SFTConfig` and `RewardTrainingConfig`, where it is another than `field`.
    """

    field: str | None
    trainers: tuple[str, ...] = RL
    low: float | None = None
    high: float | None = None
    supervised: str | None = None

    @property
    def range(self) -> str:
        """The range in words."""
        if self.high is None:
            return f"at least {self.low:g}"
        return f"from {self.low:g} to {self.high:g}"

    def allows(self, value: Any) -> bool:
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)


PARAMETERS: Mapping[str, Parameter] = {
    "model": Parameter(None, ALL),
    "data_path": Parameter(None, ALL),
    "project_name": Parameter("ckpt.save_path", ALL),
    "trainer": Parameter(None, ALL),
    "epochs": Parameter(None, ALL, 1, supervised="train.num_epochs"),
    "batch_size": Parameter(None, ALL, 1, supervised="train.train_batch_size"),
    "lr": Parameter("train.lr", ALL, 0),
    "seed": Parameter("train.seed", ALL, 0),
    "resume": Parameter("ckpt.resume", ALL),
    "mixed_precision": Parameter("parallel.mixed_precision", ALL),
    "prompt_text_column": Parameter(None, ALL),
    "text_column": Parameter(None, ALL),
    "rejected_text_column": Parameter("data.rejected_text_column", ("reward",)),
    "chat_template": Parameter("template.conversation_template_config", ALL),
    "model_max_length": Parameter("rollout.max_length", ALL, 2, supervised="data.max_length"),
    "rl_reward_model_path": Parameter(None),
    "model_ref": Parameter(None),
    "rl_gamma": Parameter("algo.gamma", PPO, 0.9, 0.99),
    "rl_gae_lambda": Parameter("algo.lam", PPO, 0.9, 0.99),
    "rl_kl_coef": Parameter("algo.kl_coef", RL, 0.01, 0.5),
    "rl_value_loss_coef": Parameter("algo.vf_coef", PPO, 0.5, 2.0),
    "rl_clip_range": Parameter("algo.eps_clip", RL, 0.1, 0.3),
    "rl_value_clip_range": Parameter("algo.value_clip", PPO, 0),
    "rl_num_ppo_epochs": Parameter("train.num_update_steps", RL, 1),
    "rl_mini_batch_size": Parameter(None, RL, 1),
    "rl_rollout_batch_size": Parameter(None, RL, 1),
    "rl_num_generations": Parameter(None, RL, 1),
    "rl_chunk_size": Parameter("train.chunk_tokens", RL, 1),
    "rl_optimize_device_cache": Parameter("train.empty_device_cache"),
    "rl_max_new_tokens": Parameter("rollout.max_new_tokens", RL, 1),
    "rl_top_k": Parameter("rollout.top_k", RL, 0),
    "rl_top_p": Parameter("rollout.top_p", RL, 0, 1),
    "rl_temperature": Parameter("rollout.temperature"),
    "rl_reward_fn": Parameter(None),
    "rl_multi_objective": Parameter("env.rl_multi_objective"),
    "rl_reward_weights": Parameter("env.rl_reward_weights"),
    "rl_env_type": Parameter("env.rl_env_type"),
    "rl_env_config": Parameter("env.rl_env_config"),
}


def check_params(params: LLMTrainingParams) -> None:
    """Check types and ranges, that the trainer reads each parameter that is given, and that reinforcement learning has a reward.

    Raises:
        UserError: says what was given and what is allowed.
    """
    kinds = _kinds()
    for f in fields(params):
        value, row = getattr(params, f.name), PARAMETERS[f.name]
        try:
            kinds[f.name].validate_python(value, strict=True)
        except ValidationError as error:
            raise UserError(f"{f.name} {value!r}: {error.errors()[0]['msg']}") from None
        if value is not None and not row.allows(value):
            raise UserError(f"{f.name} {value}: must be {row.range} (`rlvr train` takes values beyond)")
    for f in fields(params):
        value, row = getattr(params, f.name), PARAMETERS[f.name]
        if params.trainer not in row.trainers and value != f.default:
            raise UserError(
                f"{f.name} {value!r} has no effect with trainer {params.trainer}; it belongs to {', '.join(row.trainers)}: leave "
                "it out"
            )
    if params.trainer in RL:
        _check_reward(params)


@cache
def _kinds() -> dict[str, TypeAdapter[Any]]:
    return {name: TypeAdapter(hint) for name, hint in get_type_hints(LLMTrainingParams).items()}


def _check_reward(params: LLMTrainingParams) -> None:
    if not params.rl_temperature > 0:
        raise UserError(f"rl_temperature {params.rl_temperature}: must be above 0; PPO needs sampled responses")
    if params.rl_reward_fn == "custom":
        raise UserError(
            "rl_reward_fn 'custom': name the function itself: package.module:function, or path/to/file.py:function"
        )
    if not (params.rl_reward_model_path or params.model_ref or params.rl_reward_fn or params.rl_reward_weights):
        raise UserError(
            f"{params.trainer} needs at least one of rl_reward_model_path (what pays) and model_ref (what the divergence is "
            "measured from; right answers are then paid), or a rule: rl_reward_fn, such as correctness"
        )
