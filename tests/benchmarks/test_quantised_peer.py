"""The peer in 8 bits is quantised as its makers would; stand-ins of NNCF and OpenVINO keep what they are asked."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import GraphProto, TensorProto, helper, numpy_helper

from benchmarks import quantised_peer
from benchmarks.quantised_peer import has_attention, openvino_int8
from benchmarks.zoo import build
from sartor.errors import UnsupportedModelError, UsageError

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
