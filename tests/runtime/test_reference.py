from __future__ import annotations

import math
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from sartor.errors import UnsupportedModelError, UsageError
from sartor.runtime.output_error import output_error, relative_error
from sartor.runtime.reference import OnnxRuntimeReference, OpenVinoReference
from sartor.runtime.signature import Array

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture(scope="module")
def onnx_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "x"], ["square"]), helper.make_node("Neg", ["x"], ["negative"])],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in ("square", "negative")],
    )
    file = tmp_path_factory.mktemp("onnx") / "model.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, file)
    return file


@pytest.mark.parametrize("threads", [None, 1, 2])
def test_onnx_runtime_gives_outputs_in_order(
    onnx_file: Path, threads: int | None, capfd: pytest.CaptureFixture[str]
) -> None:
    reference = OnnxRuntimeReference(onnx_file, threads=threads)
    assert (reference.input_names, reference.output_names) == (["x"], ["square", "negative"])
    square, negative = reference({"x": X})
    np.testing.assert_array_equal(square, X * X)
    np.testing.assert_array_equal(negative, -X)
    np.testing.assert_array_equal(OnnxRuntimeReference(onnx_file.read_bytes())({"x": X})[0], square)
    assert capfd.readouterr() == ("", "")


def test_onnx_runtime_failures_are_sentences(onnx_file: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"not onnx")
    for file in (broken, tmp_path / "missing.onnx"):
        with pytest.raises(UnsupportedModelError, match="ONNX Runtime cannot load"):
            OnnxRuntimeReference(file)
    with pytest.raises(UsageError, match="at least 1 thread"):
        OnnxRuntimeReference(onnx_file, threads=0)
    for feeds in ({}, {"x": X.astype(np.float64)}, {"x": X[:1]}, {"y": X}):
        with pytest.raises(UsageError, match="ONNX Runtime cannot run"):
            OnnxRuntimeReference(onnx_file)(feeds)


def test_openvino_gives_the_same(onnx_file: Path, tmp_path: Path) -> None:
    pytest.importorskip("openvino", reason="OpenVINO is an optional extra")
    reference = OnnxRuntimeReference(onnx_file)
    peer = OpenVinoReference(onnx_file, threads=1)
    assert relative_error(peer({"x": X}), reference({"x": X})) == 0
    with pytest.raises(UsageError, match="OpenVINO cannot run"):
        peer({"y": X})
    with pytest.raises(UnsupportedModelError, match="OpenVINO cannot load"):
        OpenVinoReference(tmp_path / "missing.onnx")
    with pytest.raises(UsageError, match="at least 1 thread"):
        OpenVinoReference(onnx_file, threads=0)


def test_a_missing_openvino_says_how_to_get_it(onnx_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(UsageError, match=r"pip install 'sartor\[peers\]'"):
        OpenVinoReference(onnx_file)


NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("output", "reference", "error"),
    [
        ([1.0, -4.0], [1.0, -4.0], 0.0),
        ([1.0, -4.0], [1.5, -4.0], 0.125),
        ([0.0, 0.0], [0.0, 0.0], 0.0),
        ([0.0, 0.25], [0.0, 0.0], 0.25),
        ([NAN, 2.0], [NAN, 2.0], 0.0),
        ([NAN, 2.0], [1.0, 2.0], INF),
        ([1.0, 2.0], [NAN, 2.0], INF),
        ([INF, 2.0], [INF, 1.0], 1.0),
        ([INF, 2.0], [-INF, 2.0], INF),
        ([INF, 2.0], [1e30, 2.0], INF),
        ([1e30, 2.0], [INF, 2.0], INF),
        ([NAN, NAN], [NAN, NAN], 0.0),
        ([], [], 0.0),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_error_of_floats(output: list[float], reference: list[float], error: float, dtype: type) -> None:
    assert output_error(np.array(output, dtype), np.array(reference, dtype)) == error


def test_differences_up_to_the_floor_say_nothing_about_small_values() -> None:
    small, large = np.array([2.0**-30, 2.0**-20]), np.array([8.0])
    assert output_error(small + 2.0**-23, small) == 2.0**-3
    assert output_error(small + 2.0**-23, small, floor=2.0**-22) == 2.0**-23
    assert output_error(small + 2.0**-21, small, floor=2.0**-22) == 2.0**-1
    assert output_error(large + 2.0**-23, large, floor=2.0**-22) == 2.0**-26
    assert relative_error([small, small], [small, small + 2.0**-23], floors=[0.0, 2.0**-22]) == 2.0**-23


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_small_floats_are_compared_widened(dtype: type) -> None:
    large: Array = np.array([30000.0, -30000.0]).astype(dtype)
    assert output_error(-large, large) == 2.0  # the difference itself overflows in 16 bits


def test_integers_are_exact_but_for_a_stated_fraction() -> None:
    reference = np.arange(100, dtype=np.int64)
    output = reference.copy()
    assert output_error(output, reference) == 0
    output[:2] += 1
    assert output_error(output, reference) == INF
    assert output_error(output, reference, integer_mismatch=0.02) == 0
    assert output_error(output, reference, integer_mismatch=0.019) == INF
    assert output_error(np.array([True]), np.array([False])) == INF


def test_the_worst_output_counts() -> None:
    ones: Array = np.ones(4, np.float32)
    assert relative_error([ones, ones * 1.5], [ones, ones]) == 0.5
    assert relative_error([ones], [ones, ones]) == INF
    assert relative_error([ones.reshape(2, 2)], [ones]) == INF
    assert relative_error([], []) == 0
