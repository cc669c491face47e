"""`SFTConfig` and `RewardTrainingConfig`: every setting of supervised fine-tuning and of training a reward model.

Settings that PPO runs have too are in `rlvr.config.shared`. A field here that has a counterpart there has its name, so that
flags are the same in all commands.
"""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from rlvr.config import conditions as run
from rlvr.config.fields import FREE, GROWS, alias, at_least, free_on_resume, read_when
from rlvr.config.shared import (
    BatchSize,
    CheckpointConfig,
    LearningRate,
    OutputConfig,
    ParallelConfig,
    Share,
    StartConfig,
    StepConfig,
    TemplateConfig,
)
from rlvr.config.tree import forbid_unknown


@dataclass
class HeldOutConfig:
    """Settings that both kinds of data have."""

    prompt_text_column: Annotated[str | None, read_when(run.reads_examples_from_files)] = None
    """Column with the prompt, a text taken as it is or a list of chat messages. Default: `prompt` where there is one."""
    question_column: Annotated[str | None, read_when(run.reads_examples_from_files)] = None
    """Column with a question that goes through the conversation template. Default: `question` where there is one."""
    max_samples: Annotated[int | None, at_least(1)] = None
    """Use at most this many rows."""
    max_length: Annotated[int, alias("max_len"), at_least(1)] = 2048
    """Most tokens of a row."""
    eval_dataset: Annotated[list[str], FREE] = field(default_factory=list)
    """Held-out data. Default: the test split of the built-in problems when training on them, else none."""
    eval_share: Share = 0.0
    """Share of the data that is held out, drawn by the seed; rows with the same prompt stay together."""


@dataclass
class ExamplesConfig(HeldOutConfig):
    """Examples to learn from and to evaluate on."""

    dataset: Annotated[list[str], alias("data_path")] = field(default_factory=lambda: ["builtin"])
    """`builtin`, `arithmetic@LEVEL` or `word_problems@LEVEL` (worked examples), JSONL, CSV or Parquet files, folders, or hub names (`owner/name@config:split#revision`); several are joined."""
    text_column: Annotated[str | None, read_when(run.reads_examples_from_files)] = None
    """Column with the response to `--prompt_text_column`; alone: with a whole text, or with a list of chat messages."""
    answer_column: Annotated[str | None, read_when(run.reads_examples_from_files)] = None
    """Column with the response to `--question_column`. Default: `answer`."""
    overlong_rows: Literal["drop", "truncate"] = "drop"
    """Rows longer than `--max_length`: drop (and count) them, or cut them on the right."""


@dataclass
class PairsConfig(HeldOutConfig):
    """Pairs of responses to learn from and to evaluate on. Pairs longer than `--max_length` are left out and counted."""

    preference_dataset: Annotated[list[str], alias("dataset", "data_path")] = field(default_factory=lambda: ["builtin"])
    """`builtin` (worked right answers against worse ones), JSONL, CSV or Parquet files, folders, or hub names; several are joined."""
    text_column: Annotated[str | None, read_when(run.reads_examples_from_files)] = None
    """Column with the better response: a text or a list of chat messages. Default: `chosen`."""
    rejected_text_column: Annotated[str | None, read_when(run.reads_examples_from_files)] = None
    """Column with the worse response. Default: `rejected`."""
    margin_column: Annotated[str | None, read_when(run.reads_examples_from_files)] = None
    """Column with the least difference of the scores. Default: `margin` where there is one, else 0."""


@dataclass
class LoopConfig(StepConfig):
    """The loop. Batch sizes count rows over all processes, so that their number changes nothing but speed."""

    train_batch_size: Annotated[BatchSize, alias("batch_size")] = 16
    num_epochs: Annotated[int, alias("max_epochs", "num_train_epochs"), at_least(1), GROWS] = 1
    """Passes over the data."""
    max_steps: Annotated[int | None, at_least(1), GROWS] = None
    """Optimizer steps, in place of `--num_epochs`."""


@dataclass
class SFTLoopConfig(LoopConfig):
    """The loop. Batch sizes count rows over all processes, so that their number changes nothing but speed."""

    lr: LearningRate = 2e-5
    packing: bool = False
    """Put several examples into one row, none of which sees another, where rows don't run without padding anyway: the same
    result with less padding."""


@dataclass
class RewardLoopConfig(LoopConfig):
    """The loop. Batch sizes count pairs over all processes, so that their number changes nothing but speed."""

    center_rewards_coefficient: Annotated[float, at_least(0, "; 0 = off")] = 0.0
    """Weight of (chosen score + rejected score)², which keeps scores around 0 (Eisenstein et al. 2023); try 0.01."""


@free_on_resume
@dataclass
class IntervalConfig:
    """Held-out loss and, for reward models, accuracy and calibration."""

    eval_interval: Annotated[int, at_least(0), read_when(run.has_held_out_rows, off=0)] = 0
    """Optimizer steps between evaluations; 0 = before and after training only."""
    eval_samples: Annotated[int | None, at_least(1), read_when(run.has_held_out_rows, off=None)] = None
    """Evaluate on at most this many held-out rows. Default: all of them (of the built-in data, 512)."""


@dataclass
class RowsConfig(OutputConfig):
    """Logs, trackers and the progress view."""

    log_interval: Annotated[int, at_least(1)] = 10
    """Optimizer steps between rows of metrics."""


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
