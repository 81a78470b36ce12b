"""Networks in 8 bits and in half precision: as tools quantise them, beside the faster peer, with their errors."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import onnx
import pytest
from onnx import GraphProto, TensorProto, helper, numpy_helper

from benchmarks import quantised_peer
from benchmarks.accuracy import errors
from benchmarks.half_precision import halved, written
from benchmarks.precision import _undominated
from benchmarks.quantised.__main__ import _row
from benchmarks.quantised.beside import Run
from benchmarks.quantised.files import quantised_file
from benchmarks.quantised_peer import has_attention, openvino_int8
from benchmarks.zoo import NETWORKS, build, sample_inputs
from sartor.errors import UnsupportedModelError, UsageError
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.driver.signature import Array
from tests.plugin.onnx_model.builders import model, node, relative_error, run

_RANDOM = np.random.default_rng(0)


def _written(path: Path) -> Path:
    weights = {"w": _RANDOM.standard_normal((4, 3, 3, 3)).astype(np.float32)}
    made = model([node("Conv", ["x", "w"], ["y"])], [("x", (1, 3, 6, 6), TensorProto.FLOAT)], ["y"], weights)
    onnx.save(made, path)
    return path


@pytest.mark.parametrize(("reduced", "largest"), [(False, 127), (True, 64)])
def test_weights_have_8_or_7_bits(tmp_path: Path, reduced: bool, largest: int) -> None:
    path = quantised_file(str(_written(tmp_path / "network.onnx")), tmp_path, reduced=reduced)
    stored = [numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer]
    (weight,) = (each for each in stored if each.dtype == np.int8 and each.ndim == 4)
    assert np.abs(weight.astype(int)).max() in (largest, largest - 1)
    assert quantised_file(str(path), tmp_path) == path


def test_nncf_gets_the_samples_and_the_kind_of_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def quantize(given: onnx.ModelProto, samples: list[object], **settings: object) -> onnx.ModelProto:
        asked.append((len(samples), settings))
        return given

    nncf = SimpleNamespace(quantize=quantize, Dataset=list, ModelType=SimpleNamespace(TRANSFORMER="transformer"))
    monkeypatch.setitem(sys.modules, "nncf", nncf)
    written = str(_written(tmp_path / "network.onnx"))
    path = quantised_file(written, tmp_path, by_nncf=True)
    assert (path.name, asked) == ("network.nncf.onnx", [(4, {"subset_size": 4, "model_type": None})])
    assert quantised_file(written, tmp_path, by_nncf=True) == path
    assert len(asked) == 1


def test_without_nncf_the_way_to_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nncf", None)
    with pytest.raises(UsageError, match=r"pip install 'sartor\[peers\]'"):
        quantised_file(str(_written(tmp_path / "network.onnx")), tmp_path, by_nncf=True)


def test_open_dimensions_become_one(tmp_path: Path) -> None:
    weights = {"w": np.ones((4, 2), np.float32)}
    made = model([node("MatMul", ["x", "w"], ["y"])], [("x", ("n", 4), TensorProto.FLOAT)], ["y"], weights)
    onnx.save(made, tmp_path / "network.onnx")
    found = onnx.load(quantised_file(str(tmp_path / "network.onnx"), tmp_path))
    (value,) = found.graph.input
    assert [size.dim_value for size in value.type.tensor_type.shape.dim] == [1, 4]


def test_ratios_are_to_the_faster_peer() -> None:
    runs = {"sartor": Run(2.0, 0.0), "onnxruntime": Run(3.0, 0.25), "openvino": Run(2.5, 0.125)}
    assert _row("network", "host", runs) == "| network | host | 2.00 | 3.00 | 2.50 | 1.25 | 0, 0.25, 0.12 |"
    assert _row("network", "host", {"sartor": Run(2.0, 0.0)}) == "| network | host | 2.00 |  |  |  | 0 |"


_SAMPLES = [{"x": np.ones((2, 4), np.float32)}, {"x": np.zeros((2, 4), np.float32)}]


def _graph(*nodes: tuple[str, list[str], str], weight: str = "w") -> GraphProto:
    return helper.make_graph(
        [helper.make_node(kind, inputs, [output]) for kind, inputs, output in nodes],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])],
        [helper.make_tensor_value_info(nodes[-1][2], TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.ones((4, 4), np.float32), weight)],
    )


_ATTENTION = _graph(
    ("MatMul", ["x", "w"], "v"), ("Softmax", ["x"], "s"), ("Dropout", ["s"], "d"), ("MatMul", ["d", "v"], "y")
)
_CLASSIFIER = _graph(("MatMul", ["x", "w"], "v"), ("Softmax", ["v"], "y"))
_EXPECTATION = _graph(("Softmax", ["x"], "s"), ("MatMul", ["s", "w"], "y"))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The settings of each quantisation."""
    calls: list[dict[str, Any]] = []

    def quantize(model: str, dataset: list[Any], **settings: Any) -> str:
        calls.append({"model": model, "dataset": dataset, **settings})
        return f"quantised {model}"

    nncf = SimpleNamespace(
        quantize=quantize,
        Dataset=list,
        ModelType=SimpleNamespace(TRANSFORMER="transformer"),
        InternalError=RuntimeError,
        UnsupportedModelError=NotImplementedError,
        ValidationError=ValueError,
    )
    openvino = SimpleNamespace(
        Core=lambda: SimpleNamespace(read_model=lambda path: Path(path).stem),
        save_model=lambda model, path: Path(path).write_text(model),
    )
    monkeypatch.setitem(sys.modules, "nncf", nncf)
    monkeypatch.setitem(sys.modules, "openvino", openvino)
    monkeypatch.setattr(quantised_peer, "OpenVinoReference", lambda path, **settings: (path.read_text(), settings))
    return calls


