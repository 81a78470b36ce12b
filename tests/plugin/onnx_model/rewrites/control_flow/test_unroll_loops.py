"""Loops that are written out, and loops that end by a condition."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.rewrites.control_flow.unroll_loops import unroll_loops
from sartor.runtime.driver.counts import cut_outputs
from tests.plugin.onnx_model.builders import FLOAT, INT64, Array, Value, model, node, relative_error, run, weights
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


BOOL = TensorProto.BOOL


def _body(nodes: Sequence[NodeProto], inputs: Sequence[Value], outputs: Sequence[Value]) -> GraphProto:
    return helper.make_graph(list(nodes), "body", _infos(inputs), _infos(outputs))


def _infos(values: Sequence[Value]) -> list[ValueInfoProto]:
    return [helper.make_tensor_value_info(name, kind, shape) for name, shape, kind in values]


def _doubling(*, collects: bool, first: bool = False, bound: int = 8, condition_rank: int = 0) -> ModelProto:
    """Doubles a state until its sum passes a limit; a step's result is the state before it.

    Args:
        collects: whether the results of the steps are an output.
        first: whether the first condition is an input.
        bound: the trip count.
        condition_rank: 1 for a condition that is a vector of one element.
    """
    shape = (1,) * condition_rank
    axes = {} if condition_rank else {"keepdims": 0}
    nodes = [
        node("Add", ["state", "state"], ["next"]),
        node("ReduceSum", ["next"], ["sum"], **axes)
        if not condition_rank
        else node("ReduceSum", ["next", "axes"], ["sum"]),
        node("Less", ["sum", "limit"], ["goes_on"]),
        node("Identity", ["state"], ["row"]),
    ]
    inputs: list[Value] = [("step", (), INT64), ("going", shape, BOOL), ("state", (3,), FLOAT)]
    outputs: list[Value] = [("goes_on", shape, BOOL), ("next", (3,), FLOAT)]
    body = _body(nodes, inputs, [*outputs, ("row", (3,), FLOAT)] if collects else outputs)
    loop = node("Loop", ["bound", "first", "x"], ["last", "rows"] if collects else ["last"], body=body)
    constants: dict[str, Array] = {
        "bound": np.asarray(bound, np.int64),
        "limit": np.asarray(10.0, np.float32),
        "axes": np.asarray([0], np.int64),
    }
    if not first:
        constants["first"] = np.full(shape, True)
    given: list[Value] = [("x", (3,), FLOAT), *([("first", (), BOOL)] if first else [])]
    results: list[str | Value] = ["last", *([("rows", ("taken", 3), FLOAT)] if collects else [])]
    return model([loop], given, results, constants)


def _cut(prepared: ModelProto, feeds: dict[str, Array]) -> list[Array]:
    values = run(prepared, feeds)
    return cut_outputs(list(values), list(values.values()))


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("collects", [False, True])
@pytest.mark.parametrize("size", [100.0, 1.0, 0.1, 1e-5])
def test_a_loop_within_a_bound_ends_by_data(
    size: float, rank: int, prepare_quickly: Prepare, *, collects: bool
) -> None:
    original = _doubling(collects=collects, condition_rank=rank)
    prepared = prepare_quickly(original).model
    assert all(item.op_type != "Loop" for item in prepared.graph.node)
    feeds: dict[str, Array] = {"x": np.full(3, size, np.float32)}
    expected = list(run(original, feeds).values())
    for value, right in zip(_cut(prepared, feeds), expected, strict=True):
        np.testing.assert_array_equal(value, right)


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("bound", [1, 5])
def test_a_loop_that_may_not_begin_and_may_end(bound: int, prepare_quickly: Prepare, *, first: bool) -> None:
    original = _doubling(collects=True, first=True, bound=bound)
    prepared = prepare_quickly(original).model
    feeds: dict[str, Array] = {"x": np.full(3, 1.0, np.float32), "first": np.asarray(first)}
    for value, right in zip(_cut(prepared, feeds), run(original, feeds).values(), strict=True):
        np.testing.assert_array_equal(value, right)


def test_numbers_that_steps_behind_the_end_overflow_to_do_not_show(prepare_quickly: Prepare) -> None:
    original = _doubling(collects=False)
    prepared = prepare_quickly(original).model
    feeds: dict[str, Array] = {"x": np.full(3, 3e38, np.float32)}
    np.testing.assert_array_equal(run(prepared, feeds)["last"], run(original, feeds)["last"])


@pytest.mark.parametrize("kind", [INT64, TensorProto.INT32])
@pytest.mark.parametrize("rank", [0, 1])
def test_steps_behind_the_end_read_no_row_behind_a_table(kind: int, rank: int, prepare_quickly: Prepare) -> None:
    """By the step's number, and by a state that counts."""
    body = _body(
        [
            node("Reshape", ["step", "scalar"], ["number"]),
            node("Gather", ["table", "number"], ["numbered"]),
            node("Gather", ["table", "place"], ["placed"]),
            node("Add", ["place", "one"], ["following"]),
            node("Add", ["numbered", "placed"], ["row"]),
            node("Add", ["state", "row"], ["next"]),
            node("Less", ["following", "n"], ["goes_on"]),
        ],
        [("step", (1,) * rank, INT64), ("going", (), BOOL), ("place", (), kind), ("state", (3,), FLOAT)],
        [("goes_on", (), BOOL), ("following", (), kind), ("next", (3,), FLOAT), ("row", (3,), FLOAT)],
    )
    loop = node("Loop", ["most", "", "zero", "x"], ["last", "y", "rows"], body=body)
    counts = {
        name: np.asarray(value, helper.tensor_dtype_to_np_dtype(kind)) for name, value in (("zero", 0), ("one", 1))
    }
    original = model(
        [loop],
        [("x", (3,), FLOAT), ("table", (2, 3), FLOAT), ("n", (), kind)],
        [("last", (), kind), ("y", (3,), FLOAT), ("rows", ("taken", 3), FLOAT)],
        {"most": np.int64(6), "scalar": np.zeros(0, np.int64), **counts},
    )
    prepared = prepare_quickly(original).model
    assert all(item.op_type != "Loop" for item in prepared.graph.node)
    for count in (1, 2):
        feeds: dict[str, Array] = {
            "x": np.ones(3, np.float32),
            "table": np.arange(6, dtype=np.float32).reshape(2, 3),
            "n": np.asarray(count, counts["zero"].dtype),
        }
        for value, right in zip(_cut(prepared, feeds), run(original, feeds).values(), strict=True):
            np.testing.assert_array_equal(value, right)


