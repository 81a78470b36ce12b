"""What reads data without elements is a constant; settings without elements are no such data."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.plugin.onnx_model.builders import FLOAT, ints, model, node, run, weights
from tests.plugin.onnx_model.conftest import Prepare

_BFLOAT16 = TensorProto.BFLOAT16


@pytest.mark.parametrize("is_kept", [0, 1])
def test_a_mean_over_no_named_axes(is_kept: int, prepare_quickly: Prepare) -> None:
    mean = node("ReduceMean", ["x", "axes"], ["y"], noop_with_empty_axes=is_kept)
    built = model([mean], [("x", (2, 3), FLOAT)], ["y"], {"axes": ints()}, opset=18)
    x = weights(2, 3)
    expected = x if is_kept else x.mean(keepdims=True)
    np.testing.assert_allclose(run(prepare_quickly(built).model, {"x": x})["y"], expected, rtol=1e-6)


def test_an_index_without_numbers_is_that_of_the_whole_tensor(prepare_quickly: Prepare) -> None:
    built = model(
        [node("ScatterND", ["x", "places", "u"], ["y"])],
        [("x", (2, 3), FLOAT), ("u", (1, 2, 3), FLOAT)],
        ["y"],
        {"places": np.empty((1, 0), np.int64)},
    )
    prepared = prepare_quickly(built).model
    assert [each.op_type for each in prepared.graph.node] == ["ScatterND"]


@pytest.mark.parametrize(
    ("operator", "shapes", "result"),
    [
        ("MatMul", [(20, 0), (0, 30)], (20, 30)),
        ("Gemm", [(2, 0), (0, 3)], (2, 3)),
        ("ReduceMean", [(2, 0)], (1, 1)),
    ],
)
def test_sums_of_nothing_in_bfloat16_are_0(
    operator: str, shapes: list[tuple[int, ...]], result: tuple[int, ...], prepare_quickly: Prepare
) -> None:
    inputs = [(f"x{index}", shape, _BFLOAT16) for index, shape in enumerate(shapes)]
    built = model([node(operator, [each[0] for each in inputs], ["y"])], inputs, [("y", result, _BFLOAT16)])
    prepared = prepare_quickly(built, {name: shape for name, shape, _ in inputs}).model
    assert operator not in [each.op_type for each in prepared.graph.node]
    prepared.graph.node.append(helper.make_node("Cast", ["y"], ["wide"], to=FLOAT))
    prepared.graph.output[0].CopyFrom(helper.make_tensor_value_info("wide", FLOAT, result))
    del prepared.graph.input[:]
    np.testing.assert_array_equal(run(prepared, {})["wide"], np.zeros(result))
