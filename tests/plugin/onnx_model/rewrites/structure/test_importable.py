"""Forms that are valid in ONNX, and on which IREE's importer or compiler fails or errs, are gone."""

from __future__ import annotations

import pytest
from onnx import TensorProto

from tests.plugin.onnx_model.builders import X, node
from tests.plugin.onnx_model.builders import model as built
from tests.plugin.onnx_model.cases import CASES
from tests.plugin.onnx_model.conftest import Prepare


@pytest.mark.parametrize("name", sorted(name for name in CASES if name.startswith("left_out")))
def test_operands_end_with_one_that_is_given(name: str, prepare_quickly: Prepare) -> None:
    assert any(not item.input[-1] for item in CASES[name]().graph.node)
    assert all(item.input[-1] for item in prepare_quickly(CASES[name]()).model.graph.node)


@pytest.mark.parametrize("kind", [TensorProto.UINT8, TensorProto.UINT32, TensorProto.INT32])
def test_unsigned_numbers_are_their_absolute_values(kind: int, prepare_quickly: Prepare) -> None:
    prepared = prepare_quickly(built([node("Abs", ["x"], ["y"])], [("x", (2, 3), kind)], [("y", None, kind)]))
    assert any(item.op_type == "Abs" for item in prepared.model.graph.node) == (kind == TensorProto.INT32)


def test_products_of_nothing_are_zeros(prepare_quickly: Prepare) -> None:
    assert [item.op_type for item in prepare_quickly(CASES["sums_of_nothing"]()).model.graph.node] == []


def test_what_has_no_elements_is_not_computed(prepare_quickly: Prepare) -> None:
    nodes = [node("Slice", ["x", "n", "n", "last"], ["e"]), node("Relu", ["e"], ["y"]), node("Relu", ["x"], ["z"])]
    prepared = prepare_quickly(built(nodes, X, ["y", "z"], {"n": [0], "last": [3]}))
    assert [item.output[0] for item in prepared.model.graph.node] == ["z"]
