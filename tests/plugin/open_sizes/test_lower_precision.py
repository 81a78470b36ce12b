"""Files for any size whose products multiply 8 bits, and fronts of plans for any size."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnxruntime.quantization import QuantType, quantize_dynamic

from sartor.artifact import Artifact
from sartor.codegen.ir.layer import ValueRef
from sartor.codegen.kernels.isa.multipliers import INTEGER_DOTS
from sartor.codegen.mlir.machine import machine_of
from sartor.config import CompileConfig
from sartor.errors import CompileError
from sartor.open_sizes.compilation import OpenConfig, compile_open
from sartor.policies import Precision
from sartor.profiling import builder
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.driver.signature import Array
from sartor.runtime.output_error import relative_error
from sartor.runtime.reference import OnnxRuntimeReference
from sartor.runtime.session import Session
from sartor.settings.size_range import SizeRange
from sartor.tuning.calibration.quantised_range import QuantisedRange
from sartor.tuning.networks.build_job import SplitNetwork
from sartor.tuning.selection.problem.limits import Quantity
from sartor.tuning.selection.problem.pin import Pin
from tests.open_models import feed_forward, named, saved
from tests.plugin.onnx_model.builders import FLOAT, model, weights
from tests.plugin.open_sizes.planted import plant_wrong_outputs
from tests.plugin.quantised_models import Qdq

WIDTH, MOST = 24, 40
MOST_ERROR = 0.05
SHAPES = {"x": (SizeRange(1, MOST), WIDTH)}

pytestmark = pytest.mark.skipif(
    INTEGER_DOTS.refusal(machine_of(CompileConfig().target)) is not None, reason="the CPU does not multiply 8 bits"
)


@dataclass(frozen=True)
class Rounded:
    """A file for any number of rows whose products round them to 8 bits, and the model that it was made of."""

    artifact: Artifact
    model: Path
    config: CompileConfig

    def replayed(self, path: Path) -> Artifact:
        opened = OpenConfig(replace(self.config, pins=(), pareto=None), SHAPES)
        return compile_open(self.model, path, opened, plan=self.artifact.plan.unmeasured())


@pytest.fixture(scope="module")
def rounded(tmp_path_factory: pytest.TempPathFactory) -> Rounded:
    folder = tmp_path_factory.mktemp("rounded")
    model = saved(feed_forward(WIDTH), folder / "net.onnx")
    # Which of two times is less is not left to the machine.
    pins = tuple(Pin(f"{name}*", "cpu:i8/*") for name in ("up", "down", "head"))
    config = CompileConfig(
        threads=1,
        jobs=1,
        database=folder / "tuning.db",
        plans=1,
        precision=Precision.INT8,
        max_error=MOST_ERROR,
        pins=pins,
        pareto=(Quantity.LATENCY, Quantity.MEMORY),
        time_budget=60,
    )
    return Rounded(compile_open(model, folder / "net.vmfb", OpenConfig(config, SHAPES)), model, config)


def rows(count: int) -> Array:
    return np.random.default_rng(count).standard_normal((count, WIDTH)).astype(np.float32)


def test_products_multiply_8_bits_within_the_bound_at_any_size(rounded: Rounded) -> None:
    routines = [layer.variant.partition("{")[0] for layer in rounded.artifact.plan.layers]
    assert routines.count("cpu:i8/matmul.row_dots") == 3
    assert rounded.artifact.error is not None
    assert 1e-5 < rounded.artifact.error <= MOST_ERROR
    assert rounded.artifact.samples >= 4
    session, reference = Session(rounded.artifact.path), OnnxRuntimeReference(rounded.model, threads=1)
    for count in [MOST, *range(1, MOST)]:
        error = relative_error(session.run(None, {"x": rows(count)}), reference({"x": rows(count)}))
        assert 1e-6 < error <= MOST_ERROR, count


def test_an_error_beyond_the_bound_at_one_size_is_refused(
    rounded: Rounded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant_wrong_outputs(monkeypatch, 3)
    with pytest.raises(CompileError, match=r"with rows=\d+: relative error 0.5"):
        rounded.replayed(tmp_path / "net.vmfb")
    assert not (tmp_path / "net.vmfb").exists()


def test_plans_on_the_front_are_plans_for_any_size(rounded: Rounded, tmp_path: Path) -> None:
    front = rounded.artifact.pareto
    assert front is not None
    latency, memory = ([point.needed[each] for point in front.points] for each in (front.first, front.second))
    assert latency == sorted(latency)
    assert memory == sorted(memory, reverse=True)
    assert memory[-1] > 0
    last = replace(rounded, artifact=replace(rounded.artifact, plan=front.points[-1].plan))
    made = last.replayed(tmp_path / "net.vmfb")
    assert made.error is not None
    assert made.error <= MOST_ERROR
    session, reference = Session(made.path), OnnxRuntimeReference(rounded.model, threads=1)
    for count in (1, 7, 23, MOST):
        assert relative_error(session.run(None, {"x": rows(count)}), reference({"x": rows(count)})) <= MOST_ERROR


@pytest.fixture
def quantised(tmp_path: Path) -> Path:
    """Three products whose rows the model quantises by ranges that it finds when it runs."""
    path = tmp_path / "dynamic.onnx"
    quantize_dynamic(saved(feed_forward(WIDTH), tmp_path / "float.onnx"), path, weight_type=QuantType.QInt8)
    return path


def test_a_dynamically_quantised_model_runs_integer_kernels_at_any_size(quantised: Path, tmp_path: Path) -> None:
    config = CompileConfig(threads=1, jobs=1, database=tmp_path / "tuning.db", time_budget=0)
    made = compile_open(quantised, tmp_path / "net.vmfb", OpenConfig(config, SHAPES))
    routines = [layer.variant.partition("{")[0] for layer in made.plan.layers]
    assert routines.count("cpu:i8/matmul.whole_dots") == 3
    session, reference = Session(made.path), ReferenceModel(quantised, threads=1)
    for count in (1, 2, 7, 13, 23, 39, MOST):
        # No number of these is next to a tie.
        assert relative_error(session.run(None, {"x": rows(count)}), reference({"x": rows(count)})) < 1e-5, count


@pytest.fixture(scope="module")
def fixed_scales(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two products with scales that the model fixes, in front of each and behind them."""
    q = Qdq("int8")
    first = q.op("MatMul", [q.pair("x", -3.0, 3.1), q.weight("w1", weights(WIDTH, 40, scale=0.1), axis=1)], "first")
    first = q.pair(q.op("Relu", [first], "relu"), 0.0, 2.5)
    q.op("MatMul", [first, q.weight("w2", weights(40, 8, seed=1, scale=0.2), axis=1)], "second")
    q.pair("second", -3.0, 3.0, output="y")
    made = model(q.nodes, [("x", (1, WIDTH), FLOAT)], [("y", (1, 8), FLOAT)], q.constants)
    dims: dict[str, list[int | str]] = {"x": ["rows", WIDTH], "y": ["rows", 8]}
    return saved(named(made, dims), tmp_path_factory.mktemp("fixed") / "net.onnx")


