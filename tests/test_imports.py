"""Imports point one way, and nothing heavy is loaded before it is needed."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# A module may import from its own layer and from those above it in this list.
LAYERS = [
    [
        "rewards",
        "rlvr.core",
        "rlvr.config",
        "rlvr.presets",
        "rlvr.errors",
        "rlvr.seeding",
        "rlvr.suggest",
        "rlvr.diagnosis",
    ],
    ["rlvr.models", "rlvr.data", "rlvr.conversation", "rlvr.template", "rlvr.template_check"],
    [
        "rlvr.rollout",
        "rlvr.rewarding",
        "rlvr.boost",
        "rlvr.metrics",
        "rlvr.tracking",
        "rlvr.trackers",
        "rlvr.hub",
        "rlvr.checkpoint",
        "rlvr.checkpoint_check",
        "rlvr.rank_states",
        "rlvr.reward_settings",
    ],
    ["rlvr.rewarding_neural", "rlvr.reward_normaliser", "rlvr.environments"],
    [
        "rlvr.checks",
        "rlvr.memory_supervised",
        "rlvr.hand_on",
        "rlvr.memory",
        "rlvr.memory_products",
        "rlvr.run_folder",
        "rlvr.policy",
        "rlvr.evaluation",
        "rlvr.chat",
    ],
    ["rlvr.experience"],
    ["rlvr.trainer"],
    [
        "rlvr.console",
        "rlvr.finish",
        "rlvr.report",
        "rlvr.session",
        "rlvr.supervised_view",
        "rlvr.build",
        "rlvr.build_rewards",
        "rlvr.api",
        "rlvr.run",
        "rlvr.ray",
        "rlvr.pipeline",
        "rlvr.tools",
        "rlvr.compat",
    ],
    ["rlvr.cli"],
    ["scripts"],
]
# These four know nothing of each other's kind: rules without torch, mathematics without models.
CLOSED = {"rewards": {"rewards"}, "rlvr.core": {"rlvr.core"}}


def modules() -> list[tuple[str, Path]]:
    files = [p for folder in ("rewards", "rlvr", "scripts") for p in sorted((ROOT / folder).rglob("*.py"))]
    return [(".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"), p) for p in files]


def layer_of(module: str) -> int | None:
    matches = [
        (len(prefix), index)
        for index, prefixes in enumerate(LAYERS)
        for prefix in prefixes
        if module == prefix or module.startswith(prefix + ".")
    ]
    return max(matches)[1] if matches else None


def imports_of(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.split(".")[0] in ("rewards", "rlvr", "scripts")}


def test_every_module_has_its_layer() -> None:
    assert [name for name, _ in modules() if layer_of(name) is None and name != "rlvr"] == []


@pytest.mark.parametrize(("module", "path"), modules(), ids=lambda v: v if isinstance(v, str) else "")
def test_imports_point_one_way(module: str, path: Path) -> None:
    if module == "rlvr":  # loads names lazily, from anywhere
        return
    layer = layer_of(module)
    assert layer is not None
    for imported in imports_of(path):
        target = layer_of(imported)
        assert target is None or target <= layer, f"{module} imports {imported}, which lies below it"
        for package, allowed in CLOSED.items():
            if module.startswith(package) and target is not None:
                assert any(imported.startswith(a) for a in allowed), f"{module} must not import {imported}"


def loaded_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(' '.join(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return {name.split(".")[0] for name in out.stdout.split()}


def test_importing_rewards_loads_no_torch() -> None:
    assert not loaded_by("import rewards") & {"torch", "transformers", "sympy", "math_verify", "rlvr"}


def test_importing_rlvr_loads_nothing_heavy() -> None:
    heavy = {"torch", "transformers", "colossalai", "ray", "vllm", "wandb", "peft", "matplotlib", "datasets"}
    assert not loaded_by("import rlvr") & heavy


def test_settings_need_no_torch() -> None:
    assert not loaded_by("import rlvr.config; rlvr.config.parse([])") & {"torch", "transformers", "colossalai"}
