"""The settings of a run on a Ray cluster."""

from dataclasses import dataclass


@dataclass
class RayConfig:
    """Roles as actor groups on a Ray cluster."""

    ray: bool = False
    """Run each role (actor, critic, reference, rewards) in processes of its own on a Ray cluster; one is started on this
    machine where `--ray_address` names none. Needs the package ray."""
    ray_address: str | None = None
    """Ray cluster to join: `HOST:PORT` of its head, or `auto` for the one that runs on this machine."""
    num_actor_nodes: int = 1
    """Nodes of the actor."""
    num_critic_nodes: int = 1
    """Nodes of the critic."""
    num_initial_nodes: int = 1
    """Nodes of the reference model."""
    num_reward_nodes: int = 1
    """Nodes of the neural reward model."""
    num_rollout_nodes: int = 1
    """Nodes of the copies of the actor that generate one step ahead."""
    num_gpus_per_node: int | None = None
    """Processes of each role on each of its nodes, each with a GPU; 0: they run on CPUs. Default: 1, and 0 on a cluster
    without GPUs."""
    num_gpus_per_process: float = 1.0
    """Share of a GPU that each process takes: 0.25 lets four roles have one GPU between them."""
    num_cpus_per_node: int = 1
    """Processes of each role on each of its nodes, where they run on CPUs."""
    min_reward_workers: int = 1
    """Processes that run the reward functions, wherever in the cluster a CPU is free; there are always so many."""
    max_reward_workers: int = 4
    """Most of those processes, started while responses wait to be scored, and ended when there is nothing to do."""
    one_step_off_policy: bool = False
    """Generate the next episode's responses while this one's are learned from, with the weights from before; needs
    `--tis_cap`, which corrects for it."""
