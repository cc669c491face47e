"""Shared fixtures. Tests of the learner run in a process group of one, made once."""

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import leftovers
import pytest
from ranks import Ranks

ROOT = Path(__file__).parents[1]
SHARED_DATA = ROOT.parent / "shared" / "data"
TORCHRUN_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")

# The same examples in every run, and no limit by the clock of a machine that tests share;
# `--hypothesis-profile default` searches anew.
hypothesis.settings.register_profile("same", deadline=None, derandomize=True)
hypothesis.settings.load_profile("same")

# One thread, here and in every process that a test starts: several would fight for the cores that tests share. Set before
# torch is imported, and before a library (accelerate) chooses for us.
for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
# Ray gives its workers a low priority, with which they hardly get on beside other tests.
os.environ.setdefault("RAY_worker_niceness", "0")
# A shell starts what it puts into the background with Ctrl-C ignored, and all that it starts inherits that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Their tests start many processes and take longest: begun first, they don't keep one worker busy when the rest is done.
LONG_FOLDERS = ("on_ray", "distributed", "faults", "examples", "models", "trainer")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One more than there are cores: many tests wait for processes of their own."""
    return min(4, (os.cpu_count() or 1) + 1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(LONG_FOLDERS)}
    items.sort(key=lambda item: places.get(item.path.parent.name, len(places)))


@pytest.fixture(scope="session", autouse=True)
def own_temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    tmp_path_factory.getbasetemp()  # made where it would be without us
    leftovers.mark()
    yield
    shutil.rmtree(os.environ.pop("TMPDIR"))


@pytest.fixture(scope="module", autouse=True)
def nothing_stays_behind(own_temporary_folder: None) -> Iterator[None]:
    """After each file: no process, no orphan and no temporary file of its tests is left."""
    before = leftovers.marked()
    yield
    assert leftovers.processes(before) == []
    assert leftovers.files() == []


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """After each test: a command that took all cores (`rlvr eval` does) leaves the next tests the one that they began with."""
    yield
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


@pytest.fixture(scope="session")
def process() -> Iterator[object]:
    """A process group of one, on one thread, with ColossalAI loaded."""
    from rlvr.boost import process as processes

    yield processes.start(seed=0, num_threads=1)
    processes.stop()
    for name in TORCHRUN_VARIABLES:
        os.environ.pop(name, None)


@pytest.fixture(scope="session")
def clean_env() -> dict[str, str]:
    """Environment for a process of its own: nothing of this one's process group, one thread."""
    env = {k: v for k, v in os.environ.items() if k not in TORCHRUN_VARIABLES}
    return env | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Labelled data that lies beside the project; tests that need it are skipped where it is absent."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"no labelled data at {SHARED_DATA}")
    return SHARED_DATA


@pytest.fixture(scope="session")
def tiny_cache() -> Path:
    """The built-in model after its real warm start, which the first test that needs it on a machine pays for."""
    from rlvr.models.tiny import ensure_tiny

    return ensure_tiny()


@pytest.fixture(scope="session")
def micro_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Folder of a random model with the built-in tokenizer, for whole runs within a second."""
    from saved_models import save_micro_model

    return save_micro_model(tmp_path_factory.mktemp("micro"))


@pytest.fixture
def exact_norms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Norms of a float64 model in float64. transformers' are in float32 whatever the model is, and round gradients to it: those
    of a token that several rows begin with then differ from the sum of what each row would have."""
    import torch
    from transformers.models.llama.modeling_llama import LlamaRMSNorm
    from transformers.models.qwen2.modeling_qwen2 import Qwen2RMSNorm

    def forward(self: Any, hidden_states: torch.Tensor) -> torch.Tensor:
        scale = torch.rsqrt(hidden_states.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * (hidden_states * scale)

    for norm in (LlamaRMSNorm, Qwen2RMSNorm):
        monkeypatch.setattr(norm, "forward", forward)


@pytest.fixture(scope="session")
def ranks(clean_env: dict[str, str]) -> Iterator[Ranks]:
    """Starts the processes of a run, which needn't import anything."""
    started = Ranks(clean_env)
    yield started
    started.close()
