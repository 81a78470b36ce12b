"""Models taken apart and put together again, byte by byte."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, numpy_helper

from sartor.onnx_model.graphs.wire import put_together, taken_apart, varint
from tests.plugin.onnx_model.builders import FLOAT, model, node, weights

SMALLEST = 64


def _model() -> ModelProto:
    built = model(
        [node("MatMul", ["x", "w"], ["y"])],
        [("x", (2, 30), FLOAT)],
        ["y"],
        {"w": weights(30, 40), "s": np.arange(3), "v": weights(17)},
    )
    built.graph.initializer[0].doc_string = "after the data"
    built.producer_name = "test"
    return built


def _placed(light: bytes, ranges: dict[int, memoryview]) -> bytes:
    """The light model as it looks once its tensors say where their data is."""
    found = ModelProto.FromString(light)
    for index in ranges:
        found.graph.initializer[index].data_location = TensorProto.EXTERNAL
        found.graph.initializer[index].external_data.add(key="held", value="0")
    return found.SerializeToString(deterministic=True)


def test_what_is_put_together_is_what_was_taken_apart() -> None:
    data = _model().SerializeToString(deterministic=True)
    found = taken_apart(memoryview(data), SMALLEST)
    assert found is not None
    light, ranges = found
    assert set(ranges) == {0, 2}
    assert len(light) < 500
    assert bytes(ranges[0]) == weights(30, 40).tobytes()
    assert b"".join(put_together(_placed(light, ranges), ranges)) == data


def test_the_model_without_data_is_the_model() -> None:
    built = _model()
    found = taken_apart(memoryview(built.SerializeToString()), SMALLEST)
    assert found is not None
    for index in found[1]:
        built.graph.initializer[index].ClearField("raw_data")
    assert ModelProto.FromString(found[0]) == built


def test_two_graphs_are_left_to_protobuf() -> None:
    data = _model().SerializeToString()
    assert taken_apart(memoryview(data + data), SMALLEST) is None


def test_data_given_twice_is_left_in() -> None:
    tensor = numpy_helper.from_array(weights(20), "w").SerializeToString()
    raw = TensorProto(raw_data=weights(20, seed=1).tobytes()).SerializeToString()
    built = _model().SerializeToString()
    extra = tensor + raw
    graph = b"\x2a" + _varint(len(extra)) + extra
    # A graph with one more initialiser, written as protobuf would merge it.
    parsed = ModelProto.FromString(built)
    payload = parsed.graph.SerializeToString() + graph
    del parsed.graph.node[:]
    parsed.ClearField("graph")
    data = parsed.SerializeToString() + b"\x3a" + _varint(len(payload)) + payload
    found = taken_apart(memoryview(data), SMALLEST)
    assert found is not None
    assert 3 not in found[1]
    assert ModelProto.FromString(found[0]).graph.initializer[3].raw_data == weights(20, seed=1).tobytes()


@pytest.mark.parametrize("cut", [1, 7, 100, 3000])
def test_a_truncated_model_is_left_to_protobuf(cut: int) -> None:
    data = _model().SerializeToString()
    assert taken_apart(memoryview(data[:-cut]), SMALLEST) is None


@pytest.mark.parametrize("data", [b"\x3b\x01", b"\xff" * 20, b"\x3a\xff\xff\xff\xff\x0f", b"\x38\x01"])
def test_rubbish_is_left_to_protobuf(data: bytes) -> None:
    assert taken_apart(memoryview(data), SMALLEST) is None


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 2**31, 2**40])
def test_variable_length_integers(value: int) -> None:
    assert varint(_varint(value), 0) == (value, len(_varint(value)))


def _varint(value: int) -> bytes:
    pieces = []
    while value >= 0x80:
        pieces.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*pieces, value])
