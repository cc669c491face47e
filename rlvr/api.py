"""`rlvr.train(config)`: a whole PPO run from one tree of settings.

Checks the settings, joins the process group, opens the run's folder, and trains by `rlvr.run.assembly`, here or on Ray. Supervised
runs are in `rlvr.run.supervised`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rlvr.boost.health import report_lost_processes
from rlvr.config import Config, base_config, by_section
from rlvr.errors import UserError
from rlvr.run import assembly
from rlvr.run.session import Session, join
from rlvr.validate.ppo import BatchPlan, check_config, plan_batches
from rlvr.validate.sources import check_sources


@report_lost_processes()
def train(config: Config | None = None, **settings: Any) -> Path:
    """Train a model by PPO or a relative of it, as the settings say. Returns the run's folder.

    Under torchrun, call it in every process. Without, it makes a process group of one.

    Args:
        config: all settings; or
        settings: those that differ from the defaults, by the names of their flags: `train(pretrain="tiny",
            reward_functions=["gsm8k_reward_fn"])`. The built-in model and a preset bring their own, as on the command line.

    Raises:
        UserError: settings, data, template, plugin or checkpoint that can't be used, or that differ between processes.
        ProcessesLost: another process is stuck, has ended, or can't be reached; a UserError too.
        Interrupted: after SIGINT or SIGTERM, with a checkpoint saved.
    """
    if config is not None and settings:
        raise UserError(f"train(config, {', '.join(settings)}=...): give a Config or single settings, not both")
    config = config or base_config(by_section(settings))
    check_config(config)
    check_sources(config)
    with hosted(config) as (session, plan, host):
        assembly.train(config, session, plan, host)
    return session.folder


@contextmanager
def hosted(config: Config) -> Iterator[tuple[Session, BatchPlan, assembly.Host]]:
    """The session of a run, its batch arithmetic, and what makes its roles: in this process group, or on Ray. Collective.

    Raises:
        UserError: as `train`.
    """
    if config.ray.ray:
        from rlvr.ray.train import on_ray

        with on_ray(config) as hosted_on_ray:
            yield hosted_on_ray
        return
    process = join(config)
    plan = plan_batches(config, process.world_size)
    with Session.open(config, process) as session:
        yield session, plan, assembly.LocalHost(config, session, plan, process)
