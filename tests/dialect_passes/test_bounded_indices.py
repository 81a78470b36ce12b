"""Indices that are data stay within what they index, and sizes as numbers are those of the call."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from sartor.codegen.ir.sizes.dims import Extent, Product, Symbol
from sartor.codegen.ir.sizes.fit import Fit
from sartor.codegen.ir.target import Target
from sartor.codegen.mlir.iree_compiler import ir
from sartor.dialect_passes.opening.open_graph import open_graph
from sartor.frontend import stock_module
from sartor.frontend.stock_module import compile_stock, import_stock
from sartor.runtime.driver.signature import Array
from sartor.runtime.output_error import relative_error
from sartor.runtime.reference import OnnxRuntimeReference
from sartor.runtime.session import Session
from tests.dialect_passes.test_opening import opened, opened_session
from tests.importing import imported_model
from tests.open_models import named, saved
from tests.tiny_models import Builder

ROWS, WIDTH = 10, 7
TABLE = np.arange(ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH)
UPDATES = -np.arange(1, 3 * WIDTH + 1, dtype=np.float32).reshape(3, WIDTH)
RIGHT, WRONG = [[3, -1, 0]], [[ROWS + 1, -ROWS - 2, 2**40]]


def model() -> onnx.ModelProto:
    """Each operator that takes rows by numbers, each from the same numbers."""
    nodes = [
        helper.make_node("Gather", ["table", "rows"], ["gathered"]),
        helper.make_node("Reshape", ["rows", "column"], ["listed"]),
        helper.make_node("GatherElements", ["table", "listed"], ["elements"]),
        helper.make_node("GatherND", ["table", "listed"], ["parts"]),
        helper.make_node("ScatterND", ["table", "listed", "updates"], ["written"]),
        helper.make_node("ScatterElements", ["table", "listed", "first"], ["added"], reduction="add"),
    ]
    given = [helper.make_tensor_value_info("rows", TensorProto.INT64, [1, 3])]
    named = ["gathered", "elements", "parts", "written", "added"]
    results = [helper.make_tensor_value_info(each, TensorProto.FLOAT, None) for each in named]
    held = {"table": TABLE, "column": np.array([3, 1]), "updates": UPDATES, "first": UPDATES[:, :1]}
    arrays = [numpy_helper.from_array(array, name) for name, array in held.items()]
    graph = helper.make_graph(nodes, "rows", given, results, arrays)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def expected(rows: list[int]) -> list[Array]:
    """The outputs for rows that there are."""
    written, added = TABLE.copy(), TABLE.copy()
    for row, update in zip(rows, UPDATES, strict=True):
        written[row] = update
        added[row, 0] += update[0]
    return [TABLE[rows][None], TABLE[rows, :1], TABLE[rows], written, added]


Shapes = Mapping[str, Sequence[int | str]]
Run = Callable[[list[list[int]]], list[Array]]


def runs(folder: Path) -> Run:
    """Runs the model, in a module that knows nothing of its tables."""
    source, module = folder / "model.onnx", folder / "model.vmfb"
    onnx.save(model(), source)
    assert compile_stock(source, {}, Target.create("cpu"), module) is None
    session = Session(module, device="cpu", threads=1)
    return lambda rows: [each.copy() for each in session.run(None, {"rows": np.array(rows, np.int64)})]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return runs(tmp_path_factory.mktemp("rows"))


@pytest.mark.parametrize(("rows", "nearest"), [(RIGHT, [3, 9, 0]), (WRONG, [9, 0, 9])])
def test_rows_are_those_of_the_table(rows: list[list[int]], nearest: list[int], run: Run) -> None:
    for output, wanted in zip(run(rows), expected(nearest), strict=True):
        np.testing.assert_array_equal(output, wanted)


def imported(nodes: Sequence[NodeProto], given: Shapes, held: Mapping[str, Array], path: Path) -> str:
    """The code of nodes that give a tensor ``y``."""
    onnx.save(network(nodes, given, held), path)
    return str(ir.Module.parse(import_stock(path, {}, "cpu")[0].bytecode, ir.Context()))


def network(nodes: Sequence[NodeProto], given: Shapes, held: Mapping[str, Array]) -> ModelProto:
    """Nodes that give a tensor ``y``, and take numbers as ``x`` and rows by any other name."""
    kinds = {name: TensorProto.FLOAT if name == "x" else TensorProto.INT64 for name in given}
    values = [helper.make_tensor_value_info(name, kinds[name], shape) for name, shape in given.items()]
    arrays = [numpy_helper.from_array(array, name) for name, array in held.items()]
    results = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "rows", values, results, arrays)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def test_rows_may_follow_from_any_number_of_operations(tmp_path: Path) -> None:
    names = ["rows", *(f"step{number}" for number in range(300))]
    nodes = [helper.make_node("Add", [one, "one"], [next_one]) for one, next_one in itertools.pairwise(names)]
    nodes.append(helper.make_node("Gather", ["table", names[-1]], ["y"]))
    code = imported(nodes, {"rows": [3]}, {"table": TABLE, "one": np.array([1])}, tmp_path / "model.onnx")
    assert code.count("arith.minsi") == 1


def bounds(nodes: Sequence[NodeProto], given: Shapes, held: Mapping[str, Array], path: Path) -> int:
    """How many indices are bounded."""
    codes = [imported(nodes, given, held, path)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stock_module, "bound_indices", lambda *_: None)
        codes.append(imported(nodes, given, held, path))
    return codes[0].count("arith.minsi") - codes[1].count("arith.minsi")


def test_what_follows_from_loops_alone_is_not_bounded(tmp_path: Path) -> None:
    nodes = [helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="nearest")]
    scales = {"scales": np.array([1, 1, 1.7, 2.3], np.float32)}
    assert bounds(nodes, {"x": [1, 2, 5, 7]}, scales, tmp_path / "model.onnx") == 0


def test_rows_of_32_bits_and_by_several_numbers_are_bounded(tmp_path: Path) -> None:
    """Indices of several columns become places of rows before."""
    nodes = [
        helper.make_node("Cast", ["rows"], ["short"], to=TensorProto.INT32),
        helper.make_node("Gather", ["x", "short"], ["gathered"]),
        helper.make_node("GatherND", ["x", "pairs"], ["numbers"]),
        helper.make_node("Unsqueeze", ["numbers", "last"], ["column"]),
        helper.make_node("Add", ["gathered", "column"], ["y"]),
    ]
    given = {"x": [ROWS, WIDTH], "rows": [3], "pairs": [3, 2]}
    assert bounds(nodes, given, {"last": np.array([-1])}, tmp_path / "model.onnx") == 2


def test_sizes_of_what_is_indexed_may_be_open() -> None:
    """Rows of a product of sizes, and columns of sizes that have one maximum."""
    nodes = [
        helper.make_node("Reshape", ["x", "flat"], ["parts"]),
        helper.make_node("Gather", ["parts", "rows"], ["gathered"]),
        helper.make_node("GatherND", ["x", "pairs"], ["picked"]),
        helper.make_node("ReduceSum", ["x", "last"], ["matrix"], keepdims=0),
        helper.make_node("ScatterElements", ["matrix", "pairs", "updates"], ["written"], axis=1),
        helper.make_node("ReduceSum", ["written"], ["sum"], keepdims=0),
        helper.make_node("Add", ["gathered", "picked"], ["both"]),
        helper.make_node("Add", ["both", "sum"], ["y"]),
    ]
    held = {"flat": np.array([-1, 8]), "last": np.array([-1]), "updates": np.ones((3, 2), np.float32)}
    model = network(nodes, {"x": ["batch", "length", 8], "rows": [3], "pairs": [3, 2]}, held)
    fit = Fit.of([Symbol("batch", 3, 6), Symbol("length", 3, 6)])
    most = {symbol.name: symbol.most for symbol in fit.symbols}
    one, other = (
        imported_model(model, {"x": (sizes["batch"], sizes["length"], 8)}) for sizes in (most, fit.twin_sizes)
    )
    opened = open_graph((one.graph, one.weights), (other.graph, other.weights), fit)
    bodies = [layer.task.opened.body for layer in opened.layers if layer.task.opened]
    assert sum(body.count("arith.minsi") for body in bodies) == 3


def test_without_bounds_a_row_behind_the_table_is_other_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stock_module, "bound_indices", lambda *_: None)
    (gathered, *_) = runs(tmp_path)([[ROWS, 0, 0]])
    assert not np.array_equal(gathered[0, 0], TABLE[-1])


BATCH, HEIGHT, ROUNDED_COUNTS_WIDTH = Symbol("n", 1, 3), Symbol("height", 8, 48, 8), Symbol("width", 8, 44, 4)


def test_means_over_rounded_sides_and_resized_images_are_right_for_any_size(tmp_path: Path) -> None:
    """A mean divides by the product of two sides, one of which is rounded; a doubled side ends at a last row, which is
    two for some sizes, as the factor is; and the bias of the last convolution is repeated for few batches."""
    build = Builder()
    x = build.op("Relu", "r0", build.conv("stem", "x", (2, 4), strides=[2, 2]))
    pooled = build.op("MaxPool", "pooled", x, kernel_shape=[2, 2], strides=[2, 2])
    rounded = build.op("MaxPool", "rounded", pooled, kernel_shape=[2, 2], strides=[2, 2])
    scale = build.conv("scale", build.op("GlobalAveragePool", "mean", rounded), (4, 4), kernel=1)
    scaled = build.op("Mul", "scaled", pooled, build.op("Sigmoid", "share", scale))
    factors = build.constant(np.array([1, 1, 2, 2], np.float32))
    given = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    larger = build.op("Resize", "larger", scaled, "", factors, **given)
    build.op("Relu", "y", build.conv("one", larger, (4, 1), kernel=1))
    dims: dict[str, list[int | str]] = {"x": ["n", 2, "height", "width"], "y": ["n", 1, "h", "w"]}
    path = saved(named(build.model([("x", [1] * 4)], [("y", [1] * 4)]), dims), tmp_path / "model.onnx")
    graph, model = opened(
        path,
        [BATCH, HEIGHT, ROUNDED_COUNTS_WIDTH],
        lambda sizes: {"x": (sizes["n"], 2, sizes["height"], sizes["width"])},
    )
    session = opened_session(graph, model, tmp_path / "model.vmfb", by_kernels=True)
    reference = OnnxRuntimeReference(path, threads=1)
    for batch, height, width in [(3, 48, 44), (1, 8, 8), (2, 24, 12), (1, 40, 20), (3, 16, 36)]:
        image = np.random.default_rng(width).standard_normal((batch, 2, height, width)).astype(np.float32)
        expected = reference({"x": image})
        # Sums that cancel are rectified.
        assert relative_error(session.run(None, {"x": image}), expected) < 1e-4, (batch, height, width)


def test_a_number_is_a_product_of_rounded_sizes_where_these_are_known() -> None:
    fit = Fit.of([HEIGHT, ROUNDED_COUNTS_WIDTH])
    high, rounded = Extent.of((HEIGHT,), 1, 0, 2), Extent.of((ROUNDED_COUNTS_WIDTH,), 1, 0, 8)
    known = fit.knowing([high, rounded])
    values = high.most * rounded.most, high.at(fit.twin_sizes) * rounded.at(fit.twin_sizes)
    found = known.amount(*values)
    assert isinstance(found, Product)
    assert found.at({"height": 16, "width": 20}) == 8 * 2
    assert known.amount(high.most - 1, high.at(fit.twin_sizes) - 1) == high.plus(-1)
    with pytest.raises(ValueError, match="is no product of them"):
        fit.amount(*values)
