from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from sartor.errors import ReferenceFailedError, UnsupportedModelError, UsageError
from sartor.runtime import reference as runtime_reference
from sartor.runtime.output_error import relative_error
from sartor.runtime.reference import OnnxRuntimeReference, OpenVinoReference, reason_of
from tests.tiny_models import looping

X = np.arange(6, dtype=np.float32).reshape(2, 3)
SHAPES = {"x": [1, 4, 5, 5], "y": [1, 8, 3, 3]}


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


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (
            "[ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned while running Mod node. Name:'m' "
            "Status Message: element_wise_ops.cc:2421 operator() Integer modulo by zero",
            "node 'm' (Mod): Integer modulo by zero",
        ),
        (
            "[ONNXRuntimeError] : 1 : FAIL : Exception during initialization: /onnxruntime_src/onnxruntime/core/"
            "providers/cpu/nn/lrn.h:22 onnxruntime::LRN<T>::LRN(const onnxruntime::OpKernelInfo&) [with T = float] "
            "size_ > 0 was false. ",
            "it requires size > 0",
        ),
        (
            "[ONNXRuntimeError] : 1 : FAIL : Load model from a b.onnx failed:Node (n) Op (Col2Im) "
            "[ShapeInferenceError] Attribute pads must have an even size",
            "node 'n' (Col2Im): Attribute pads must have an even size",
        ),
        ("something else", "something else"),
    ],
)
def test_reasons_name_the_node_and_no_place_in_code(said: str, reason: str) -> None:
    assert reason_of(RuntimeError(said)) == reason


def test_f16_model_whose_optimisation_crashes_is_loaded(tmp_path: Path) -> None:
    weight = helper.make_tensor("weight", TensorProto.FLOAT16, [7, 1], np.ones((7, 1), np.float16).tobytes(), raw=True)
    graph = helper.make_graph(
        [
            helper.make_node("Transpose", ["x"], ["t"], perm=[1, 2, 0]),
            helper.make_node("Split", ["t", "sizes"], ["first", "second"], axis=1),
            helper.make_node("MatMul", ["weight", "first"], ["y"]),
            helper.make_node("Transpose", ["second"], ["z"], perm=[1, 2, 0]),
        ],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, [2, 1, 13])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT16, None) for name in "yz"],
        [weight, helper.make_tensor("sizes", TensorProto.INT64, [2], [1, 12])],
    )
    file = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), file)
    # It would end this process as well.
    code = (
        "import sys; from sartor.runtime.reference import OnnxRuntimeReference as R; R(open(sys.argv[1], 'rb').read())"
    )
    assert subprocess.run([sys.executable, "-c", code, file], check=False).returncode == 0


def _filter_by_input_channels() -> bytes:
    """A quantised convolution whose filter is dequantised along axis 1."""
    rng = np.random.default_rng(0)
    weights = {
        "filter": rng.integers(-128, 128, (8, 4, 3, 3)).astype(np.int8),
        "steps": np.array([0.01, 0.02, 0.03, 0.04], np.float32),
        "zeros": np.zeros(4, np.int8),
        "in_step": np.float32(0.02),
        "in_zero": np.uint8(128),
        "out_step": np.float32(0.5),
        "out_zero": np.uint8(120),
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["filter", "steps", "zeros"], ["w"], axis=1),
        helper.make_node("QuantizeLinear", ["x", "in_step", "in_zero"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "in_step", "in_zero"], ["xd"]),
        helper.make_node("Conv", ["xd", "w"], ["c"], name="conv"),
        helper.make_node("QuantizeLinear", ["c", "out_step", "out_zero"], ["cq"]),
        helper.make_node("DequantizeLinear", ["cq", "out_step", "out_zero"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in SHAPES.items()]
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "graph", ends[:1], ends[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()


def test_a_model_that_optimisations_break_runs_without_them() -> None:
    model = _filter_by_input_channels()
    x = np.random.default_rng(1).standard_normal(SHAPES["x"], np.float32)
    (expected,) = OnnxRuntimeReference(model, threads=1, optimises=False)({"x": x})
    reference = OnnxRuntimeReference(model, threads=1)
    with pytest.raises(UsageError, match="Invalid rank"):
        reference({"x": x[0]})
    for _ in range(2):
        np.testing.assert_array_equal(reference({"x": x})[0], expected)
    with pytest.raises(UsageError, match="cannot run the model: node 'conv"):
        OnnxRuntimeReference(model, threads=1, is_timed=True)({"x": x})


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


def test_time_without_a_processor_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a process that is stopped, or waits for others; what waits for anything else ends after some such times."""
    monkeypatch.setattr(runtime_reference, "_MOST_WAITING", 4)
    monkeypatch.setattr(time, "process_time", lambda: 0.0)
    endless = OnnxRuntimeReference(looping(2_000_000_000).SerializeToString(), threads=1)
    begun = time.monotonic()
    with pytest.raises(ReferenceFailedError, match=r"within 0\.1 s$"):
        endless({"x": np.ones(3, np.float32)}, 0.1)
    assert time.monotonic() - begun >= 0.4


def test_an_inference_that_does_not_end_is_given_up(onnx_file: Path) -> None:
    endless = OnnxRuntimeReference(looping(2_000_000_000).SerializeToString(), threads=1)
    with pytest.raises(ReferenceFailedError, match=r"^ONNX Runtime did not end an inference within 0\.2 s$"):
        endless({"x": np.ones(3, np.float32)}, 0.2)
    np.testing.assert_array_equal(OnnxRuntimeReference(onnx_file)({"x": X}, 60.0)[1], -X)
    with pytest.raises(UsageError, match="cannot run the model"):
        OnnxRuntimeReference(onnx_file)({"x": X.astype(np.float64)}, 60.0)
