from __future__ import annotations

import os
import resource
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from sartor.errors import DeviceError
from sartor.runtime import dispatch_statistics as dispatch_statistics_module
from sartor.runtime import module
from sartor.runtime.dispatch_statistics import dispatch_statistics
from sartor.runtime.driver.iree_runtime import benchmark_rows
from sartor.runtime.driver.signature import Array


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


def test_what_a_session_reads_into_huge_pages_the_tool_does_too(
    model: Path, feeds: dict[str, Array], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SMALL_BYTES", 0)
    monkeypatch.setattr(module, "has_huge_pages", lambda: True)
    assert module.wants_huge_pages(model)
    assert not module.wants_huge_pages(model.with_suffix(".none"))
    seen: list[tuple[object, str | None]] = []
    original = benchmark_rows

    def spy(path: Path, entry: str, inputs: object, flags: dict[str, object], timeout: float) -> object:
        seen.append((flags["module_mode"], os.environ.get("GLIBC_TUNABLES")))
        return original(path, entry, inputs, flags, timeout)  # type: ignore[arg-type]

    monkeypatch.setattr(dispatch_statistics_module, "benchmark_rows", spy)
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    for own in (None, "glibc.malloc.check=0"):
        if own:
            monkeypatch.setenv("GLIBC_TUNABLES", own)
        assert dispatch_statistics(model, "main_graph", list(feeds.values()), threads=1, iterations=2).dispatches
        assert os.environ.get("GLIBC_TUNABLES") == own
    assert [mode for mode, _ in seen] == [["preload"], ["preload"]]
    assert "glibc.malloc.hugetlb=1" in str(seen[0][1]).split(":")
    assert seen[1][1] == "glibc.malloc.check=0"


def test_the_tool_keeps_the_memory_of_an_inference_for_the_next(compile_mlir: Callable[..., Path]) -> None:
    """Pages that each inference brings in again would count as time of the layers that write them first."""
    path, value = compile_mlir("activation"), np.ones((1024, 1024), np.float32)

    def faults(iterations: int) -> int:
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt
        statistics = dispatch_statistics(path, "twice", [value], threads=1, iterations=iterations)
        assert sum(dispatch.calls for dispatch in statistics.dispatches) == 2
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt - before

    assert faults(40) < faults(2) + 4 * value.nbytes // resource.getpagesize()


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
