"""The node at which a model begins to be refused is found by few trials."""

from __future__ import annotations

import math

import pytest
from onnx import ModelProto, TensorProto, helper

from sartor.frontend.onnx_parts import first_refused

_LENGTH = 100


def _chain(length: int) -> ModelProto:
    nodes = [helper.make_node("Neg", [f"v{index}"], [f"v{index + 1}"], name=f"n{index}") for index in range(length)]
    values = [helper.make_tensor_value_info(f"v{index}", TensorProto.FLOAT, [2]) for index in range(length + 1)]
    graph = helper.make_graph(nodes, "graph", values[:1], values[-1:], value_info=values[1:-1])
    return helper.make_model(graph)


@pytest.mark.parametrize("faulty", [0, 1, 49, 50, 98, 99])
def test_the_first_refused_node_is_found(faulty: int) -> None:
    tried = []

    def is_refused(model: ModelProto) -> bool:
        tried.append(len(model.graph.node))
        assert [each.name for each in model.graph.output] == [model.graph.node[-1].output[0]]
        return any(node.name == f"n{faulty}" for node in model.graph.node)

    found = first_refused(_chain(_LENGTH), is_refused)
    assert found is not None
    assert found.name == f"n{faulty}"
    assert len(tried) <= math.ceil(math.log2(_LENGTH))


@pytest.mark.parametrize("faulty", [0, 1999, 3999])
def test_a_long_model_is_never_tried_whole(faulty: int) -> None:
    def is_refused(model: ModelProto) -> bool:
        assert len(model.graph.node) <= 2000
        return any(node.name == f"n{faulty}" for node in model.graph.node)

    found = first_refused(_chain(4000), is_refused)
    assert found is not None
    assert found.name == f"n{faulty}"


def test_a_model_without_nodes_has_none() -> None:
    assert first_refused(_chain(0), lambda _: True) is None
