"""By how much ties move outputs is measured in every opset, on values of any shape."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from sartor.reference.tie_spread import rounds, tie_spread
from tests.plugin.onnx_model.builders import FLOAT, MS, model, node

STEP = 0.25
SHAPES = ((), (7,), (3, 5, 2), (2, 0))


def _quantised(opset: int, shape: tuple[int, ...], kind: int = TensorProto.FLOAT) -> ModelProto:
    """Values that are rounded to multiples of a step."""
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    constants = [
        numpy_helper.from_array(np.array(STEP, dtype), "step"),
        numpy_helper.from_array(np.array(0, np.int8), "zero"),
    ]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "step", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "step", "zero"], ["y"]),
    ]
    values = [helper.make_tensor_value_info(name, kind, shape) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "quantised", values[:1], values[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def _spread(model: ModelProto, x: np.ndarray) -> float:
    return tie_spread(model.SerializeToString(), [{"x": x}])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("opset", [19, 21, 22, 23])
def test_values_next_to_ties_move_by_a_step(opset: int, shape: tuple[int, ...]) -> None:
    model = _quantised(opset, shape)
    ties, whole = (np.full(shape, each * STEP, np.float32) for each in (2.5, 2.0))
    # Both draws may leave the tie of a single value to the same side.
    moves = {0.0, 0.5} if ties.size == 1 else {0.5 if ties.size else 0.0}
    assert round(_spread(model, ties), 1) in moves
    assert _spread(model, whole) == 0


def test_values_of_half_precision_move_too() -> None:
    assert _spread(_quantised(22, (64,), TensorProto.FLOAT16), np.full(64, 0.5 * STEP, np.float16)) > 0


def test_samples_that_the_model_does_not_take_are_passed_over() -> None:
    """Drawn indices may lie outside of a table, where those that the user gives do not."""
    model = _quantised(17, (2,))
    table = numpy_helper.from_array(np.array([0.1, 2.5 * STEP], np.float32), "table")
    model.graph.initializer.append(table)
    model.graph.node.insert(0, helper.make_node("Gather", ["table", "i"], ["x"]))
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("i", TensorProto.INT64, [2]))
    outside, inside = ({"i": np.full(2, index)} for index in (9, 1))
    assert tie_spread(model.SerializeToString(), [outside]) == 0
    assert tie_spread(model.SerializeToString(), [outside, inside]) > 0


@pytest.mark.parametrize(
    "operator",
    ["DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "MatMulIntegerToFloat", "QGemm", "QLinearAdd", "QLinearMatMul"],
)
def test_models_of_fused_operators_round_too(operator: str) -> None:
    """As ONNX Runtime's optimiser writes them, in place of the operators that they fuse."""
    assert rounds(model([node(operator, ["x"], ["y"], domain=MS)], [("x", (2,), FLOAT)], ["y"]))
    assert not rounds(model([node("FusedGemm", ["x"], ["y"], domain=MS)], [("x", (2,), FLOAT)], ["y"]))
