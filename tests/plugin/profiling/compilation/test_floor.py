"""The predicted plan ships if it is right, and no output of a compilation coincides with another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from sartor.errors import UsageError
from sartor.pipeline import compile_model
from sartor.policies import Precision
from sartor.profiling.compilation import candidacy, tuned_network
from sartor.profiling.compilation.floor import has_floor
from sartor.profiling.compilation.outputs import check_files
from sartor.tuning.records.measurement import Status
from sartor.tuning.search.shipped import times
from sartor.tuning.store.store import Store
from tests.plugin.external_model import write_convolution
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


@pytest.mark.parametrize(
    ("output", "external", "others", "said"),
    [
        ("w.irpa", "o.irpa", {}, "the output '.*' would overwrite weights of the model"),
        ("o.vmfb", "w.irpa", {}, "the external weights '.*' would overwrite weights of the model"),
        ("o.vmfb", "o.irpa", {"--save-plan": "w.irpa"}, "--save-plan '.*' would overwrite weights of the model"),
        ("o.vmfb", "o.irpa", {"--report": "model.onnx"}, "--report '.*' would overwrite the model"),
        ("o.vmfb", "o.irpa", {"--report": "o.irpa"}, "--report '.*' would overwrite what the external weights writes"),
    ],
)
def test_outputs_that_coincide_with_what_is_used(
    output: str, external: str, others: Mapping[str, str], said: str, tmp_path: Path
) -> None:
    model, weights = tmp_path / "model.onnx", tmp_path / "w.irpa"
    config = CompileConfig(threads=1, database=tmp_path / "t.db", external_weights=tmp_path / external)
    with pytest.raises(UsageError, match=said):
        check_files(
            model, tmp_path / output, config, {option: tmp_path / name for option, name in others.items()}, [weights]
        )
    assert list(tmp_path.iterdir()) == []


def test_stages_overwrite_nothing_for_programs_either(tmp_path: Path) -> None:
    write_convolution(tmp_path / "model.onnx")
    (tmp_path / "d").mkdir()
    config = CompileConfig(threads=1, database=tmp_path / "t.db", dump_directory=tmp_path / "d")
    with pytest.raises(UsageError, match=r"--dump-dir '.*' would write over --report"):
        check_files(
            tmp_path / "model.onnx", tmp_path / "o.vmfb", config, {"--report": tmp_path / "d" / "01-fold-weights.mlir"}
        )


def test_stages_do_not_overwrite_weights_that_nothing_has_read_yet(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    write_convolution(tmp_path / "plain.onnx")
    model, weights = tmp_path / "d" / "model.onnx", "01-fold-weights.mlir"
    plain = onnx.load(tmp_path / "plain.onnx")
    onnx.save(plain, model, save_as_external_data=True, location=weights, size_threshold=0)
    config = CompileConfig(threads=1, database=tmp_path / "t.db", dump_directory=tmp_path / "d")
    with pytest.raises(UsageError, match="would write over weights of the model"):
        check_files(model, tmp_path / "o.vmfb", config, {})


def test_of_a_folder_of_samples_only_samples_are_kept(tmp_path: Path) -> None:
    """A module beside them is replaced as it is elsewhere."""
    config = CompileConfig(threads=1, database=tmp_path / "t.db", calibration=tmp_path, precision=Precision.INT8)
    (tmp_path / "model.vmfb").touch()
    check_files(tmp_path / "model.onnx", tmp_path / "model.vmfb", config, {})
    (tmp_path / "a.npz").touch()
    with pytest.raises(UsageError, match="would overwrite samples for calibration"):
        check_files(tmp_path / "model.onnx", tmp_path / "a.npz", config, {})
