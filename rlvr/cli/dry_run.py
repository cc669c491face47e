"""`--dry_run` of `rlvr train`, `rlvr sft` and `rlvr reward-model`: the settings, data, batches, memory and disk of the run.

No model is loaded, nothing is trained or written, and no process group is joined: rank and world size come from torchrun's
variables. Data that lies here is read, and so are reward functions; nothing is fetched from the hub.
"""

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rewards import resolve
from rlvr.boost.plugins import check_plugin, resolve_precision
from rlvr.boost.process import local_device
from rlvr.config import Config, ParallelConfig, RewardTrainingConfig, SFTConfig, is_generated
from rlvr.config.catalog import catalog, show
from rlvr.config.flags import Parsed
from rlvr.config.reward_options import function_names
from rlvr.data.problems import with_good_golds
from rlvr.data.readers import read_training_problems
from rlvr.data.rows import locate
from rlvr.errors import UserError, escape_control_characters
from rlvr.memory.estimate import (
    ADAM,
    FLOAT32,
    FROZEN,
    Estimate,
    estimate,
    estimate_supervised,
    micro_batch_rows,
    rows_of_a_pass,
)
from rlvr.memory.limit import fit_memory, needed_bytes
from rlvr.memory.usage import readable
from rlvr.validate.ppo import BatchPlan, plan_batches

AnyConfig = SFTConfig | RewardTrainingConfig

NAME_WIDTH, VALUE_WIDTH = 30, 36


def dry_run(parsed: Parsed[Config]) -> None:
    """Print the settings, which are already checked, the batch arithmetic and the memory estimate; once, under torchrun too.

    Raises:
        UserError: settings that can't be used, or a model whose configuration can't be read.
    """
    config = parsed.config
    launch = detect_launch(config.parallel)
    plan = plan_batches(config, launch.world_size)
    if launch.rank:
        return
    data = [*_data_lines(config, plan)]
    cut = fit_memory(config, launch.world_size, launch.device)
    memory = estimate(config, launch.world_size, launch.precision, on_gpu=launch.device.type != "cpu")
    print_parts(
        settings_lines(parsed),
        data,
        _batch_lines(config, plan, launch.world_size),
        memory_lines(memory, launch, config.parallel, cut),
        disk_lines(memory, config),
    )


def supervised_dry_run(parsed: Parsed[SFTConfig] | Parsed[RewardTrainingConfig]) -> None:
    """Print the settings, which are already checked, the batch arithmetic and the memory estimate; once, under torchrun too.

    Raises:
        UserError: a plugin or batch size that can't be used here, or a model whose configuration can't be read.
    """
    config: AnyConfig = parsed.config
    launch = detect_launch(config.parallel)
    if config.train.train_batch_size % launch.world_size:
        raise UserError(
            f"--train_batch_size {config.train.train_batch_size} does not divide among {launch.world_size} processes: give a "
            f"multiple of {launch.world_size}"
        )
    if launch.rank:
        return
    cut = fit_memory(config, launch.world_size, launch.device)
    memory = estimate_supervised(config, launch.world_size, launch.precision, on_gpu=launch.device.type != "cpu")
    print_parts(
        settings_lines(parsed),
        _supervised_batch_lines(config, launch.world_size),
        memory_lines(memory, launch, config.parallel, cut),
        disk_lines(memory, config),
    )


@dataclass(frozen=True)
class Launch:
    """The process that was started, and what it would compute on."""

    rank: int
    world_size: int
    device: torch.device
    precision: str


def detect_launch(parallel: ParallelConfig) -> Launch:
    """The launch, from torchrun's variables and this machine's devices.

    Raises:
        UserError: the plugin does not run here.
    """
    world_size, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    device = local_device()
    check_plugin(parallel, device)
    return Launch(rank, world_size, device, resolve_precision(parallel.mixed_precision, device))


def print_parts(*parts: Iterable[str]) -> None:
    """Print the parts with a blank line after each, and that nothing was trained."""
    for part in parts:
        print("\n".join(part), end="\n\n")
    print("dry run: no model was loaded, nothing was trained or written; the template is tried when training begins")


def settings_lines(parsed: Parsed[Any]) -> Iterator[str]:
    """Every setting; `*` marks what differs from the defaults, with where it comes from."""
    yield "settings (* = not the default, and where it comes from)"
    kind: type = type(parsed.config)
    for section in catalog(kind):
        yield f"{section.name}:"
        for flag in section.flags:
            value = getattr(getattr(parsed.config, section.name), flag.name)
            origin, differs = parsed.origins[flag.place], value != flag.default
            mark = "*" if differs else " "
            said = origin if differs or origin in ("flag", "file") else ""
            yield f" {mark} {flag.name:<{NAME_WIDTH}} {show(value):<{VALUE_WIDTH}} {said}".rstrip()


def _data_lines(config: Config, plan: BatchPlan) -> Iterator[str]:
    """The problems, read as training reads them.

    Raises:
        UserError: they can't be read, lack a column, or none has a usable answer.
    """
    yield "data"
    if any(not isinstance(where, Path) for where in map(locate, _files(config))) or _is_address(config):
        yield "  is fetched and checked when training begins"
        return
    notes: list[str] = []
    functions = [resolve(name) for name in function_names(config)]
    problems = with_good_golds(read_training_problems(config.data), notes, functions)
    asked = plan.num_episodes * config.train.num_collect_steps * plan.prompts_per_step
    yield f"  {len(problems):,} problems; the run asks {asked:,} times: {asked / len(problems):.2g} pass(es) over them"
    yield from (f"  note: {escape_control_characters(note)}" for note in notes)


