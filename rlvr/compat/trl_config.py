"""`PPOConfig` with the fields of TRL's (experimental/ppo/ppo_config.py, 1.12) that mean something here.

Where TRL's trainer and its documentation differ, the documentation holds: `num_mini_batches` is the number of optimizer
steps in a pass, `max_grad_norm` clips, and rewards are whitened over all processes. Defaults are TRL's, but for
`gradient_checkpointing` (off here) and `bf16` (where the hardware is fast in it).
"""

from dataclasses import dataclass, fields
from typing import Any, Literal

from rlvr.errors import UserError, did_you_mean

# Why fields of TRL's are refused; each follows the field's name in a message.
_COMPUTED = (
    "is computed from per_device_train_batch_size, gradient_accumulation_steps, num_mini_batches and the processes"
)
_MODELS = "is read by TRL's example script only: pass the model itself to PPOTrainer"
_ADAPTERS = "chooses among LoRA adapters; here LoRA is `rlvr train --lora_config FILE`"
_HUB = "would upload the model: do that yourself with what save_model wrote"
_DEEPSPEED = "belongs to DeepSpeed; models are sharded by ColossalAI here: PPOConfig(plugin='zero2')"
_REFUSED = {
    **dict.fromkeys(("world_size", "num_total_batches", "micro_batch_size", "local_batch_size"), _COMPUTED),
    **dict.fromkeys(("batch_size", "local_mini_batch_size", "mini_batch_size"), _COMPUTED),
    **dict.fromkeys(("sft_model_path", "reward_model_path"), _MODELS),
    **dict.fromkeys(("model_adapter_name", "ref_adapter_name"), _ADAPTERS),
    **dict.fromkeys(("push_to_hub", "hub_model_id", "hub_strategy", "hub_token", "hub_private_repo"), _HUB),
    **dict.fromkeys(("deepspeed", "ds3_gather_for_generation"), _DEEPSPEED),
    "fsdp": "is how transformers asks for PyTorch's FSDP; here: PPOConfig(plugin='fsdp')",
    "dataset_num_proc": "has nothing to do: prompts are encoded in one process",
    "optim": "would choose the optimizer, which is AdamW here",
    "eval_strategy": "has no effect: num_sample_generations says how often eval_dataset is answered",
    "eval_steps": "has no effect: num_sample_generations says how often eval_dataset is answered",
    "logging_steps": "has no effect: every update is logged",
    "load_best_model_at_end": "has no measure to choose by",
    "remove_unused_columns": "has no effect: reward functions may ask for every column of the data",
}


# Ranges.
_AT_LEAST = {
    "total_episodes": 1, "num_train_epochs": 0, "num_ppo_epochs": 1, "num_mini_batches": 1, "per_device_train_batch_size": 1,
    "gradient_accumulation_steps": 1, "per_device_eval_batch_size": 1, "local_rollout_forward_batch_size": 1,
    "response_length": 1, "missing_eos_penalty": 0, "kl_coef": 0, "cliprange": 0, "cliprange_value": 0, "vf_coef": 0,
    "learning_rate": 0, "warmup_steps": 0, "weight_decay": 0, "max_grad_norm": 0, "num_sample_generations": 0,
    "save_steps": 1, "save_total_limit": 1,
}  # fmt: skip
_ONE_OF: dict[str, tuple[Any, ...]] = {
    "stop_token": (None, "eos"),
    "kl_estimator": ("k1",),
    "lr_scheduler_type": ("linear", "cosine", "constant", "constant_with_warmup"),
    "plugin": ("ddp", "zero1", "zero2", "zero2_cpu", "fsdp"),
    "save_strategy": ("no", "steps"),
    "report_to": ("none", "tensorboard", "wandb"),
}


