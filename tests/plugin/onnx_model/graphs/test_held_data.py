"""Weights that stay in the file: the same values, the same serialised model, and no copies."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import ModelProto, TensorProto, external_data_helper, numpy_helper

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.held_data import HELD_BYTES, held_array, held_data, holding, is_holding, serialised
from sartor.onnx_model.graphs.tensor_data import to_array
from sartor.onnx_model.preparing.prepare import prepare
from sartor.onnx_model.reading.load import load_model
from tests.plugin.onnx_model.builders import Array, model, node

SHAPE = (129, 257)
TYPES: list[Any] = [np.float32, np.float16, ml_dtypes.bfloat16, np.float64, np.int8, np.uint8, np.int64]


def _values(dtype: Any) -> Array:
    drawn: Array = np.random.default_rng(0).integers(-100, 100, (4, *SHAPE)).astype(dtype)
    return drawn


def _model(values: Array) -> ModelProto:
    kind = TensorProto.FLOAT
    nodes = [node("Shape", ["w"], ["t"]), node("Cast", ["t"], ["u"], to=kind), node("Add", ["x", "u"], ["y"])]
    return model(nodes, [("x", (3,), kind)], ["y"], {"w": values, "small": np.arange(5.0, dtype=np.float32)})


def _network() -> ModelProto:
    weight = np.random.default_rng(1).standard_normal((64, 3, 11, 11)).astype(np.float32)
    nodes = [node("Conv", ["x", "w", "b"], ["c"]), node("Relu", ["c"], ["y"])]
    return model(nodes, [("x", (1, 3, 16, 16), TensorProto.FLOAT)], ["y"], {"w": weight, "b": weight[:, 0, 0, 0]})


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return tmp_path / "model.onnx"


@pytest.fixture(params=["inside", "beside"])
def network(request: pytest.FixtureRequest, saved: Path) -> Path:
    built = _network()
    if request.param == "beside":
        external_data_helper.convert_model_to_external_data(built, location="w.bin")
        external_data_helper.write_external_data_tensors(built, str(saved.parent))
    saved.write_bytes(built.SerializeToString())
    return saved


@pytest.mark.parametrize("dtype", TYPES)
def test_held_values_are_the_files(saved: Path, dtype: Any) -> None:
    values = _values(dtype)
    saved.write_bytes(_model(values).SerializeToString())
    with holding():
        tensor, small = load_model(saved).graph.initializer
        assert not tensor.raw_data
        assert len(tensor.SerializeToString()) < 100
        np.testing.assert_array_equal(to_array(tensor), values)
        assert to_array(tensor).dtype == values.dtype
        assert held_data(small) is None


def test_a_network_is_prepared_alike(network: Path) -> None:
    plain = prepare(load_model(network)).model
    with holding():
        found = prepare(load_model(network)).model
        assert sum(held_array(tensor) is not None for tensor in found.graph.initializer) == 1
        assert b"".join(serialised(found)) == plain.SerializeToString(deterministic=True)


def test_nothing_is_held_outside(network: Path) -> None:
    assert not is_holding()
    loaded = load_model(network)
    assert all(tensor.raw_data and not tensor.external_data for tensor in loaded.graph.initializer)


def test_a_tensor_inside_a_node_is_read(saved: Path) -> None:
    values = np.ones(HELD_BYTES, np.float32)
    tensor = numpy_helper.from_array(values, "w")
    external_data_helper.set_external_data(tensor, "w.bin")
    tensor.ClearField("raw_data")
    (saved.parent / "w.bin").write_bytes(values.tobytes())
    nodes = [node("Constant", [], ["w"], value=tensor), node("Add", ["x", "w"], ["y"])]
    saved.write_bytes(model(nodes, [("x", (1,), TensorProto.FLOAT)], ["y"]).SerializeToString())
    with holding():
        (constant, _) = load_model(saved).graph.node
        assert constant.attribute[0].t.raw_data == values.tobytes()


def test_data_that_does_not_fit_the_shape_is_refused(saved: Path) -> None:
    built = _model(_values(np.float32))
    built.graph.initializer[0].dims[0] = 2
    saved.write_bytes(built.SerializeToString())
    with holding(), pytest.raises(UnsupportedModelError, match=r"'w' has .* bytes of data where its shape"):
        load_model(saved)


@pytest.mark.parametrize("length", [1, 1000, 100_000])
def test_a_truncated_file_is_refused_alike(network: Path, length: int) -> None:
    content = network.read_bytes()
    network.write_bytes(content[: min(length, len(content) - 1)])
    messages = []
    for _ in range(2):
        with pytest.raises(UnsupportedModelError) as plain:
            load_model(network)
        with holding(), pytest.raises(UnsupportedModelError) as held:
            load_model(network)
        messages.append((str(plain.value), str(held.value)))
    assert all(first == second for first, second in messages)


def test_the_file_is_left_alone(network: Path) -> None:
    before = hashlib.sha256(network.read_bytes()).hexdigest()
    with holding():
        prepare(load_model(network))
    assert hashlib.sha256(network.read_bytes()).hexdigest() == before
