from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from sartor.errors import DeviceError
from sartor.runtime.dispatch_statistics import dispatch_statistics
from sartor.runtime.signature import Array


@pytest.mark.parametrize("threads", [1, 2])
def test_dispatches_are_reported(model: Path, feeds: dict[str, Array], threads: int) -> None:
    statistics = dispatch_statistics(model, "main_graph", list(feeds.values()), threads=threads, iterations=5)
    assert statistics.seconds > 0
    assert statistics.dispatches
    for dispatch in statistics.dispatches:
        assert dispatch.name.startswith("main_graph$async_dispatch_")
        assert dispatch.calls == 1
        assert 0 < dispatch.seconds < 1
    times = [dispatch.seconds for dispatch in statistics.dispatches]
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("bf16", np.ones((2, 3), ml_dtypes.bfloat16)),
        ("i64", np.ones((2, 3), np.int64)),
        ("i8", np.ones((2, 3), np.uint8)),
        ("scalar", np.array(1, np.float32)),
    ],
)
def test_inputs_of_every_kind_are_passed(foreign: Path, entry: str, value: Array) -> None:
    statistics = dispatch_statistics(foreign, entry, [value], threads=1, iterations=2)
    assert [dispatch.calls for dispatch in statistics.dispatches] == [1]


def test_failures_are_sentences(model: Path, feeds: dict[str, Array]) -> None:
    with pytest.raises(DeviceError, match="no function `missing`"):
        dispatch_statistics(model, "missing", [], threads=1)
    with pytest.raises(DeviceError, match="took longer than"):
        dispatch_statistics(model, "main_graph", list(feeds.values()), threads=1, timeout=0.001)
    with pytest.raises(DeviceError, match="cannot be benchmarked"):
        dispatch_statistics(model.with_suffix(".none"), "main_graph", list(feeds.values()), threads=1)
