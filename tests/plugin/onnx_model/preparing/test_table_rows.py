"""Which inputs are rows of tables: only those all of whose elements have to be."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from sartor.onnx_model.preparing.table_rows import table_rows


def model(*nodes: NodeProto) -> ModelProto:
    """A model of ids, with tables of 9 and 5 rows."""
    given = [helper.make_tensor_value_info(name, TensorProto.INT64, [2, 3]) for name in ("ids", "more")]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    tables = [numpy_helper.from_array(np.ones((rows, 5), np.float32), f"t{rows}") for rows in (9, 5)]
    shape = numpy_helper.from_array(np.array([6]), "flat")
    first = numpy_helper.from_array(np.array([1]), "one")
    graph = helper.make_graph(nodes, "rows", given, [result], [*tables, shape, first])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    for name, kind in (("narrow", TensorProto.INT32), ("bytes", TensorProto.INT8)):
        made.graph.value_info.append(helper.make_tensor_value_info(name, kind, [2, 3]))
    return made


make = helper.make_node
GATHER = make("Gather", ["t9", "ids"], ["y"])


@pytest.mark.parametrize(
    ("nodes", "rows"),
    [
        ([GATHER], {"ids": 9}),
        ([GATHER, make("Gather", ["t5", "ids"], ["z"])], {"ids": 5}),
        ([make("Gather", ["t9", "ids"], ["y"], axis=1)], {"ids": 5}),
        ([make("Reshape", ["ids", "flat"], ["list"]), make("Gather", ["t9", "list"], ["y"])], {"ids": 9}),
        ([make("Cast", ["ids"], ["narrow"], to=6), make("Gather", ["t9", "narrow"], ["y"])], {"ids": 9}),
        (
            [make("Concat", ["ids", "more"], ["all"], axis=0), make("Gather", ["t9", "all"], ["y"])],
            {"ids": 9, "more": 9},
        ),
        ([make("GatherND", ["t9", "ids"], ["y"])], {"ids": 9}),
        # What is computed from an input may be inside where the input is not, and not all of it may be read.
        ([make("Add", ["ids", "more"], ["sum"]), make("Gather", ["t9", "sum"], ["y"])], {}),
        ([make("Gather", ["ids", "one"], ["part"]), make("Gather", ["t9", "part"], ["y"])], {}),
        ([make("Cast", ["ids"], ["bytes"], to=3), make("Gather", ["t9", "bytes"], ["y"])], {}),
        # Tables that are computed may have other sizes in other plans.
        ([make("Add", ["t9", "y0"], ["t"]), make("Gather", ["t", "ids"], ["y"])], {}),
    ],
)
def test_inputs_that_are_rows_are_found(nodes: list[NodeProto], rows: dict[str, int]) -> None:
    assert table_rows(model(*nodes)) == rows
