"""Indices may be anything within what they index, and nothing else; divisors are not 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from sartor.codegen.analysis.integer_ranges import integer_ranges
from sartor.codegen.ir.layer import PLAIN, Layer, LayerKind, Task, TensorType
from sartor.frontend.imported_model import ImportedModel
from sartor.frontend.layering import evaluate
from sartor.tuning.measuring.benchmark_case import BenchmarkCase
from sartor.tuning.measuring.case_data import CaseData
from tests.importing import ImportedOf, imported_model

X, Y = ("x", TensorProto.FLOAT, (3, 7, 5)), ("y", TensorProto.FLOAT, None)
TABLE = ("table", TensorProto.FLOAT, (3, 7))
PLAIN_RANGE, ZERO = range(PLAIN), range(1)

Named = tuple[str, int, tuple[int, ...] | None]


def model(kind: str, inputs: list[Named], output: Named = Y, **attributes: Any) -> onnx.ModelProto:
    node = helper.make_node(kind, [name for name, *_ in inputs], [output[0]], name="node", **attributes)
    graph = helper.make_graph(
        [node],
        "tiny",
        [helper.make_tensor_value_info(*each) for each in inputs],
        [helper.make_tensor_value_info(*output)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def indices(*shape: int) -> Named:
    return ("indices", TensorProto.INT64, shape)


def embedding() -> onnx.ModelProto:
    """Positions that are added up pick from a table of weights."""
    words, places = ("words", TensorProto.INT64, (1, 4)), ("places", TensorProto.INT64, (4,))
    made = model("Gather", [("w", TensorProto.FLOAT, (11, 5)), ("both", TensorProto.INT64, (1, 4))], axis=0)
    del made.graph.input[:]
    made.graph.input.extend(helper.make_tensor_value_info(*each) for each in (words, places))
    made.graph.node.insert(0, helper.make_node("Add", ["words", "places"], ["both"], name="add"))
    made.graph.initializer.append(numpy_helper.from_array(np.ones((11, 5), np.float32), "w"))
    return made


INTEGERS = ("k", TensorProto.INT64, None)
MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "gather": lambda: model("Gather", [X, indices(4)], axis=1),
    "elements": lambda: model("GatherElements", [TABLE, indices(3, 4)], axis=1),
    "nd": lambda: model("GatherND", [X, indices(4, 2)]),
    "scatter": lambda: model("ScatterND", [X, indices(4, 2), ("u", TensorProto.FLOAT, (4, 5))]),
    "scattered elements": lambda: model(
        "ScatterElements", [TABLE, indices(3, 2), ("u", TensorProto.FLOAT, (3, 2))], axis=1
    ),
    "embedding": embedding,
    "quotient": lambda: model("Div", [indices(4), ("by", TensorProto.INT64, (4,))], INTEGERS),
    "number": lambda: model("Cast", [indices(4)], to=TensorProto.FLOAT),
}


@pytest.fixture(scope="module")
def imported_of() -> ImportedOf:
    found: dict[str, ImportedModel] = {}

    def make(name: str) -> ImportedModel:
        if name not in found:
            found[name] = imported_model(MODELS[name]())
        return found[name]

    return make


def last(imported: ImportedModel) -> Layer:
    """The layer that picks."""
    return imported.graph.layers[-1]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # What is added to negative indices counts for nothing where there are none.
        ("gather", (range(7), PLAIN_RANGE, None)),
        # Flags that say which indices are negative may not be set.
        ("elements", (range(7), ZERO, None)),
        # Rows of three and columns of seven.
        ("nd", (range(3), range(7), None)),
        # Three times seven rows; what is no number of a column is kept within.
        ("scatter", (range(21), range(7), None, None)),
        ("scattered elements", (range(7), ZERO, None, None)),
        ("embedding", (range(11), ZERO, None)),
        # The divisor, which is not zero, whether it is -1, what is divided, and its opposite.
        ("quotient", (range(1, PLAIN), range(1, 2), PLAIN_RANGE, PLAIN_RANGE)),
        ("number", (PLAIN_RANGE,)),
    ],
)
def test_ranges_are_as_wide_as_they_can_be(
    name: str, expected: tuple[range | None, ...], imported_of: ImportedOf
) -> None:
    assert integer_ranges(last(imported_of(name)).task) == expected


def test_what_is_drawn_picks_what_numpy_picks(imported_of: ImportedOf) -> None:
    task = last(imported_of("gather")).task
    data = CaseData(BenchmarkCase(task.key, task.inputs, (), task.results, (), integers=integer_ranges(task)))
    picked, _, image = data.inputs
    assert len(set(picked.tolist())) > 1
    (found,) = evaluate(task.body.replace("@layer", "@fold"), data.inputs, task.results)
    np.testing.assert_array_equal(found, image[:, picked])


def test_what_depends_on_reals_stays_zero() -> None:
    body = """util.func public @layer(%shift: tensor<4xi64>, %x: tensor<4xf32>, %rows: tensor<7xf32>) -> tensor<4xf32> {
      %empty = tensor.empty() : tensor<4xf32>
      %out = linalg.generic {iterator_types = ["parallel"], indexing_maps = [affine_map<(d0) -> (d0)>,
          affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>]}
          ins(%shift, %x : tensor<4xi64>, tensor<4xf32>) outs(%empty : tensor<4xf32>) {
      ^bb0(%a: i64, %b: f32, %c: f32):
        %whole = arith.fptosi %b : f32 to i64
        %sum = arith.addi %whole, %a : i64
        %row = arith.index_cast %sum : i64 to index
        %r = tensor.extract %rows[%row] : tensor<7xf32>
        linalg.yield %r : f32
      } -> tensor<4xf32>
      util.return %out : tensor<4xf32>
    }"""
    reals, rows = TensorType((4,), "f32"), TensorType((7,), "f32")
    task = Task("floor", LayerKind.FIXED, body, (TensorType((4,), "i64"), reals, rows), (), (reals,))
    assert integer_ranges(task) == (ZERO, None, None)


def test_clipped_indices_are_drawn_from_all_that_is_indexed() -> None:
    body = """util.func public @layer(%at: tensor<4xi32>, %rows: tensor<7xf32>) -> tensor<4xf32> {
      %empty = tensor.empty() : tensor<4xf32>
      %most = arith.constant 6 : i32
      %out = linalg.generic {iterator_types = ["parallel"], indexing_maps = [affine_map<(d0) -> (d0)>,
          affine_map<(d0) -> (d0)>]} ins(%at : tensor<4xi32>) outs(%empty : tensor<4xf32>) {
      ^bb0(%a: i32, %c: f32):
        %clipped = arith.minsi %a, %most : i32
        %row = arith.index_cast %clipped : i32 to index
        %r = tensor.extract %rows[%row] : tensor<7xf32>
        linalg.yield %r : f32
      } -> tensor<4xf32>
      util.return %out : tensor<4xf32>
    }"""
    rows = TensorType((7,), "f32")
    task = Task("clip", LayerKind.FIXED, body, (TensorType((4,), "i32"), rows), (), (TensorType((4,), "f32"),))
    assert integer_ranges(task) == (range(7), None)


def test_bits_are_not_shifted_out() -> None:
    body = """util.func public @layer(%a: tensor<4xi32>, %by: tensor<4xi32>) -> tensor<4xi32> {
      %empty = tensor.empty() : tensor<4xi32>
      %out = linalg.generic {iterator_types = ["parallel"], indexing_maps = [affine_map<(d0) -> (d0)>,
          affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>]}
          ins(%a, %by : tensor<4xi32>, tensor<4xi32>) outs(%empty : tensor<4xi32>) {
      ^bb0(%x: i32, %y: i32, %c: i32):
        %r = arith.shli %x, %y : i32
        linalg.yield %r : i32
      } -> tensor<4xi32>
      util.return %out : tensor<4xi32>
    }"""
    whole = TensorType((4,), "i32")
    task = Task("shift", LayerKind.FIXED, body, (whole, whole), (), (whole,))
    assert integer_ranges(task) == (PLAIN_RANGE, range(32))


def test_a_task_of_reals_has_no_ranges() -> None:
    real = TensorType((4,), "f32")
    assert integer_ranges(Task("reals", LayerKind.FIXED, "not read", (real,), (real,), (real,))) == ()