def _saved(graph: GraphProto, path: Path) -> Path:
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_networks_with_attention_are_quantised_as_transformers(tmp_path: Path, asked: list[dict[str, Any]]) -> None:
    encoder = _saved(_ATTENTION, tmp_path / "encoder.onnx")
    opened: Any = openvino_int8(encoder, tmp_path, _SAMPLES, 3, "bf16")
    assert opened == ("quantised encoder", {"threads": 3, "precision": "bf16"})
    expected = {"model": "encoder", "dataset": _SAMPLES, "subset_size": 2}
    assert asked == [{**expected, "model_type": "transformer"}]

    openvino_int8(_saved(_CLASSIFIER, tmp_path / "images.onnx"), tmp_path, _SAMPLES, 1)
    assert asked[1:] == [{**expected, "model": "images", "model_type": None}]

    openvino_int8(encoder, tmp_path, _SAMPLES, 1)
    assert len(asked) == 2, "a quantised model is kept"


def test_a_model_that_was_quantised_with_other_settings_is_not_used(
    tmp_path: Path, asked: list[dict[str, Any]]
) -> None:
    openvino_int8(_saved(_CLASSIFIER, tmp_path / "model.onnx"), tmp_path, _SAMPLES, 1)
    opened: Any = openvino_int8(_saved(_ATTENTION, tmp_path / "model.onnx"), tmp_path, _SAMPLES, 1)
    assert [each["model_type"] for each in asked] == [None, "transformer"]
    assert opened[0] == "quantised model"


