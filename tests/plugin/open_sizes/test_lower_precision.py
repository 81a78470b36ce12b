"""Files for any size whose products multiply 8 bits, and fronts of plans for any size."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from onnxruntime.quantization import QuantType, quantize_dynamic

from sartor.artifact import Artifact
from sartor.codegen.kernels.isa.multipliers import INTEGER_DOTS
from sartor.codegen.mlir.machine import machine_of
from sartor.config import CompileConfig
from sartor.errors import CompileError, UnsupportedModelError
from sartor.open_sizes.compilation import OpenConfig, compile_open
from sartor.policies import Precision
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.driver.signature import Array
from sartor.runtime.output_error import relative_error
from sartor.runtime.reference import OnnxRuntimeReference
from sartor.runtime.session import Session
from sartor.settings.size_range import SizeRange
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


def test_fixed_scales_are_refused_with_a_way_out(tmp_path: Path) -> None:
    q = Qdq("int8")
    product = q.op("MatMul", [q.pair("x", -3.0, 3.0), q.weight("w", weights(WIDTH, 8), axis=1)], "product")
    q.pair(product, -3.0, 3.0, output="y")
    made = model(q.nodes, [("x", (1, WIDTH), FLOAT)], [("y", (1, 8), FLOAT)], q.constants)
    path = saved(named(made, {"x": ["rows", WIDTH], "y": ["rows", 8]}), tmp_path / "net.onnx")
    config = CompileConfig(threads=1, jobs=1, database=tmp_path / "tuning.db", time_budget=0)
    with pytest.raises(UnsupportedModelError, match=r"by fixed scales cannot .* give the sizes that occur"):
        compile_open(path, tmp_path / "net.vmfb", OpenConfig(config, SHAPES))
