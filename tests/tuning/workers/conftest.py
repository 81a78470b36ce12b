"""A pool of two workers that run the jobs of ``worker_jobs``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sartor.tuning.workers.pool import WorkerPool
from tests.tuning.workers.running import LIMIT

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Limits and the death of processes are Linux's own."""
    if sys.platform != "linux":
        for item in items:
            if item.path.parent == HERE:
                item.add_marker(pytest.mark.skip(reason="limits and process death are tested on Linux"))


@pytest.fixture(scope="module", autouse=True)
def _jobs_module() -> Iterator[None]:
    sys.path.insert(0, str(HERE))
    yield
    sys.path.remove(str(HERE))


@pytest.fixture(scope="module")
def pool(_jobs_module: None) -> Iterator[WorkerPool]:
    with WorkerPool(2, initializer="worker_jobs:initialize", memory_limit=LIMIT, env={"GREETING": "hello"}) as pool:
        yield pool
