"""Loops that are written out: all copies of the body share its weights."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from sartor.onnx_model.rewrites.control_flow.unroll_loops import unroll_loops
from tests.plugin.onnx_model.builders import FLOAT, INT64, model, node, relative_error, run, weights
from tests.plugin.onnx_model.conftest import Load, Prepare

_STEPS = 5


def _loop(*, is_node: bool) -> ModelProto:
    """A state that is multiplied by weights in each step, which are an initialiser of the body or a node in it."""
    table = numpy_helper.from_array(weights(8, 8, scale=0.3), "w")
    given = [helper.make_node("Constant", [], ["w"], name="table", value=table)] if is_node else []
    steps = [
        *given,
        helper.make_node("MatMul", ["state", "w"], ["next"], name="product"),
        helper.make_node("Identity", ["go"], ["going"], name="on"),
    ]
    values = [("step", INT64, []), ("go", TensorProto.BOOL, []), ("state", FLOAT, [2, 8])]
    inputs = [helper.make_tensor_value_info(*value) for value in values]
    outputs = [
        helper.make_tensor_value_info("going", TensorProto.BOOL, []),
        helper.make_tensor_value_info("next", FLOAT, [2, 8]),
    ]
    body = helper.make_graph(steps, "body", inputs, outputs, [] if is_node else [table])
    return model(
        [node("Loop", ["n", "", "x"], ["y"], body=body)], [("x", (2, 8), FLOAT)], ["y"], {"n": np.int64(_STEPS)}
    )


def _twice(steps: int) -> ModelProto:
    """A loop whose body returns one value as its state and as its result."""
    values = [("step", INT64, []), ("go", TensorProto.BOOL, []), ("state", FLOAT, [3])]
    inputs = [helper.make_tensor_value_info(*value) for value in values]
    outputs = [helper.make_tensor_value_info(*each) for each in (values[1], *[("next", FLOAT, [3])] * 2)]
    body = helper.make_graph([node("Neg", ["state"], ["next"])], "body", inputs, outputs)
    loop = node("Loop", ["n", "", "x"], ["y", "z"], body=body)
    return model([loop], [("x", (3,), FLOAT)], ["y", ("z", (steps, 3), FLOAT)], {"n": np.int64(steps)})


@pytest.mark.parametrize("steps", [0, 3])
def test_a_value_that_is_returned_twice(steps: int, save_and_load: Load, prepare_quickly: Prepare) -> None:
    built = _twice(steps)
    prepared = prepare_quickly(save_and_load(built)).model
    assert all(each.op_type != "Loop" for each in prepared.graph.node)
    feeds = {"x": weights(3)}
    for name, right in run(built, feeds).items():
        np.testing.assert_array_equal(run(prepared, feeds)[name], right)


@pytest.mark.parametrize("is_node", [False, True])
def test_weights_of_a_body_are_there_once(prepare_quickly: Prepare, *, is_node: bool) -> None:
    built = _loop(is_node=is_node)
    prepared = prepare_quickly(built).model
    assert sum(each.op_type == "MatMul" for each in prepared.graph.node) == _STEPS
    assert sum(list(initializer.dims) == [8, 8] for initializer in prepared.graph.initializer) == 1
    x = {"x": weights(2, 8, seed=1)}
    assert relative_error(run(prepared, x)["y"], run(built, x)["y"]) < 1e-6


@pytest.mark.parametrize(("operator", "loops"), [("MatMul", 0), ("MatMulInteger", 0), ("Mul", 1)])
def test_long_loops_are_written_out_if_they_multiply_matrices(operator: str, loops: int) -> None:
    """IREE would fuse all steps of those that do not."""
    body = helper.make_graph(
        [node(operator, ["state", "w"], ["next"]), node("Identity", ["going"], ["goes_on"])],
        "body",
        [helper.make_tensor_value_info(name, *kind) for name, kind in _NUMBERED.items()],
        [helper.make_tensor_value_info(name, *_NUMBERED[like]) for name, like in _RESULTS.items()],
    )
    built = model([node("Loop", ["n", "", "x"], ["y"], body=body)], [("x", (3, 3), FLOAT)], [("y", (3, 3), FLOAT)])
    built.graph.initializer.extend(
        numpy_helper.from_array(array, name) for name, array in (("w", weights(3, 3)), ("n", np.asarray(300)))
    )
    unroll_loops(built)
    assert [each.op_type for each in built.graph.node].count("Loop") == loops


_NUMBERED = {"step": (INT64, ()), "going": (TensorProto.BOOL, ()), "state": (FLOAT, (3, 3))}
_RESULTS = {"goes_on": "going", "next": "state"}
