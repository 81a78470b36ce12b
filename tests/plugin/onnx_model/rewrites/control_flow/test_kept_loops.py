"""Loops of many steps, which stay loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

from sartor.codegen.ir.target import Target
from sartor.codegen.mlir.iree_compiler import ir
from sartor.frontend.onnx_import import import_model
from sartor.frontend.stock_module import compile_stock
from sartor.onnx_model.graphs.graph import GraphEditor
from sartor.onnx_model.rewrites.control_flow import unroll_loops
from sartor.onnx_model.rewrites.control_flow.known_loops import known_loop, most_of
from sartor.runtime.driver.counts import cut_outputs
from sartor.runtime.session import Session
from tests.plugin.onnx_model.builders import FLOAT, INT64, Array, Value, ints, model, node, relative_error, run, weights
from tests.plugin.onnx_model.conftest import Prepare

BOOL = TensorProto.BOOL
STEPS = 6


@pytest.fixture(autouse=True)
def nothing_is_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take loops of six steps for long ones."""
    monkeypatch.setattr(unroll_loops, "_MAX_NODES", 4)


def _body(nodes: Sequence[NodeProto], inputs: Sequence[Value], outputs: Sequence[Value]) -> GraphProto:
    read, returned = (
        [helper.make_tensor_value_info(name, kind, shape) for name, shape, kind in values]
        for values in (inputs, outputs)
    )
    return helper.make_graph(list(nodes), "body", read, returned)


def _scan(**options: list[int]) -> ModelProto:
    """A state to which the product of each column and a weight is added; a step adds a row, a mask and its product."""
    nodes = [
        node("Unsqueeze", ["x", "one"], ["column"]),
        node("MatMul", ["w", "column"], ["product"]),
        node("Squeeze", ["product", "one"], ["row"]),
        node("Mul", ["row", "scale"], ["scaled"]),
        node("Add", ["state", "scaled"], ["next"]),
        node("Greater", ["next", "state"], ["grew"]),
        node("Identity", ["next"], ["seen"]),
    ]
    body = _body(
        nodes,
        [("state", (3,), FLOAT), ("x", (4,), FLOAT), ("scale", (), FLOAT)],
        [("next", (3,), FLOAT), ("seen", (3,), FLOAT), ("grew", (3,), BOOL)],
    )
    scan = node("Scan", ["s", "xs", "scales"], ["last", "rows", "masks"], body=body, num_scan_inputs=2, **options)
    columns = (4, STEPS) if options.get("scan_input_axes", [0])[0] else (STEPS, 4)
    rows = (3, STEPS) if options.get("scan_output_axes", [0])[0] else (STEPS, 3)
    return model(
        [scan],
        [("s", (3,), FLOAT), ("xs", columns, FLOAT), ("scales", (STEPS,), FLOAT)],
        ["last", ("rows", rows, FLOAT), ("masks", (STEPS, 3), BOOL)],
        {"one": ints(1), "w": weights(3, 4)},
    )


def _loop() -> ModelProto:
    """The number of a step is added to the state; a step adds the state before it, and a number."""
    nodes = [
        node("Cast", ["step"], ["real"], to=FLOAT),
        node("Add", ["state", "real"], ["next"]),
        node("ReduceMax", ["next"], ["most"], keepdims=0),
        node("Identity", ["state"], ["row"]),
    ]
    body = _body(
        nodes,
        [("step", (), INT64), ("going", (), BOOL), ("state", (2, 3), FLOAT)],
        [("going", (), BOOL), ("next", (2, 3), FLOAT), ("row", (2, 3), FLOAT), ("most", (), FLOAT)],
    )
    loop = node("Loop", ["n", "", "s"], ["last", "rows", "numbers"], body=body)
    outputs: list[Value] = [("last", (2, 3), FLOAT), ("rows", (STEPS, 2, 3), FLOAT), ("numbers", (STEPS,), FLOAT)]
    return model([loop], [("s", (2, 3), FLOAT)], outputs, {"n": np.int64(STEPS)})


