"""A cluster and processes for a file's tests."""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator

import leftovers
import pytest
from ray_harness import Cast

import rlvr.ray.train as on_ray
from rlvr.config import base_config
from rlvr.ray.cluster import Cluster, connect, import_ray


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A cluster whose files lie in a folder with a short name (sockets must have one) that is gone afterwards."""
    ray, before = import_ray(), leftovers.marked()
    folder = tempfile.mkdtemp(prefix="ray")
    auth = os.environ.get("RAY_AUTH_MODE")
    os.environ["RAY_AUTH_MODE"] = "disabled"  # else it leaves a token in the home folder
    try:
        options = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
        ray.init(address="local", num_cpus=24, _temp_dir=folder, object_store_memory=100 * 2**20, **options)
        yield connect(base_config().ray, 1)
        ray.shutdown()
        # A process that was just starting sees only after its imports that nobody needs it.
        deadline = time.monotonic() + 60
        while left := [process for process in leftovers.marked() - before if not leftovers.lasting(process)]:
            assert time.monotonic() < deadline, left
            time.sleep(0.1)
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)
        os.environ.pop("RAY_AUTH_MODE") if auth is None else os.environ.update(RAY_AUTH_MODE=auth)


@pytest.fixture(scope="module")
def cast(cluster) -> Iterator[Cast]:
    cast = Cast()
    with pytest.MonkeyPatch.context() as patch:
        for role in on_ray._KINDS:
            patch.setitem(on_ray._KINDS, role, cast.group(role))
        patch.setattr(on_ray, "RewardWorkers", cast.pool)
        yield cast
