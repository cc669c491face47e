"""`rlvr sft --dry_run`, `rlvr reward-model --dry_run`: what the run would be, without loading or writing anything."""

from collections.abc import Iterator

from rlvr.config import RewardTrainingConfig, SFTConfig
from rlvr.config.flags import Parsed
from rlvr.errors import UserError
from rlvr.memory_supervised import estimate, rows_of_a_pass
from rlvr.tools.dry_run import find_place, memory_part, settings_part, tell

AnyConfig = SFTConfig | RewardTrainingConfig


def supervised_dry_run(parsed: Parsed[SFTConfig] | Parsed[RewardTrainingConfig]) -> None:
    """Print the settings, which are already checked, the batch arithmetic and the memory estimate; once, under torchrun too.

    Raises:
        UserError: a plugin or batch size that can't be used here, or a model whose configuration can't be read.
    """
    config: AnyConfig = parsed.config
    place = find_place(config.parallel)
    if config.train.train_batch_size % place.world_size:
        raise UserError(
            f"--train_batch_size {config.train.train_batch_size} does not divide among {place.world_size} processes: give a "
            f"multiple of {place.world_size}"
        )
    if place.rank:
        return
    memory = estimate(config, place.world_size, place.precision, on_gpu=place.device.type == "cuda")
    tell(settings_part(parsed), _batches(config, place.world_size), memory_part(memory, place, config.parallel))


def _batches(config: AnyConfig, world_size: int) -> Iterator[str]:
    t = config.train
    what = "rows" if isinstance(config, SFTConfig) else "pairs"
    size = t.train_batch_size * t.accumulation_steps
    local, rows = size // world_size, rows_of_a_pass(config, world_size)
    yield "batches"
    yield f"  an optimizer step  {size} {what}, {local} in each process: at least {-(-local // rows)} pass(es) of up to {rows}"
    if t.max_steps:
        yield f"  the run            {t.max_steps} optimizer steps, {t.max_steps * size} {what}"
        return
    most = config.data.max_samples
    steps = f"at most {-(-t.num_epochs * most // size)} optimizer steps" if most else "the data says how many steps"
    yield f"  the run            {t.num_epochs} pass(es) over the data: {steps}"