@dataclass(kw_only=True)
class PPOConfig:
    """Settings of a run; an "update" is one round of sampling responses and learning from them.

    Raises:
        UserError: a field of TRL's that can't be honoured, with the reason; an unknown one; a value out of range.
    """

    output_dir: str | None = None
    """Folder of the run: checkpoints, metrics.jsonl, and in the end the models. Default: nothing is saved."""
    total_episodes: int | None = None
    """Responses of the whole run, rounded up to whole updates. Default: `num_train_epochs` times the prompts."""
    num_train_epochs: float = 3.0
    """Passes over the prompts, where `total_episodes` does not say how long to train."""
    num_ppo_epochs: int = 4
    """Passes over the responses of an update."""
    num_mini_batches: int = 1
    """Optimizer steps in such a pass."""
    per_device_train_batch_size: int = 8
    """Responses in one forward and backward pass of one process."""
    gradient_accumulation_steps: int = 1
    """Such passes over an update's responses: an update has this times `per_device_train_batch_size` in each process."""
    per_device_eval_batch_size: int = 8
    """Prompts of `eval_dataset` that are answered each time."""
    local_rollout_forward_batch_size: int = 64
    """Most responses that a process samples or scores at once."""
    response_length: int = 53
    """Most tokens of a response."""
    temperature: float = 0.7
    """Of sampling; it applies to old, new and reference logprobs alike."""
    stop_token: Literal["eos"] | None = None
    """`"eos"`: the tokenizer's end token ends a response. Default: none does, unless `stop_token_id`."""
    stop_token_id: int | None = None
    """Token that ends a response."""
    missing_eos_penalty: float | None = None
    """Taken off the score of a response that did not end by itself."""
    kl_coef: float = 0.05
    """Price of one nat of divergence from the reference model; 0 does without one."""
    kl_estimator: Literal["k1"] = "k1"
    """Estimator of the divergence, which is part of the reward. TRL's k3 is refused: its gradient there is wrong."""
    cliprange: float = 0.2
    """Clip range of the ratio."""
    cliprange_value: float = 0.2
    """Clip range of the value's change."""
    vf_coef: float = 0.1
    """Weight of the value loss. Policy and value model have an optimizer each, so it only matters where gradients are clipped."""
    gamma: float = 1.0
    """Discount per token."""
    lam: float = 0.95
    """Lambda of generalised advantage estimation."""
    whiten_rewards: bool = False
    """Bring the tokens' rewards to variance 1, with their mean as it is."""
    learning_rate: float = 3e-6
    """Peak rate of policy and value model."""
    lr_scheduler_type: Literal["linear", "cosine", "constant", "constant_with_warmup"] = "linear"
    """Transformers' schedule of this name, over all optimizer steps."""
    warmup_steps: float = 0
    """Optimizer steps of warm-up; below 1 a share of all."""
    weight_decay: float = 0.0
    """AdamW's."""
    adam_beta1: float = 0.9
    """AdamW's."""
    adam_beta2: float = 0.999
    """AdamW's."""
    adam_epsilon: float = 1e-8
    """AdamW's."""
    max_grad_norm: float = 1.0
    """Norm to which gradients are clipped; 0 = off."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass."""
    bf16: bool | None = None
    """Compute in bfloat16. Default: where the hardware is fast in it."""
    fp16: bool = False
    """Compute in float16 (needs CUDA)."""
    plugin: Literal["ddp", "zero1", "zero2", "zero2_cpu", "fsdp"] = "ddp"
    """Booster plugin: plain data parallelism, or with sharded optimizer (zero1), gradients (zero2) and weights (fsdp)."""
    num_sample_generations: int = 10
    """How often in the run `eval_dataset` is answered and shown; 0 = never."""
    save_strategy: Literal["no", "steps"] = "steps"
    """`"steps"`: a checkpoint every `save_steps` updates, and one at the end."""
    save_steps: int = 500
    """Updates between checkpoints."""
    save_total_limit: int = 2
    """Checkpoints that stay."""
    logging_dir: str | None = None
    """Folder for TensorBoard."""
    report_to: Literal["none", "tensorboard", "wandb"] = "none"
    """Where metrics go besides metrics.jsonl."""
    disable_tqdm: bool = False
    """Print nothing."""
    seed: int = 42
    """Of data order, sampling, and a value head that is made anew."""

    def __new__(cls, *args: Any, **given: Any) -> "PPOConfig":
        """Only here to say why a field is refused; the dataclass does the rest."""
        known = [f.name for f in fields(cls)]
        for name in given:
            if name in _REFUSED:
                raise UserError(f"PPOConfig({name}=...): {name} {_REFUSED[name]}")
            if name not in known:
                raise UserError(
                    f"PPOConfig({name}=...): there is no such setting here; there are: {', '.join(known)}."
                    f"{did_you_mean(name, known)}"
                )
        return super().__new__(cls)

    def __post_init__(self) -> None:
        for name, least in _AT_LEAST.items():
            value = getattr(self, name)
            if value is not None and not value >= least:
                raise UserError(f"PPOConfig({name}={value}): must be at least {least}")
        for name in ("gamma", "lam"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"PPOConfig({name}={getattr(self, name)}): must lie between 0 and 1")
        if self.kl_estimator == "k3":
            raise UserError(
                "PPOConfig(kl_estimator='k3'): in the reward, where TRL's PPO has the divergence, k3 drives the policy away from "
                "the reference; give 'k1'"
            )
        for name, allowed in _ONE_OF.items():
            if getattr(self, name) not in allowed:
                raise UserError(
                    f"PPOConfig({name}={getattr(self, name)!r}): must be one of {', '.join(map(repr, allowed))}"
                )
        if not self.temperature > 0:
            raise UserError(f"PPOConfig(temperature={self.temperature}): must be above 0; PPO needs sampled responses")
        self._check_pairs()

    def _check_pairs(self) -> None:
        if self.stop_token and self.stop_token_id is not None:
            raise UserError("PPOConfig: stop_token and stop_token_id exclude each other; give one")
        if self.missing_eos_penalty is not None and not self.stops:
            raise UserError(
                "PPOConfig(missing_eos_penalty=...): no token ends a response, so each would pay it; give stop_token='eos'"
            )
        if self.bf16 and self.fp16:
            raise UserError("PPOConfig: bf16 and fp16 exclude each other; give one")
        if self.report_to == "tensorboard" and not (self.logging_dir or self.output_dir):
            raise UserError("PPOConfig(report_to='tensorboard') needs a folder: give logging_dir or output_dir")

    @property
    def stops(self) -> bool:
        """True where some token ends a response."""
        return self.stop_token is not None or self.stop_token_id is not None

    @property
    def precision(self) -> Literal["auto", "fp32", "bf16", "fp16"]:
        """The name of the precision in `rlvr.config`."""
        if self.fp16:
            return "fp16"
        return "auto" if self.bf16 is None else "bf16" if self.bf16 else "fp32"
