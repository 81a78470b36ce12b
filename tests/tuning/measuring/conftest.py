"""Fixtures of tests that measure."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sartor.tuning.workers.pool import WorkerPool


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    """Two workers."""
    with WorkerPool(2) as opened:
        yield opened
