"""What each parameter of `LLMTrainingParams` becomes, who reads it, and what range the reference gives it."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from rlvr.errors import UserError

if TYPE_CHECKING:
    from rlvr.compat.llm import LLMTrainingParams

RL = ("ppo", "grpo")
PPO = ("ppo",)
SUPERVISED = ("sft", "reward")
ALL = (*RL, *SUPERVISED)


@dataclass(frozen=True)
class Row:
    """A parameter.

    Attributes:
        field: `section.name` in `rlvr.Config`; None where it becomes more than one setting (`rlvr.compat.llm_config`).
        trainers: which of the trainers read it.
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


TABLE: Mapping[str, Row] = {
    "model": Row(None, ALL),
    "data_path": Row(None, ALL),
    "project_name": Row("ckpt.save_path", ALL),
    "trainer": Row(None, ALL),
    "epochs": Row(None, ALL, 1, supervised="train.num_epochs"),
    "batch_size": Row(None, ALL, 1, supervised="train.train_batch_size"),
    "lr": Row("train.lr", ALL, 0),
    "seed": Row("train.seed", ALL, 0),
    "resume": Row("ckpt.resume", ALL),
    "mixed_precision": Row("parallel.mixed_precision", ALL),
    "prompt_text_column": Row(None, ALL),
    "text_column": Row(None, ALL),
    "rejected_text_column": Row("data.rejected_text_column", ("reward",)),
    "chat_template": Row("template.conversation_template_config", ALL),
    "model_max_length": Row("rollout.max_length", ALL, 2, supervised="data.max_length"),
    "rl_reward_model_path": Row(None),
    "model_ref": Row(None),
    "rl_gamma": Row("algo.gamma", PPO, 0.9, 0.99),
    "rl_gae_lambda": Row("algo.lam", PPO, 0.9, 0.99),
    "rl_kl_coef": Row("algo.kl_coef", RL, 0.01, 0.5),
    "rl_value_loss_coef": Row("algo.vf_coef", PPO, 0.5, 2.0),
    "rl_clip_range": Row("algo.eps_clip", RL, 0.1, 0.3),
    "rl_value_clip_range": Row("algo.value_clip", PPO, 0),
    "rl_num_ppo_epochs": Row("train.num_update_steps", RL, 1),
    "rl_mini_batch_size": Row(None, RL, 1),
    "rl_rollout_batch_size": Row(None, RL, 1),
    "rl_num_generations": Row(None, RL, 1),
    "rl_chunk_size": Row("train.chunk_tokens", RL, 1),
    "rl_optimize_device_cache": Row("train.empty_device_cache"),
    "rl_max_new_tokens": Row("rollout.max_new_tokens", RL, 1),
    "rl_top_k": Row("rollout.top_k", RL, 0),
    "rl_top_p": Row("rollout.top_p", RL, 0, 1),
    "rl_temperature": Row("rollout.temperature"),
    "rl_reward_fn": Row(None),
    "rl_multi_objective": Row("env.rl_multi_objective"),
    "rl_reward_weights": Row("env.rl_reward_weights"),
    "rl_env_type": Row("env.rl_env_type"),
    "rl_env_config": Row("env.rl_env_config"),
}


def check_params(params: "LLMTrainingParams") -> None:
    """Refuse what is of the wrong type or out of range, what the trainer does not read, and reinforcement learning without
    a reward.

    Raises:
        UserError: says what was given and what is allowed.
    """
    kinds = _kinds()
    for f in fields(params):
        value, row = getattr(params, f.name), TABLE[f.name]
        try:
            kinds[f.name].validate_python(value, strict=True)
        except ValidationError as error:
            raise UserError(f"{f.name} {value!r}: {error.errors()[0]['msg']}") from None
        if value is not None and not row.allows(value):
            raise UserError(f"{f.name} {value}: must be {row.range} (`rlvr train` takes values beyond)")
    for f in fields(params):
        value, row = getattr(params, f.name), TABLE[f.name]
        if params.trainer not in row.trainers and value != f.default:
            raise UserError(
                f"{f.name} {value!r} has no effect with trainer {params.trainer}; it belongs to {', '.join(row.trainers)}: leave "
                "it out"
            )
    if params.trainer in RL:
        _check_reward(params)


@cache
def _kinds() -> dict[str, TypeAdapter[Any]]:
    from rlvr.compat.llm import LLMTrainingParams

    return {name: TypeAdapter(hint) for name, hint in get_type_hints(LLMTrainingParams).items()}


def _check_reward(params: "LLMTrainingParams") -> None:
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
