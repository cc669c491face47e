"""`rlvr train --dry_run`: what the run would be, without training, loading weights, or writing anything."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from rlvr.boost.plugins import check_plugin, resolve_precision
from rlvr.boost.use import readable
from rlvr.checks.settings import BatchPlan, plan_batches
from rlvr.config import Config, ParallelConfig
from rlvr.config.catalog import catalog
from rlvr.config.flags import Parsed
from rlvr.config.help import show
from rlvr.memory import Estimate, estimate, micro_batch_rows

NAME_WIDTH, VALUE_WIDTH = 30, 36


def dry_run(parsed: Parsed[Config]) -> None:
    """Print the settings, which are already checked, the batch arithmetic and the memory estimate; once, under torchrun too.

    Raises:
        UserError: settings that can't be used, or a model whose configuration can't be read.
    """
    config = parsed.config
    place = find_place(config.parallel)
    plan = plan_batches(config, place.world_size)
    if place.rank:
        return
    memory = estimate(config, place.world_size, place.precision, on_gpu=place.device.type == "cuda")
    tell(settings_part(parsed), _batches(config, plan, place.world_size), memory_part(memory, place, config.parallel))


@dataclass(frozen=True)
class Place:
    """Where the run would be, found out without joining a process group."""

    rank: int
    world_size: int
    device: torch.device
    precision: str


def find_place(parallel: ParallelConfig) -> Place:
    """From torchrun's variables and this machine.

    Raises:
        UserError: the plugin does not run here.
    """
    world_size, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    check_plugin(parallel, device)
    return Place(rank, world_size, device, resolve_precision(parallel.mixed_precision, device))


def tell(*parts: Iterable[str]) -> None:
    """Print the parts, and that this was all."""
    for part in parts:
        print("\n".join(part), end="\n\n")
    print("dry run: nothing was trained, loaded or written; data and template are checked when training begins")


def settings_part(parsed: Parsed[Any]) -> Iterator[str]:
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


def _batches(config: Config, plan: BatchPlan, world_size: int) -> Iterator[str]:
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


def memory_part(memory: Estimate, place: Place, parallel: ParallelConfig) -> Iterator[str]:
    """The estimate by role and phase."""
    head = f"on {place.world_size} process(es), {place.device.type}, {parallel.plugin}, {place.precision}"
    yield f"memory of one process {head}: about {readable(memory.peak)}, an estimate at the longest sequences allowed"
    yield f"  {'role':<20}{'weights':>12}{'bytes':>12}{'gradients':>12}{'optimizer':>12}"
    for role in memory.roles:
        sizes = (readable(size) for size in (role.parameters, role.gradients, role.optimizer))
        yield f"  {role.name:<20}{role.count:>12,}" + "".join(f"{size:>12}" for size in sizes)
    yield f"  {'phase':<20}{'at its peak':>12}{'models hold':>12}  and besides"
    for phase in memory.phases:
        passing = ", ".join(f"{name} {readable(size)}" for name, size in phase.passing.items() if size)
        yield f"  {phase.name:<20}{readable(phase.peak):>12}{readable(phase.held):>12}  {passing}"
