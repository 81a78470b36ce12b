"""The predicted plan ships if it is right, and without the variants that are wrong if it is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from sartor.codegen.ir.variants.candidates import Candidates
from sartor.config import CompileConfig
from sartor.costing.candidates import find_candidates
from sartor.costing.time_budget import TimeBudget
from sartor.pipeline import compile_model
from sartor.profiling.compilation import candidacy, tuned_network
from sartor.profiling.compilation.floor import has_floor
from sartor.tuning.records.measurement import Status
from sartor.tuning.search.shipped import times
from sartor.tuning.store.store import Store
from tests.plugin.profiling.compilation.planted_kernels import with_fault

MODEL = "residual"
# Sums become differences, or no code at all.
FAULTS = {
    "wrong": (r"vector\.fma (%\w+), (%\w+), ", r"vector.fma \1, \1, "),
    "broken": (r"vector\.store", "vector.restore"),
}


@pytest.fixture
def config(tmp_path: Path) -> CompileConfig:
    return CompileConfig(threads=1, database=tmp_path / "t.db", time_budget=0.0)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, True),
        ({"target": "vulkan"}, False),
        ({"target": "cpu,vulkan"}, False),
        ({"memory_limit": "1GiB"}, False),
        ({"objective": "cold"}, False),
        ({"objective": "memory"}, False),
    ],
)
def test_a_plan_is_predicted_where_speed_alone_decides_on_a_cpu(settings: dict[str, Any], expected: bool) -> None:
    config = CompileConfig(threads=1, **settings)
    assert has_floor(config, TimeBudget.of(0.0)) == expected
    assert not has_floor(config, TimeBudget.of(None))


@pytest.mark.parametrize("fault", FAULTS)
def test_first_candidates_that_are_wrong_are_left_out(
    fault: str,
    config: CompileConfig,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    """Stock code of its convolution is so slow that a kernel is predicted to be the fastest."""
    planted: set[str] = set()
    filters = numpy_helper.from_array(np.random.default_rng(0).normal(0, 0.05, (64, 64, 3, 3)).astype(np.float32), "w")
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 64, 28, 28)) for name in ("x", "y")]
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], [filters])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "net.onnx"
    )

    def faulty(*given: Any, **named: Any) -> Candidates:
        found = find_candidates(*given, **named)
        variants = {}
        for key, listed in found.variants.items():
            first, *others = listed
            changed = [with_fault(each, *FAULTS[fault]) for each in others]
            planted.update(new.descriptor for new, old in zip(changed, others, strict=True) if new is not old)
            variants[key] = (first, *changed)
        return replace(found, variants=variants)

    for module in (candidacy, tuned_network):
        monkeypatch.setattr(module, "find_candidates", faulty)
    found = compile_model(tmp_path / "net.onnx", tmp_path / "net.vmfb", config)
    assert planted
    assert "checked one by one" in caplog.text
    assert found.error is not None
    assert found.error < 1e-4
    assert not {each.variant for each in found.plan.layers} & planted
    failed = {Status.WRONG_RESULT, Status.COMPILE_FAILED}
    with Store.open_to_read(config.database) as store:
        found_wrong = {each.key.variant for each in store.measurements() if each.facts and each.status in failed}
    assert found_wrong <= planted


def test_without_any_times_for_this_cpu_a_plan_is_predicted(
    config: CompileConfig, model_file: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(times, "_name", lambda isa, threads: "there is no such file")
    monkeypatch.setattr("sartor.tuning.search.shipped.likeness._guides", lambda: (_NoLock(), {}))
    found = compile_model(model_file(MODEL), tmp_path / "net.vmfb", config)
    assert not found.plan.unsplit
    assert found.error is not None
    assert found.error < 1e-4


class _NoLock:
    def __enter__(self) -> None:
        """There is nothing to wait for."""

    def __exit__(self, *_: object) -> None:
        """There is nothing to give back."""