def _files(config: Config) -> list[str]:
    if config.data.prompt_csv_url is not None:
        return []
    return [source for source in config.data.prompt_dataset if not is_generated(source)]


def _is_address(config: Config) -> bool:
    return (config.data.prompt_csv_url or "").startswith(("http://", "https://"))


def _batch_lines(config: Config, plan: BatchPlan, world_size: int) -> Iterator[str]:
    r, t = config.rollout, config.train
    rows = micro_batch_rows(config, world_size, r.max_length)
    replicas = max(1, world_size // config.parallel.replica_size)
    local = t.train_batch_size * t.accumulation_steps // replicas
    samples = t.num_collect_steps * r.experience_batch_size
    kept = "" if samples == plan.samples_per_episode else f", of which --buffer_limit keeps {plan.samples_per_episode}"
    yield "batches"
    yield f"  a collect step     {plan.prompts_per_step} prompts x {r.num_generations} = {r.experience_batch_size} responses"
    yield f"  an episode         {t.num_collect_steps} collect step(s) = {samples} responses{kept}"
    yield f"                     {t.num_update_steps} pass(es) x {plan.steps_per_epoch} = " + (
        f"{t.num_update_steps * plan.steps_per_epoch} optimizer steps"
    )
    yield (
        f"  an optimizer step  {local * replicas} responses, {local} in each process: at least {-(-local // rows)} "
        + (f"micro-batch(es) of up to {rows}")
    )
    yield f"  the run            {plan.num_episodes} episodes, {plan.num_episodes * samples} responses, " + (
        f"{plan.total_steps} optimizer steps ({plan.actor_steps} of the actor)"
    )


def _supervised_batch_lines(config: AnyConfig, world_size: int) -> Iterator[str]:
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


def memory_lines(memory: Estimate, launch: Launch, parallel: ParallelConfig, cut: str | None = None) -> Iterator[str]:
    """The estimate by role and phase, the whole that `--memory_limit` is compared with, and what it has cut."""
    head = f"on {launch.world_size} process(es), {launch.device.type}, {parallel.plugin}, {launch.precision}"
    yield f"memory of one process {head}: about {readable(memory.peak)}, an estimate at the longest sequences allowed"
    yield f"  {'role':<20}{'weights':>12}{'bytes':>12}{'gradients':>12}{'optimizer':>12}"
    for role in memory.roles:
        sizes = (readable(size) for size in (role.parameters, role.gradients, role.optimizer))
        yield f"  {role.name:<20}{role.count + role.packed:>12,}" + "".join(f"{size:>12}" for size in sizes)
    yield f"  {'phase':<20}{'at its peak':>12}{'models hold':>12}  and besides"
    for phase in memory.phases:
        passing = ", ".join(f"{name} {readable(size)}" for name, size in phase.passing.items() if size)
        yield f"  {phase.name:<20}{readable(phase.peak):>12}{readable(phase.held):>12}  {passing}"
    needed = needed_bytes(memory, launch.device.type != "cpu")
    yield f"  with libraries, and gaps that freed tensors leave, the process takes about {readable(needed)}: what --memory_limit bounds"
    if cut is not None:
        yield f"  {cut}"
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if launch.device.type == "cpu" else 1
    room = memory_of(launch.device)
    if room is not None and needed * processes > room:
        yield (
            f"  WARNING: this does not fit: {launch.device.type} has {readable(room)}"
            + (f" for {processes} processes" if processes > 1 else "")
            + ". What helps: fewer --generation_batch_size and --train_batch_size (with more --accumulation_steps), a lower --max_length, "
            "--grad_checkpoint, --lora_config (and --load_in_4bit with it), or a plugin that shards"
        )


def memory_of(device: torch.device) -> int | None:
    """Bytes of the device's memory, or of what this process may use of the machine's; None where the system does not say."""
    if device.type != "cpu":
        return int(torch.get_device_module(device).mem_get_info(device)[1])
    try:
        limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    except (AttributeError, ValueError, OSError):
        return None
    for place in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # no limit, or another kind of control groups
            limits.append(int(Path(place).read_text()))
    return min(limits)


def disk_lines(memory: Estimate, config: Config | AnyConfig) -> Iterator[str]:
    """What checkpoints and results take. Adapters are not counted: they are small beside whole models."""
    if config.model.lora_config is not None:
        return
    learned = sum(role.count for role in memory.roles if role.name not in FROZEN)
    each, result = learned * (FLOAT32 + ADAM), learned * FLOAT32
    kept = config.ckpt.keep_checkpoints if config.ckpt.save_interval else 1
    folder = Path(config.ckpt.save_path or "runs")
    there = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    most, free = each * (kept + 1) + result, shutil.disk_usage(there).free
    yield f"disk: {readable(each)} for each checkpoint, {readable(result)} for the result: at most {readable(most)} at a time"
    if most > free:
        yield f"  WARNING: {there} has {readable(free)} left: give another --save_path, or fewer --keep_checkpoints"