CASES: dict[str, Callable[[], ModelProto]] = {
    "scan": _scan,
    "from the end on": lambda: _scan(scan_input_directions=[1, 0], scan_output_directions=[0, 1]),
    "along other axes": lambda: _scan(scan_input_axes=[1, 0], scan_output_axes=[-1, 0], scan_output_directions=[1, 0]),
    "loop": _loop,
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_it_computes_the_same_in_a_loop_whose_rows_are_slices(name: str, prepare_quickly: Prepare) -> None:
    built = CASES[name]()
    prepared = prepare_quickly(built).model
    assert [each.op_type for each in prepared.graph.node].count("Loop") == 1
    feeds = {value.name: _drawn(value.name, built) for value in built.graph.input}
    found = run(prepared, feeds)
    for output, right in run(built, feeds).items():
        np.testing.assert_array_equal(found[output], right)
    module = str(ir.Module.parse(import_model(prepared).bytecode, ir.Context()))
    assert module.count("scf.for") == 1
    assert module.count("tensor.insert_slice") == len(built.graph.output) - 1
    assert module.count("tensor.extract_slice") == (0 if name == "loop" else 2)


def _drawn(name: str, built: ModelProto) -> np.ndarray:
    (value,) = (each for each in built.graph.input if each.name == name)
    return weights(*(dim.dim_value for dim in value.type.tensor_type.shape.dim), seed=len(name))


def test_the_module_computes_the_same(tmp_path: Path) -> None:
    """Compiled whole, forward and from the end on."""
    built = CASES["along other axes"]()
    (tmp_path / "net.onnx").write_bytes(built.SerializeToString())
    assert compile_stock(tmp_path / "net.onnx", {}, Target.create("cpu"), tmp_path / "net.vmfb") is None
    feeds = {value.name: _drawn(value.name, built) for value in built.graph.input}
    with Session(tmp_path / "net.vmfb", threads=1) as session:
        found = session.run(None, feeds)
    for output, right in zip(found, run(built, feeds).values(), strict=True):
        if right.dtype == np.bool_:
            np.testing.assert_array_equal(output, right)
        else:
            assert relative_error(output, right) < 1e-6


def _ending(*, collects: bool = True, counts: bool = False, begins: bool = True) -> ModelProto:
    """Doubles a state until its sum passes 10; a step adds the state before it, its number, and whether it is large.

    Args:
        collects: whether what the steps add are outputs.
        counts: whether the number of steps is an input, of which at most six are taken.
        begins: whether the first step is taken; else an input says so.
    """
    nodes = [
        node("Add", ["state", "state"], ["next"]),
        node("ReduceSum", ["next"], ["sum"]),
        node("Less", ["sum", "limit"], ["goes_on"]),
        node("Identity", ["state"], ["row"]),
        node("Identity", ["step"], ["number"], name="numbered"),
        node("Greater", ["state", "limit"], ["large"]),
    ]
    added: list[Value] = [("row", (3,), FLOAT), ("number", (), INT64), ("large", (3,), BOOL)] if collects else []
    body = _body(
        nodes,
        [("step", (), INT64), ("going", (1,), BOOL), ("state", (3,), FLOAT)],
        [("goes_on", (1,), BOOL), ("next", (3,), FLOAT), *added],
    )
    before = [node("Min", ["n", "most"], ["trips"], name="least")] if counts else []
    count, first = "trips" if counts else "most", "" if begins else "first"
    results = ["last", *(name for name, _, _ in added)]
    loop = node("Loop", [count, first, "x"], results, body=body)
    inputs: list[Value] = [("x", (3,), FLOAT), *([("n", (), INT64)] if counts else [])]
    inputs += [] if begins else [("first", (1,), BOOL)]
    outputs: list[Value] = [
        ("last", (3,), FLOAT),
        *((name, ("taken", *(shape or ())), kind) for name, shape, kind in added),
    ]
    return model([*before, loop], inputs, outputs, {"most": np.int64(STEPS), "limit": np.full(1, 10, np.float32)})


def _fed(size: float, **others: Array) -> dict[str, Array]:
    return {"x": np.full(3, size, np.float32), **others}


ENDING: dict[str, tuple[Callable[[], ModelProto], list[dict[str, Array]]]] = {
    "at the first step, in between, at the bound": (_ending, [_fed(100), _fed(1), _fed(1e-5)]),
    "with the state alone": (lambda: _ending(collects=False), [_fed(100), _fed(1), _fed(1e-5)]),
    "by a count": (
        lambda: _ending(counts=True),
        [_fed(1e-5, n=np.array(count)) for count in (-1, 0, 2, STEPS, 100)],
    ),
    "before it begins": (
        lambda: _ending(begins=False, counts=True),
        [_fed(0.1, n=np.array(count), first=np.array([first])) for count in (0, 3, 9) for first in (False, True)],
    ),
}


@pytest.mark.parametrize("name", ENDING)
def test_it_ends_where_data_says(name: str, prepare_quickly: Prepare) -> None:
    make, draws = ENDING[name]
    built = make()
    prepared = prepare_quickly(built).model
    assert [each.op_type for each in prepared.graph.node].count("Loop") == 1
    for feeds in draws:
        values = run(prepared, feeds)
        found = cut_outputs(list(values), list(values.values()))
        for output, right in zip(found, run(built, feeds).values(), strict=True):
            np.testing.assert_array_equal(output, right)


def test_steps_that_are_not_taken_read_no_row_behind_a_table(prepare_quickly: Prepare) -> None:
    """By the step's number, and by a state that counts."""
    body = _body(
        [
            node("Gather", ["table", "step"], ["numbered"]),
            node("Gather", ["table", "place"], ["placed"]),
            node("Add", ["place", "one"], ["following"]),
            node("Add", ["numbered", "placed"], ["row"]),
            node("Add", ["state", "row"], ["next"]),
            node("Less", ["following", "n"], ["goes_on"]),
        ],
        [("step", (), INT64), ("going", (), BOOL), ("place", (), INT64), ("state", (3,), FLOAT)],
        [("goes_on", (), BOOL), ("following", (), INT64), ("next", (3,), FLOAT)],
    )
    loop = node("Loop", ["most", "", "zero", "x"], ["last", "y"], body=body)
    inputs: list[Value] = [("x", (3,), FLOAT), ("table", (2, 3), FLOAT), ("n", (), INT64)]
    numbers = {"most": np.int64(STEPS), "zero": np.int64(0), "one": np.int64(1)}
    built = model([loop], inputs, [("last", (), INT64), ("y", (3,), FLOAT)], numbers)
    prepared = prepare_quickly(built).model
    assert [each.op_type for each in prepared.graph.node].count("Loop") == 1
    for count in (1, 2):
        feeds = _fed(1.0, table=np.arange(6, dtype=np.float32).reshape(2, 3), n=np.array(count))
        for name, right in run(built, feeds).items():
            np.testing.assert_array_equal(run(prepared, feeds)[name], right)


def test_the_module_ends_where_data_says(tmp_path: Path) -> None:
    built = _ending(begins=False, counts=True)
    (tmp_path / "net.onnx").write_bytes(built.SerializeToString())
    assert compile_stock(tmp_path / "net.onnx", {}, Target.create("cpu"), tmp_path / "net.vmfb") is None
    with Session(tmp_path / "net.vmfb", threads=1) as session:
        for size, count, first in ((1.0, 9, True), (1e-5, 2, True), (1e-5, 9, True), (1.0, 9, False)):
            feeds = _fed(size, n=np.array(count), first=np.array([first]))
            for output, right in zip(session.run(None, feeds), run(built, feeds).values(), strict=True):
                np.testing.assert_array_equal(output, right)


def test_the_result_tells_the_axis_of_rows_whose_shape_a_body_leaves_open() -> None:
    built = CASES["along other axes"]()
    (scan,) = built.graph.node
    for value in _body_of(scan).output:
        value.type.tensor_type.ClearField("shape")
    loop = known_loop(scan, GraphEditor(built.graph))
    assert loop is not None
    assert [row.axis for row in loop.added] == [1, 0]
    for value in built.graph.output:
        value.type.tensor_type.ClearField("shape")
    assert known_loop(scan, GraphEditor(built.graph)) is None


def _body_of(scan: NodeProto) -> GraphProto:
    (body,) = (item.g for item in scan.attribute if item.name == "body")
    return body


def _scanned_conditions() -> ModelProto:
    """A row of flags says whether a step counts a state up to 5.5, by a loop of its own."""
    counting = _body(
        [
            node("Add", ["v", "one"], ["v_next"]),
            node("ReduceMax", ["v_next"], ["most"], keepdims=0),
            node("Less", ["most", "limit"], ["goes_on"]),
        ],
        [("step", (), INT64), ("going", (), BOOL), ("v", (2,), FLOAT)],
        [("goes_on", (), BOOL), ("v_next", (2,), FLOAT)],
    )
    body = _body(
        [node("Loop", ["bound", "flag", "s"], ["s_next"], body=counting), node("Identity", ["s_next"], ["row"])],
        [("s", (2,), FLOAT), ("flag", (), BOOL)],
        [("s_next", (2,), FLOAT), ("row", (2,), FLOAT)],
    )
    scan = node("Scan", ["x", "flags"], ["last", "rows"], body=body, num_scan_inputs=1)
    return model(
        [scan],
        [("x", (2,), FLOAT), ("flags", (3,), BOOL)],
        [("last", (2,), FLOAT), ("rows", (3, 2), FLOAT)],
        {"bound": np.int64(600), "one": np.ones(1, np.float32), "limit": np.float32(5.5)},
    )


def test_a_row_of_a_scan_is_no_condition_that_holds(prepare_quickly: Prepare) -> None:
    built = _scanned_conditions()
    prepared = prepare_quickly(built).model
    assert [each.op_type for each in prepared.graph.node].count("Loop") == 1
    for flags in ([False] * 3, [False, True, False], [True] * 3):
        feeds: dict[str, Array] = {"x": np.zeros(2, np.float32), "flags": np.array(flags)}
        for output, right in run(built, feeds).items():
            np.testing.assert_array_equal(run(prepared, feeds)[output], right)


@pytest.mark.parametrize("first", ["first", ""])
def test_states_alone_need_no_bound(first: str, prepare_quickly: Prepare) -> None:
    body = _body(
        [node("Add", ["state", "state"], ["next"])],
        [("step", (), INT64), ("going", (), BOOL), ("state", (3,), FLOAT)],
        [("going", (), BOOL), ("next", (3,), FLOAT)],
    )
    inputs: list[Value] = [("x", (3,), FLOAT), ("n", (), INT64), *([("first", (), BOOL)] if first else [])]
    built = model([node("Loop", ["n", first, "x"], ["y"], body=body)], inputs, [("y", (3,), FLOAT)])
    prepared = prepare_quickly(built).model
    assert str(ir.Module.parse(import_model(prepared).bytecode, ir.Context())).count("scf.for") == 1
    for count in (-1, 0, 1, 9):
        for begins in (False, True) if first else (True,):
            feeds = _fed(1.0, n=np.array(count), **({"first": np.array(begins)} if first else {}))
            np.testing.assert_array_equal(run(prepared, feeds)["y"], run(built, feeds)["y"])


def test_a_bound_of_a_count_heeds_lower_limits_and_casts() -> None:
    nodes = [
        node("Min", ["n", "three"], ["least"]),
        node("Clip", ["least", "five"], ["raised"]),
        node("Clip", ["n", "", "three"], ["limited"]),
        node("Clip", ["n", "n", "three"], ["open"]),
        node("Cast", ["least"], ["wrapped"], to=TensorProto.UINT8),
        node("Cast", ["least"], ["kept"], to=TensorProto.INT32),
        node("Cast", ["endless"], ["infinite"], to=INT64),
    ]
    numbers = {"three": np.int64(3), "five": np.int64(5), "endless": np.float32(np.inf)}
    outputs = ["raised", "limited", "open", "wrapped", "kept", "infinite"]
    built = model(nodes, [("n", (), INT64)], outputs, numbers)
    editor = GraphEditor(built.graph)
    assert [most_of(name, editor) for name in outputs] == [5, 3, None, None, 3, None]