def test_a_model_that_cannot_be_quantised_is_named(
    tmp_path: Path, asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise ValueError("it has loops")

    monkeypatch.setattr(sys.modules["nncf"], "quantize", refuse)
    with pytest.raises(UnsupportedModelError, match=r"'.*model\.onnx': it has loops"):
        openvino_int8(_saved(_CLASSIFIER, tmp_path / "model.onnx"), tmp_path, _SAMPLES, 1)
    assert not asked


def test_attention_is_a_softmax_that_is_multiplied_by_computed_values() -> None:
    assert has_attention(_ATTENTION)
    assert not has_attention(_CLASSIFIER)
    assert not has_attention(_EXPECTATION), "a mean of constants, as of boxes' distances"
    assert has_attention(_graph(("MultiHeadAttention", ["x", "x", "x"], "y")))


@pytest.mark.parametrize(("network", "is_transformer"), [("outlier_encoder", True), ("squeezenet", False)])
def test_networks_of_the_zoo(network: str, is_transformer: bool) -> None:
    assert has_attention(build(network).graph) == is_transformer


def test_a_missing_nncf_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nncf", None)
    with pytest.raises(UsageError, match=r"pip install 'sartor\[peers\]'"):
        openvino_int8(_saved(_CLASSIFIER, tmp_path / "model.onnx"), tmp_path, _SAMPLES, 1)


@pytest.mark.parametrize(("name", "kind"), [("f16", TensorProto.FLOAT16), ("bf16", TensorProto.BFLOAT16)])
def test_weights_are_narrow_and_callers_see_float32(name: str, kind: int) -> None:
    whole = NETWORKS["lenet5"]()
    narrow = halved(whole, name)
    onnx.checker.check_model(narrow, full_check=True)
    assert {tensor.data_type for tensor in narrow.graph.initializer} == {kind}
    assert [*narrow.graph.input, *narrow.graph.output] == [*whole.graph.input, *whole.graph.output]


def test_results_differ_by_roundings() -> None:
    whole = NETWORKS["lenet5"]()
    feeds = sample_inputs(whole)
    (result,), (right,) = (run(model, feeds).values() for model in (halved(whole, "f16"), whole))
    assert 0 < relative_error(result, right) < 5e-3
    assert not np.isnan(result).any()


def test_a_file_in_half_precision_is_taken_as_it_is(tmp_path: Path) -> None:
    whole = NETWORKS["lenet5"]()
    narrow = halved(whole, "f16")
    # As older files have it: values among the inputs, and inputs in f16.
    narrow.graph.input.extend(
        helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims) for tensor in narrow.graph.initializer
    )
    narrow.ir_version = 3
    file = tmp_path / "net.onnx"
    onnx.save(narrow, file)
    files = written(str(file), tmp_path)
    assert [*files] == ["f32", "f16", "bf16"]
    assert files["f16"] == file
    types = {name: {tensor.data_type for tensor in onnx.load(each).graph.initializer} for name, each in files.items()}
    assert types == {"f32": {TensorProto.FLOAT}, "f16": {TensorProto.FLOAT16}, "bf16": {TensorProto.BFLOAT16}}
    wide = onnx.load(files["f32"])
    feeds = sample_inputs(wide)
    (result,), (right,) = (run(model, feeds).values() for model in (wide, whole))
    assert 0 < relative_error(result, right) < 5e-3
    onnx.checker.check_model(onnx.load(files["bf16"]), full_check=True)


def test_a_front_has_no_point_that_another_beats_in_both() -> None:
    points = [(0.06, 2.24), (0.002, 4.45), (0.036, 2.11), (0.018, 2.92)]
    assert _undominated(points) == [(0.002, 4.45), (0.018, 2.92), (0.036, 2.11)]


def test_errors_are_those_of_the_worst_sample_and_the_share_of_other_answers() -> None:
    feeds = [{"x": np.array([[1.0, 2.0, 4.0]], np.float32)}, {"x": np.array([[4.0, 4.1, 0.0]], np.float32)}]

    def wrong(given: Mapping[str, Array]) -> list[Array]:
        return [given["x"] + np.array([[0.2, 0.0, 0.0]], np.float32)]

    def right(given: Mapping[str, Array]) -> list[Array]:
        return [given["x"]]

    relative, cosine, top1 = errors(wrong, cast(ReferenceModel, right), feeds)
    assert relative == pytest.approx(0.2 / 4.0)
    assert 0 < cosine < 1e-2
    assert top1 == 0.5
