"""Imports point one way, and nothing heavy is loaded before it is needed."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.house import circle, import_graph

ROOT = Path(__file__).parents[1]

# A room may import from itself and from the rooms before it, at the top of a file or inside a function.
ROOMS = [
    "rewards",
    "rlvr.errors",
    "rlvr.core",
    "rlvr.config",
    "rlvr.data",
    "rlvr.models",
    "rlvr.prompting",
    "rlvr.boost",
    "rlvr.tracking",
    "rlvr.rollout",
    "rlvr.scorers",
    "rlvr.checkpoint",
    "rlvr.validate",
    "rlvr.memory",
    "rlvr.evaluation",
    "rlvr.experience",
    "rlvr.trainer",
    "rlvr.journal",
    "rlvr.report",
    "rlvr.leaderboard",
    "rlvr.chat",
    "rlvr.run",
    "rlvr.study",
    "rlvr.ray",
    "rlvr.api",
    "rlvr.replay",
    "rlvr.compat",
    "rlvr.cli",
    "rlvr.__main__",
    "scripts",
]
# These know nothing of any other room: rules without torch, mathematics without models.
ALONE = ("rewards", "rlvr.core")
LOOSE = 3


GRAPH = import_graph("rewards", "rlvr", "scripts")


def room_of(module: str) -> str:
    first, _, rest = module.partition(".")
    return first if first != "rlvr" else f"rlvr.{rest.partition('.')[0]}"


def test_every_module_lies_in_a_room() -> None:
    assert {room_of(module) for module in GRAPH} == set(ROOMS)
    assert len(list((ROOT / "rlvr").glob("*.py"))) <= LOOSE + 1, "loose modules beside rlvr/__init__.py"


@pytest.mark.parametrize("module", GRAPH)
def test_imports_point_one_way(module: str) -> None:
    own = room_of(module)
    for imported in GRAPH[module]:
        theirs = room_of(imported)
        assert ROOMS.index(theirs) <= ROOMS.index(own), f"{module} imports {imported}, whose room comes later"
        assert own not in ALONE or theirs == own, f"{module} must not import {imported}"


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Inside rooms too: a circle can only be understood as a whole."""
    assert circle(GRAPH) == "none"


def loaded_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(' '.join(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return {name.split(".")[0] for name in out.stdout.splitlines()[-1].split()}


def test_importing_rewards_loads_no_torch() -> None:
    assert not loaded_by("import rewards") & {"torch", "transformers", "sympy", "math_verify", "rlvr"}


def test_importing_rlvr_loads_nothing_heavy() -> None:
    heavy = {"torch", "transformers", "colossalai", "ray", "vllm", "wandb", "peft", "matplotlib", "datasets"}
    assert not loaded_by("import rlvr") & heavy


def test_checking_settings_needs_no_transformers() -> None:
    """The first line of `rlvr train` comes after that check; transformers would take seconds more."""
    check = "from rlvr.config import base_config; from rlvr.validate.ppo import check_config"
    given = "{'reward': {'reward_functions': ['gsm8k_reward_fn']}}"
    assert not loaded_by(f"{check}; check_config(base_config({given}))") & {"transformers", "colossalai"}


def test_settings_need_no_torch() -> None:
    assert not loaded_by("import rlvr.config; rlvr.config.parse([])") & {"torch", "transformers", "colossalai"}


def test_the_list_of_commands_needs_no_settings() -> None:
    heavy = {"torch", "transformers", "pydantic", "tyro", "yaml", "rich", "numpy", "datasets"}
    assert not loaded_by("from rlvr.cli.main import main; main(['--help'])") & heavy


def test_help_of_a_command_needs_no_torch() -> None:
    heavy = {"torch", "transformers", "numpy", "datasets", "pandas", "colossalai"}
    assert not loaded_by("from rlvr.cli.main import main; main(['score', '--help'])") & heavy
