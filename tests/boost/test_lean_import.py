"""ColossalAI is imported without peft, bitsandbytes and torch's compiler, and still knows a peft model when it sees one."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from rlvr.boost.lean_import import deferred

PLAIN_THEN_LORA = """
import sys
import torch
from rlvr.boost import process
process.start(seed=0, num_threads=1)
from colossalai.booster.plugin.torch_ddp_plugin import TorchDDPModel
plain = torch.nn.Sequential(torch.nn.Linear(2, 2))
assert TorchDDPModel(plain).unwrap() is plain
print([name for name in ("peft", "bitsandbytes", "torch._inductor.compile_fx", "datasets", "diffusers") if name in sys.modules])
import peft
adapted = peft.get_peft_model(torch.nn.Sequential(torch.nn.Linear(2, 2)), peft.LoraConfig(target_modules=["0"]))
booster_model = TorchDDPModel(adapted)
print(type(booster_model.unwrap()).__name__, type(booster_model.unwrap(unwrap_peft=False)).__name__)
"""


def test_a_process_group_loads_no_peft_and_recognises_an_adapter_later(clean_env: dict[str, str]) -> None:
    out = subprocess.run(
        [sys.executable, "-c", PLAIN_THEN_LORA], capture_output=True, text=True, check=True, env=clean_env, timeout=800
    )
    assert out.stdout.splitlines() == ["[]", "PeftUnwrapMixin PeftModel"]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package `heavy_thing` that can be imported, and after the test never was."""
    name = "heavy_thing"
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("class Model: ...\nNAMES = ['a', 'b']\n")
    (tmp_path / name / "deep.py").write_text("class Optimizer: ...\ndef double(x): return 2 * x\n")
    (tmp_path / "user.py").write_text(
        f"import {name}\nfrom {name} import NAMES, Model\nfrom {name}.deep import Optimizer, double\nclass Mine(Optimizer): ...\n"
    )
    (tmp_path / "compiled.py").write_text(
        "import torch\nminus_one = torch.compile(lambda x: x - 1, mode='now')\n"
        "@torch.compile(backend='eager')\ndef plus_one(x): return x + 1\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield name
    for module in [m for m in sys.modules if m.split(".")[0] in (name, "user", "compiled")]:
        del sys.modules[module]


def test_what_is_imported_inside_takes_stand_ins_until_it_uses_them(package: str) -> None:
    with deferred(package, "no_such_package"):
        import user  # type: ignore[import-not-found]
    assert not any(name.split(".")[0] == package for name in sys.modules)
    assert not isinstance(object(), user.Model)
    assert package not in sys.modules, "asking for the class of an object imported the package"
    assert user.double(4) == 8 and list(user.NAMES) == ["a", "b"]

    import heavy_thing  # type: ignore[import-not-found]

    assert isinstance(heavy_thing.Model(), user.Model) and not isinstance(object(), user.Model)
    assert isinstance(user.Model(), heavy_thing.Model)
    assert user.heavy_thing.Model() is not None
    with pytest.raises(ImportError, match=r"import heavy_thing\.deep before"):
        user.Mine()


def test_a_package_that_is_loaded_already_is_left_alone(package: str) -> None:
    import heavy_thing

    with deferred(package):
        import user
    assert user.Model is heavy_thing.Model and issubclass(user.Mine, heavy_thing.deep.Optimizer)


def test_torch_compile_waits_for_the_first_call(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(torch, "compile", lambda function, **settings: asked.append(settings) or function)
    before = torch.compile
    with deferred():
        import compiled  # type: ignore[import-not-found]
    assert torch.compile is before and asked == [{"mode": "now"}] and compiled.minus_one(1) == 0
    assert compiled.plus_one.__name__ == "plus_one"
    assert (compiled.plus_one(1), compiled.plus_one(2)) == (2, 3)
    assert asked[1:] == [{"backend": "eager"}]
