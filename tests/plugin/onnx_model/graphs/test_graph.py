"""Names that edits give and change, nodes that refusals name, and models put together again byte by byte."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.graph import GraphEditor
from sartor.onnx_model.graphs.names import described_nodes, naming_origins
from sartor.onnx_model.graphs.wire import put_together, taken_apart, varint
from sartor.onnx_model.preparing.prepare import prepare
from sartor.onnx_model.rewrites.exceptional.angles import reduced_angles
from tests.plugin.onnx_model.builders import FLOAT, INT64, model, node, run, weights

_PART = "y/angle_size"
"""What a part of ``y = Sin(...)`` is called if the name is free."""


def _conditional(branch: list[NodeProto], around: list[NodeProto], outputs: list[str]) -> ModelProto:
    """A conditional with two branches of the same nodes, which return ``z``, behind other nodes."""
    returned = [helper.make_tensor_value_info("z", FLOAT, [4])]
    taken = node(
        "If",
        ["c"],
        ["chosen"],
        then_branch=helper.make_graph(branch, "then", [], returned),
        else_branch=helper.make_graph(branch, "else", [], returned),
    )
    return model([*around, taken], [("x", (4,), FLOAT), ("c", (), TensorProto.BOOL)], [*outputs, "chosen"])


@pytest.mark.parametrize(
    ("branch", "around", "outputs"),
    [
        ([node("Sin", ["x"], ["y"]), node("Add", ["y", _PART], ["z"])], [node("Neg", ["x"], [_PART])], []),
        ([node("Neg", ["x"], [_PART]), node("Abs", [_PART], ["z"])], [node("Sin", ["x"], ["y"])], ["y"]),
    ],
    ids=["read in a body", "defined in a body"],
)
def test_new_names_are_free_in_all_graphs(branch: list[NodeProto], around: list[NodeProto], outputs: list[str]) -> None:
    built = _conditional(branch, around, outputs)
    feeds = {"x": np.array([0.25, 1, -2, 3], np.float32), "c": np.array(True)}
    right = run(built, feeds)
    assert reduced_angles(built)
    for name, found in run(built, feeds).items():
        np.testing.assert_allclose(found, right[name], atol=1e-6)
    bodies = [attribute.g for attribute in built.graph.node[-1].attribute]
    outside = {name for each in built.graph.node for name in each.output}
    assert not any(name in outside for body in bodies for each in body.node for name in each.output)


def test_a_value_of_a_body_is_not_renamed_like_one_around_it() -> None:
    branch = [node("Neg", ["old"], ["a"]), node("Abs", ["a"], ["z"])]
    built = _conditional(branch, [node("Relu", ["x"], ["a"]), node("Exp", ["x"], ["old"])], ["a"])
    GraphEditor(built.graph).redirect({"a": "x", "old": "new"})
    body = built.graph.node[-1].attribute[0].g
    assert [list(each.input) for each in body.node] == [["new"], ["a"]]


def unsimplified(_: object) -> tuple[str, ...]:
    return ()


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("node 'a/b' (Conv) fails", "node 'a/b' (Conv) fails"),
        ("node 'a/b/c/d' (Mul) fails", "node 'a/b' (Conv), in its part 'c/d' (Mul), fails"),
        ("node 'a/b' (Reshape) fails", "node 'a/b' (Conv), in its part Reshape, fails"),
        ("node 'else/c' (Mul) fails", "node 'else/c' (Mul) fails"),
    ],
)
def test_the_owner_of_a_part_is_named(said: str, expected: str) -> None:
    built = model([node("Conv", ["x", "w"], ["y"], name="a/b")], [], ["y"])
    assert str(naming_origins(UnsupportedModelError(said), described_nodes(built))) == expected


def test_nodes_of_an_expanded_function_belong_to_its_call() -> None:
    angles = {name: np.zeros((2, 9, 8), np.float32) for name in ("cos", "sin")}
    call = node("RotaryEmbedding", ["x", *angles], ["y"], name="rotary", num_heads=2)
    built = model([call], [("x", (2, 3, 96), FLOAT)], ["y"], angles, opset=23)
    with pytest.raises(UnsupportedModelError, match=r"^node 'rotary' \(RotaryEmbedding\), in its part 'Mul"):
        prepare(built, simplifier=unsimplified)


@pytest.mark.parametrize(
    ("image", "block"), [([2**31 - 1] * 2, [1, 5]), ([5, 5], [2**40] * 2), ([5, 5], [0, 5]), ([5, 5], [2, 2])]
)
def test_columns_that_are_no_blocks_of_an_image_are_refused(image: Any, block: Any) -> None:
    sizes = {"image": np.array(image, np.int64), "block": np.array(block, np.int64)}
    built = model([node("Col2Im", ["x", *sizes], ["y"])], [("x", (1, 5, 5), FLOAT)], ["y"], sizes, opset=18)
    with pytest.raises(UnsupportedModelError, match=r"^node 'col2im' \(Col2Im\)"):
        prepare(built, simplifier=unsimplified)


def test_a_shape_may_be_taken_from_and_to_any_index() -> None:
    taken = node("Shape", ["x"], ["y"], start=-(2**63), end=2**40)
    built = model([taken], [("x", (2, 3), FLOAT)], [("y", None, INT64)])
    prepared = prepare(built, simplifier=unsimplified)
    assert prepared.outputs[0].shape == (2,)


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
