"""When each setting of a Ray run is read, and which settings such a run does not read."""

from rlvr.checks.unread import Rule
from rlvr.config import Config
from rlvr.core.advantages import get_estimator


def _has_critic(c: Config) -> bool:
    return get_estimator(c.algo.estimator).critic and not c.model.share_trunk


def _no_critic(c: Config) -> str:
    return " with --share_trunk" if c.model.share_trunk else f": --estimator {c.algo.estimator} has no critic"


def _has_initial(c: Config) -> bool:
    return c.algo.kl_coef > 0 and (c.model.lora_config is None or c.model.ref_model is not None)


def _no_initial(c: Config) -> str:
    return " at --kl_coef 0" if not c.algo.kl_coef else ": with LoRA the reference is the actor with its adapter off"


def _pays_neural(c: Config) -> bool:
    return c.model.rm_checkpoint_path is not None


ON_RAY = (
    Rule(
        "ray",
        (
            "ray_address", "num_actor_nodes", "num_critic_nodes", "num_initial_nodes", "num_reward_nodes", "num_rollout_nodes",
            "num_gpus_per_node", "num_gpus_per_process", "num_cpus_per_node", "min_reward_workers", "max_reward_workers", "one_step_off_policy",
        ),
        lambda c: c.ray.ray,
        lambda c: " without --ray",
        lambda c: "Leave it out, or give --ray",
        off=(False,),
    ),
    Rule("ray", ("num_critic_nodes",), _has_critic, _no_critic),
    Rule("ray", ("num_initial_nodes",), _has_initial, _no_initial),
    Rule(
        "ray",
        ("num_reward_nodes",),
        _pays_neural,
        lambda c: ": they are for a neural reward model; rules run in --min_reward_workers to --max_reward_workers processes",
    ),
    Rule(
        "ray",
        ("min_reward_workers", "max_reward_workers"),
        lambda c: not _pays_neural(c),
        lambda c: ": with a neural reward model, rules run in its processes (--num_reward_nodes)",
    ),
    Rule(
        "ray",
        ("num_rollout_nodes",),
        lambda c: c.ray.one_step_off_policy,
        lambda c: " without --one_step_off_policy: the actor itself generates",
    ),
    Rule(
        "train",
        ("buffer_cpu_offload",),
        lambda c: not c.ray.ray,
        lambda c: " with --ray: experience is in the driver's main memory",
        off=(True,),
    ),
    Rule(
        "train",
        ("offload_inference_models", "empty_device_cache"),
        lambda c: not c.ray.ray,
        lambda c: " with --ray: each role has a device of its own",
        off=(True,),
    ),
)  # fmt: skip
