"""The classes of ColossalAI's Ray script, each where it does what it did there."""

import inspect

import pytest

from rlvr.errors import UserError
from rlvr.ray import experience, groups, roles
from rlvr.ray.groups import Size


@pytest.mark.parametrize(
    ("module", "name", "base"),
    [
        (roles, "DistributedTorchRayActor", "object"),
        (roles, "BasePPORole", "DistributedTorchRayActor"),
        (roles, "TrainablePPORole", "BasePPORole"),
        (roles, "RayPPOActor", "TrainablePPORole"),
        (roles, "RayPPOCritic", "TrainablePPORole"),
        (roles, "RayPPORewardModel", "BasePPORole"),
        (roles, "RayPPOInitialModel", "BasePPORole"),
        (groups, "PPORayActorGroup", "object"),
        (groups, "TrainableModelRayActorGroup", "PPORayActorGroup"),
        (groups, "PPOActorRayActorGroup", "TrainableModelRayActorGroup"),
        (groups, "PPOCriticRayActorGroup", "TrainableModelRayActorGroup"),
        (groups, "PPOInitialRayActorGroup", "PPORayActorGroup"),
        (groups, "PPORewardRayActorGroup", "PPORayActorGroup"),
        (experience, "ExperienceCompositionRefs", "object"),
        (experience, "ExperienceMaker", "BaseExperienceMaker"),
    ],
)
def test_every_class_of_the_script_has_its_place(module, name, base) -> None:
    assert base in [kind.__name__ for kind in inspect.getmro(getattr(module, name))]


def test_arguments_have_the_scripts_names() -> None:
    given = list(inspect.signature(roles.DistributedTorchRayActor).parameters)
    assert given[:5] == ["world_size", "rank", "local_rank", "master_addr", "master_port"]
    assert list(inspect.signature(experience.ExperienceCompositionRefs).parameters) == [
        "sequences_attention_mask_action_mask_ref",
        "action_log_probs_ref",
        "base_action_log_probs_ref",
        "value_ref",
        "r_ref",
    ]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: experience.ExperienceMaker(kl_coef=0.1), "kl_coef is a setting: .*--kl_coef 0.1"),
        (lambda: experience.ExperienceMaker(0.1), "kl_coef is a setting"),
        (lambda: experience.ExperienceCompositionRefs([], [], [], [], r_ref=[1.0]), r"r_ref=...\): leave it out"),
    ],
)
def test_what_the_scripts_classes_do_otherwise_is_told(call, said) -> None:
    with pytest.raises(UserError, match=said):
        call()


def test_a_process_finds_its_group_by_the_environment(monkeypatch) -> None:
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "unset")
    first = roles.DistributedTorchRayActor(4, 0, 0, None, None, 2)
    address, port = first.address()
    assert address and 0 < port < 65536
    roles.DistributedTorchRayActor(4, 3, 1, address, port, 2)
    import os

    found = [os.environ[name] for name in ("WORLD_SIZE", "RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")]
    assert found == ["4", "3", "2", address, str(port)]
    assert Size(2, 2, 0).world_size == 4
