"""Rare forms of operators that were once computed otherwise than by ONNX Runtime, or were refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
from onnx import ModelProto, numpy_helper, parser

import sartor.backend
from sartor.config import CompileConfig
from sartor.pipeline import compile_model
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.session import Session
from sartor.tuning.selection.problem.pin import Pin
from tests.importing import imported_model
from tests.plugin.onnx_model.together import computed_together
from tests.tiny_models import Array

_RANDOM = np.random.default_rng(0)
_PLAIN = np.array([[-4, 9, 1], [2, 3, -5]], np.float32)


class Case(NamedTuple):
    """A graph with its opset, its inputs, and constants that its text does not give."""

    opset: int
    graph: str
    feeds: Mapping[str, Array]
    constants: Mapping[str, Array] = {}

    @property
    def model(self) -> ModelProto:
        header = f'<ir_version: 9, opset_import: ["" : {self.opset}]> '
        model: ModelProto = parser.parse_model(header + self.graph)
        model.graph.initializer.extend(
            numpy_helper.from_array(constant, name) for name, constant in self.constants.items()
        )
        return model


def _reduction(operator: str, axes: str = "") -> Case:
    read = "x, a" if axes else "x"
    text = f"g (float[2,3] x) => (float[2,3] y) {axes} {{ y = {operator} <noop_with_empty_axes = 1> ({read}) }}"
    return Case(18, text, {"x": np.abs(_PLAIN) if operator == "ReduceLogSum" else _PLAIN})


def _f16(*shape: int) -> Array:
    return _RANDOM.standard_normal(shape).astype(np.float16)


CASES = {
    **{f"{name}_of_nothing": _reduction(name) for name in ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceSumSquare")},
    **{f"{each}_of_nothing": _reduction(each) for each in ("ReduceLogSumExp", "ReduceSum", "ReduceMax", "ReduceMean")},
    "no_axes": _reduction("ReduceL2", "<int64[0] a = {}>"),
    "norm_of_integers": Case(
        18,
        "g (int32[2] x) => (int32[2] y) { y = ReduceL2 <noop_with_empty_axes = 1> (x) }",
        {"x": np.array([-4, 9], np.int32)},
    ),
    "zero_point_of_16_bits": Case(
        21,
        "g (float16[3] x) => (int16[3] y) <int16 z = {4001}> { y = QuantizeLinear (x, s, z) }",
        {"x": np.array([10, 60000, -60000], np.float16)},
        {"s": np.array(1, np.float16)},
    ),
    "logarithms_of_integers": Case(
        18,
        "g (int32[2] x) => (int32[2] y) { y = ReduceLogSum <noop_with_empty_axes = 1> (x) }",
        {"x": np.array([9, 100], np.int32)},
    ),
    "no_upper_bound": Case(
        10,
        "g (float[3] x) => (float[3] y) { y = Clip <min = 0.0> (x) }",
        {"x": np.array([np.inf, 1, -np.inf], np.float32)},
    ),
    "no_lower_bound": Case(
        10,
        "g (float[3] x) => (float[3] y) { y = Clip <max = 6.0> (x) }",
        {"x": np.array([np.inf, 1, -np.inf], np.float32)},
    ),
    "sum_in_f16": Case(
        17,
        'g (float16[1,49152] x) => (float16[1] y) { y = Einsum <equation = "ij->i"> (x) }',
        {"x": np.ones((1, 49152), np.float16)},
    ),
    "high_power_of_f16": Case(
        17,
        "g (float16[2] x) => (float16[2] y) { y = Pow (x, p) }",
        {"x": np.array([1.099609375, 1.01], np.float16)},
        {"p": np.array(64, np.float16)},
    ),
    "many_taps_of_f16": Case(
        18,
        "g (float16[1,1,1,960] x) => (float16[1,1,1,32] y) <int64[4] s = {1,1,1,32}> "
        '{ y = Resize <mode = "linear", antialias = 1> (x, , , s) }',
        {"x": _f16(1, 1, 1, 960)},
    ),
    "cubic_in_f16": Case(
        18,
        "g (float16[1,1,8,8] x) => (float16[1,1,20,20] y) <int64[4] s = {1,1,20,20}> "
        '{ y = Resize <mode = "cubic"> (x, , , s) }',
        {"x": _f16(1, 1, 8, 8)},
    ),
    "cropped_at_the_last_pixel": Case(
        18,
        "g (float[1,1,14,1] x) => (float[1,1,2,1] y) <float[8] r = {0,0,0.2,0,1,1,1,1}, int64[4] s = {1,1,2,1}> "
        '{ y = Resize <mode = "linear", coordinate_transformation_mode = "tf_crop_and_resize", '
        "extrapolation_value = -5.0> (x, r, , s) }",
        {"x": np.arange(14, dtype=np.float32).reshape(1, 1, 14, 1)},
    ),
    "split_of_nothing": Case(
        17,
        "g (float[2,0] x) => (float[2,0] a, float[2,0] b) { a, b = Split <axis = 1> (x) }",
        {"x": np.zeros((2, 0), np.float32)},
    ),
    "truth_value": Case(
        17,
        "g (float[2] x) => (float[2] y, bool flag) { y = Relu (x) flag = Identity (t) }",
        {"x": np.array([1, -1], np.float32)},
        {"t": np.array(True)},
    ),
    "indices_of_three": Case(
        17,
        "g (float[10,64] x, int64[2] a, int64[2] b, int64[2] c) => (float[6,64] y) "
        "{ i = Concat <axis = 0> (a, b, c) y = Gather (x, i) }",
        {"x": np.arange(640, dtype=np.float32).reshape(10, 64), **{each: np.array([9, -10]) for each in "abc"}},
    ),
    "steps_as_vectors": Case(
        17,
        "g (float[3,4] x, float[1,4] z) => (float[1,4] s, float[3,1,4] rows) { s, rows = Loop (m, , z) <body = "
        "b (int64[1] i, bool c, float[1,4] v) => (bool c2, float[1,4] v2, float[1,4] row) "
        "{ row = Gather <axis = 0> (x, i) v2 = Add (v, row) c2 = Identity (c) }> }",
        {"x": np.arange(12, dtype=np.float32).reshape(3, 4), "z": np.zeros((1, 4), np.float32)},
        {"m": np.array(3)},
    ),
}


@pytest.fixture(scope="module")
def computed() -> dict[str, list[np.ndarray[Any, Any]]]:
    return computed_together({name: (case.model, case.feeds) for name, case in CASES.items()})


@pytest.mark.parametrize("name", CASES)
def test_the_result_is_that_of_onnx_runtime(name: str, computed: dict[str, list[np.ndarray[Any, Any]]]) -> None:
    case = CASES[name]
    expected = ReferenceModel(case.model.SerializeToString(), threads=1)(case.feeds)
    array: Any
    for array, right in zip(computed[name], expected, strict=True):
        assert (array.dtype, array.shape) == (right.dtype, right.shape)
        tolerance = 1e-6 if right.dtype == np.float32 else 2e-3
        np.testing.assert_allclose(array, right, rtol=tolerance if array.dtype.kind == "f" else 0, atol=tolerance)


def test_fractions_of_indices_are_dropped() -> None:
    """ONNX Runtime has this for few types, so the standard says what is right."""
    graph = "g (float[2] i) => (float[2,3] y) <int64 d = {3}, float[2] v = {0,1}> { y = OneHot (i, d, v) }"
    case = Case(17, graph, {"i": np.array([1.7, 2], np.float32)})
    (found,) = sartor.backend.prepare(case.model).run(list(case.feeds.values()))
    np.testing.assert_array_equal(found, np.eye(3, dtype=np.float32)[1:])


def test_a_convolution_in_f16_may_end_in_f32() -> None:
    """As exporters write the last one: its sums are in f32 already, and so no product of matrices in one type."""
    body = "{ a = Conv <pads = [1,1,1,1]> (x, w) y = Cast <to = 1> (a) }"
    graph = f"g (float16[1,48,64,64] x) => (float[1,48,64,64] y) {body}"
    found = imported_model(Case(17, graph, {}, {"w": _f16(48, 48, 3, 3)}).model, widens=False)
    assert [layer.task.results[0].dtype for layer in found.graph.layers] == ["f32"]


@pytest.mark.parametrize(
    "last", ["y = Where (m, s, z)", "h = Cast <to = 10> (s) k = Where (m, s, z) d = Cast <to = 1> (h) y = Add (k, d)"]
)
def test_rows_that_are_no_floats_are_not_kept_as_floats(last: str, tmp_path: Path) -> None:
    """A kernel of rows reads the truth values of its first ops behind the sum of a row."""
    body = f"{{ m = Greater (x, z) w = Where (m, x, n) s = Softmax <axis = -1> (w) {last} }}"
    text = f"g (float[4,8,64] x) => (float[4,8,64] y) <float z = {{0}}, float n = {{-1000000000}}> {body}"
    case = Case(17, text, {"x": _RANDOM.standard_normal((4, 8, 64)).astype(np.float32)})
    onnx.save(case.model, tmp_path / "model.onnx")
    config = CompileConfig(threads=1, jobs=1, database=tmp_path / "t.db", pins=(Pin("*", "*rowwise{*"),))
    artifact = compile_model(tmp_path / "model.onnx", tmp_path / "m.vmfb", config)
    assert all("rowwise" in layer.variant for layer in artifact.plan.layers)
    with Session(tmp_path / "m.vmfb", threads=1) as session:
        (found,) = session.run(None, dict(case.feeds))
    (right,) = ReferenceModel(tmp_path / "model.onnx", threads=1)(case.feeds)
    np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-6)
