"""Nodes are found in a serialised model without its weights."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from sartor.onnx_model.reading.outside_weights import outside_weights
from sartor.reference.trusted import reference_model

# As a node's operator is written: the field, the length and the name.
NAMED = b"\x22\x0dRandomUniform"


def model(operator: str, weight: bytes) -> ModelProto:
    """A node of an operator inside a branch, and a weight of some bytes."""
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    inner = helper.make_node(operator, [], ["y"], shape=[2])
    branch = helper.make_graph([inner], "branch", [], [result])
    chosen = helper.make_node("If", ["flag"], ["y"], then_branch=branch, else_branch=branch)
    flag = helper.make_tensor_value_info("flag", TensorProto.BOOL, [])
    weights = [numpy_helper.from_array(np.frombuffer(weight, np.uint8), "w")]
    return helper.make_model(helper.make_graph([chosen], "graph", [flag], [result], weights))


@pytest.mark.parametrize("size", [1, 127, 128, 70_000])
def test_weights_are_left_out_and_all_nodes_stay(size: int) -> None:
    whole = model("RandomUniform", b"\x07" * size)
    whole.functions.add(name="f", domain="d").node.add(op_type="Add")
    rest = ModelProto.FromString(outside_weights(whole.SerializeToString()))
    assert len(whole.graph.initializer) == 1
    del whole.graph.initializer[:]
    assert rest == whole


def test_a_name_among_weights_is_none(tmp_path: Path) -> None:
    content, path = model("RandomNormal", NAMED).SerializeToString(), tmp_path / "model.onnx"
    path.write_bytes(content)
    assert NAMED in content
    assert NAMED not in outside_weights(content)
    for each in (content, path):
        assert not reference_model._may_have(each, ["RandomUniform"])
        assert reference_model._may_have(each, ["RandomUniform", "RandomNormal"])
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert outside_weights(mapped) == outside_weights(content)


def test_what_is_no_model_is_searched_as_it_is(tmp_path: Path) -> None:
    content = model("RandomUniform", b"").SerializeToString()
    for broken in (content[:-3], b"\x3a\xff" + content, b"\xff" * 20, content + b"\x0b"):
        assert outside_weights(broken) == broken
    assert outside_weights(b"") == b""
    assert not reference_model._may_have(tmp_path / "none.onnx", ["RandomUniform"])
    (tmp_path / "empty.onnx").write_bytes(b"")
    assert not reference_model._may_have(tmp_path / "empty.onnx", ["RandomUniform"])