def _counting(limit: int, trips: int | None = None) -> ModelProto:
    """``while i < limit: i, x = i + 2, x * 1.5``, as exporters write a counter."""
    nodes = [
        node("Add", ["i", "two"], ["i_next"]),
        node("Mul", ["x_in", "factor"], ["x_next"]),
        node("Less", ["i_next", "limit"], ["goes_on"]),
    ]
    inputs: list[Value] = [("step", (), INT64), ("going", (), BOOL), ("i", (), INT64), ("x_in", (4,), FLOAT)]
    body = _body(nodes, inputs, [("goes_on", (), BOOL), ("i_next", (), INT64), ("x_next", (4,), FLOAT)])
    constants: dict[str, Array] = {
        **{name: np.asarray(value, np.int64) for name, value in (("two", 2), ("limit", limit), ("zero", 0))},
        "factor": np.asarray(1.5, np.float32),
        "true": np.asarray(True),
    }
    if trips is not None:
        constants["trips"] = np.asarray(trips, np.int64)
    loop = node("Loop", ["" if trips is None else "trips", "true", "zero", "x"], ["count", "y"], body=body)
    return model([loop], [("x", (4,), FLOAT)], ["y"], constants)


@pytest.mark.parametrize(("limit", "trips"), [(7, None), (1, None), (-3, None), (7, 2), (7, 100), (7, 2**62)])
def test_a_counter_ends_a_loop(limit: int, trips: int | None, prepare_quickly: Prepare) -> None:
    original = _counting(limit, trips)
    prepared = prepare_quickly(original).model
    assert all(item.op_type not in ("Loop", "Where") for item in prepared.graph.node)
    feeds: dict[str, Array] = {"x": np.arange(4, dtype=np.float32)}
    np.testing.assert_array_equal(run(prepared, feeds)["y"], run(original, feeds)["y"])


def test_a_counter_without_end_is_refused(prepare_quickly: Prepare) -> None:
    with pytest.raises(UnsupportedModelError, match=r"node 'loop' \(Loop\)"):
        prepare_quickly(_counting(2**60))