def test_a_model_of_fixed_scales_runs_integer_kernels_at_any_size(fixed_scales: Path, tmp_path: Path) -> None:
    config = CompileConfig(threads=1, jobs=1, database=tmp_path / "tuning.db", time_budget=0)
    made = compile_open(fixed_scales, tmp_path / "net.vmfb", OpenConfig(config, SHAPES))
    assert [layer.dtype for layer in made.plan.layers].count("i8") >= 2
    assert re.match(r"with rows=\d+: .*exact", made.layers)
    session, reference, step = Session(made.path), ReferenceModel(fixed_scales, threads=1), 6 / 255
    for count in (1, 2, 7, 13, 23, 39, MOST):
        (found,), (expected,) = session.run(None, {"x": rows(count)}), reference({"x": rows(count)})
        # A number next to a tie may fall to the other side.
        assert (np.abs(found - expected) > step / 2).mean() < 0.01, count


def test_a_wrong_scale_between_layers_is_found(
    fixed_scales: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def planted(graph: object, variants: object, ranges: Mapping[ValueRef, QuantisedRange], *rest: Any) -> SplitNetwork:
        wrong = {
            value: replace(one, scale=2 * one.scale) if value.source == "first" else one
            for value, one in ranges.items()
        }
        assert wrong != ranges
        return SplitNetwork(graph, variants, wrong, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(builder, "SplitNetwork", planted)
    pins = (Pin("first*", "cpu:i8/*dots{*"), Pin("second*", "cpu:i8/*dots{*"))
    config = CompileConfig(threads=1, jobs=1, database=tmp_path / "tuning.db", time_budget=0, pins=pins)
    with pytest.raises(CompileError, match="first"):
        compile_open(fixed_scales, tmp_path / "net.vmfb", OpenConfig(config, SHAPES))
    assert not (tmp_path / "net.vmfb").exists()
