"""A cluster and processes for a file's tests."""

from collections.abc import Iterator

import pytest
import ray_harness

from rlvr.ray.cluster import Cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """See `ray_harness.cluster`."""
    with ray_harness.cluster() as started:
        yield started


@pytest.fixture(scope="module")
def cast(cluster) -> Iterator[ray_harness.Cast]:
    """See `ray_harness.cast_of_all`."""
    with ray_harness.cast_of_all() as cast:
        yield cast
