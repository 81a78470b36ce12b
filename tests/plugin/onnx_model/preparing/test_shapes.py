"""Shapes: which inputs decide them, how free dimensions are bound, and which declared ones do not count."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper, parser

from sartor.errors import UnsupportedModelError, UsageError
from sartor.onnx_model.graphs.graph import static_shape
from sartor.onnx_model.graphs.prepared import PreparedModel, TensorInfo
from sartor.onnx_model.preparing.prepare import prepare
from sartor.onnx_model.preparing.shape_inputs import shape_inputs
from sartor.onnx_model.preparing.table_rows import table_rows
from tests.plugin.onnx_model.builders import FLOAT, INT64, model, node, run, weights
from tests.plugin.onnx_model.conftest import Prepare


def _dynamic() -> ModelProto:
    """Two inputs that share the symbol ``n``; the reshape target is computed from a shape."""
    return model(
        [
            node("Add", ["a", "b"], ["s"]),
            node("Shape", ["s"], ["d"]),
            node("Gather", ["d", "first"], ["n"]),
            node("Concat", ["n", "rest"], ["t"], axis=0),
            node("Reshape", ["s", "t"], ["y"]),
        ],
        [("a", ("n", 4, "m"), FLOAT), ("b", ("n", 1, 1), FLOAT)],
        ["y"],
        {"first": [0], "rest": [-1]},
    )


def _bind(built: ModelProto, **shapes: tuple[int, ...]) -> PreparedModel:
    return prepare(built, shapes)


def test_binding_reaches_every_value(prepare_quickly: Prepare) -> None:
    prepared = _bind(_dynamic(), a=(3, 4, 5))
    assert [item.op_type for item in prepared.model.graph.node] == ["Add", "Reshape"]
    assert prepared.inputs[1] == TensorInfo("b", (3, 1, 1), prepared.inputs[1].dtype)
    assert prepared.outputs[0].shape == (3, 20)
    values = prepared.model.graph.value_info
    assert values
    assert all(static_shape(value.type) for value in values)


def test_the_model_itself_is_not_changed(prepare_quickly: Prepare) -> None:
    built = _dynamic()
    before = built.SerializeToString()
    _bind(built, a=(3, 4, 5))
    assert built.SerializeToString() == before


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"c": (1,)}, r"names the input 'c', which the model does not have; its inputs are 'a', 'b'"),
        ({"a": (3, 4)}, r"--shape a=3,4 has 2 dimensions, but the input has 3: n,4,m"),
        ({"a": (3, 5, 5)}, r"binds dimension 1 of 'a' to 5, but the model fixes it to 4"),
        ({"a": (3, 4, 5), "b": (2, 1, 1)}, r"binds 'n' to 3 in 'a' and to 2 in 'b'"),
        ({"b": (3, 1, 1)}, r"dimension 2 \('m'\) of input 'a' is not fixed; bind it with --shape a=3,4,128"),
        ({}, r"dimension 0 \('n'\) of input 'a' is not fixed; bind it with --shape a=1,4,128"),
        ({"a": (-1, 4, 5)}, r"--shape a=-1,4,5 has a dimension that is not between 0 and"),
    ],
)
def test_shapes_that_do_not_fit(shapes: dict[str, tuple[int, ...]], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        prepare(_dynamic(), shapes)


def test_a_size_of_zero_must_be_asked_for() -> None:
    built = model([node("ReduceSum", ["x", "axis"], ["y"])], [("x", [0, 4], FLOAT)], ["y"], {"axis": np.array([0])})
    with pytest.raises(
        UsageError,
        match=r"dimension 0 of input 'x' has the size 0; .* --shape x=1,4, or with other sizes, with 0 there",
    ):
        prepare(built)
    assert _bind(built, x=(0, 4)).inputs[0].shape == (0, 4)
    assert _bind(built, x=(3, 4)).inputs[0].shape == (3, 4)


def test_unknown_rank_is_bound_too(prepare_quickly: Prepare) -> None:
    built = model([node("Relu", ["x"], ["y"])], [("x", (1,), FLOAT)], ["y"])
    built.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(UsageError, match=r"declares no shape; bind it with --shape x=1,3,224,224"):
        prepare(built)
    assert _bind(built, x=(2, 3)).outputs[0].shape == (2, 3)


def test_zero_and_negative_dimensions_count_as_free(prepare_quickly: Prepare) -> None:
    built = model([node("Relu", ["x"], ["y"])], [("x", (-1, 0, 7), FLOAT)], ["y"])
    with pytest.raises(UsageError, match=r"--shape x=1,128,7"):
        prepare(built)
    assert _bind(built, x=(2, 3, 7)).outputs[0].shape == (2, 3, 7)


def test_shape_that_depends_on_data(prepare_quickly: Prepare) -> None:
    nodes = [node("Range", ["zero", "end", "one"], ["y"])]
    constants = {"zero": np.array(0), "one": np.array(1)}
    built = model(nodes, [("end", (), INT64)], [("y", None, INT64)], constants)
    with pytest.raises(UnsupportedModelError, match=r"'y', computed by .*, depends on the data"):
        prepare(built)


def test_input_that_is_no_tensor(prepare_quickly: Prepare) -> None:
    built = model([node("SequenceAt", ["x", "i"], ["y"])], [], ["y"], {"i": 0})
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, [2]))
    built.graph.input.append(helper.make_value_info("x", kind))
    with pytest.raises(UnsupportedModelError, match="input 'x' is not a tensor"):
        prepare(built)


def test_contradicting_shapes(prepare_quickly: Prepare) -> None:
    built = model([node("MatMul", ["a", "b"], ["y"])], [("a", (2, 3), FLOAT), ("b", (4, 5), FLOAT)], ["y"])
    with pytest.raises(UnsupportedModelError, match="contradict"):
        prepare(built)


def test_a_shape_that_an_input_decides_is_refused_by_node(prepare_quickly: Prepare) -> None:
    built = model([node("BlackmanWindow", ["n"], ["y"])], [("n", (), INT64)], ["y"])
    with pytest.raises(UnsupportedModelError, match=r"'y', computed by node '\w+' \(BlackmanWindow\),.*--bind n="):
        prepare_quickly(built)


@pytest.mark.parametrize(("declared", "shapes"), [(None, {"x": (2, 3)}), (("n", 3), {"x": (2, 3)}), ((2, 3), {})])
def test_an_input_that_is_an_output_has_its_shape_there(
    declared: tuple[int | str, ...] | None, shapes: dict[str, tuple[int, ...]], prepare_quickly: Prepare
) -> None:
    built = model([node("Relu", ["a"], ["y"])], [("a", (2,), FLOAT), ("x", declared, FLOAT)], ["y", "x"])
    assert [(output.name, output.shape) for output in _bind(built, **shapes).outputs] == [("y", (2,)), ("x", (2, 3))]


def _inputs(text: str) -> tuple[str, ...]:
    return shape_inputs(parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}'))


def test_shapes_axes_and_steps_do() -> None:
    assert _inputs("g (float[2, 3] x, int64[2] s) => (float[a, b] y) { y = Reshape(x, s) }") == ("s",)
    assert _inputs(
        "g (float[4] x, int64[1] a, int64[1] b, int64[1] c, int64[1] d) => (float[n] y) { y = Slice(x, a, b, c, d) }"
    ) == ("a", "b", "c", "d")


def test_what_a_shape_is_computed_from_does_but_not_what_has_a_shape() -> None:
    assert _inputs(
        "g (float[4] x, int64[1] n, float[3] z) => (float[m] y) "
        "{ two = Constant <value_ints: ints = [2]> () s = Mul (n, two) t = Shape (z) u = Concat <axis: int = 0> (s, t)"
        " y = Expand (x, u) }"
    ) == ("n",)


def test_data_does_not() -> None:
    assert _inputs("g (float[2] x, float[2] y) => (float[2] z) { z = Add (x, y) }") == ()
    assert _inputs("g (float[2] x, int64[5, 5] s) => (float[n] y) { f = ReduceSum (s) y = Expand (x, f) }") == ()


def table_rows_model(*nodes: NodeProto) -> ModelProto:
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
    assert table_rows(table_rows_model(*nodes)) == rows


_X = np.ones((4, 8), np.float32)


def _product(output: tuple[int | str, ...], inner: tuple[int | str, ...] | None = None) -> ModelProto:
    """relu(x w), [4, 16], whose output and product declare these shapes."""
    nodes = [node("MatMul", ["x", "w"], ["t"]), node("Relu", ["t"], ["y"])]
    built = model(nodes, [("x", (4, 8), FLOAT)], [("y", output, FLOAT)], {"w": weights(8, 16)})
    if inner is not None:
        built.graph.value_info.append(helper.make_tensor_value_info("t", FLOAT, inner))
    return built


@pytest.mark.parametrize(
    ("output", "inner", "said"),
    [
        ((3, 16), None, "'y' is [4, 16] and not [3, 16]"),
        ((4, 16, 1), None, "'y' is [4, 16] and not [4, 16, 1]"),
        ((4, 16), (4, 15), "'t' is [4, 16] and not [4, 15]"),
        ((4, 16), (16,), "'t' is [4, 16] and not [16]"),
        (("batch", 1), ("batch", 2, 3), "'t' is [4, 16] and not [?, 2, 3]; 'y' is [4, 16] and not [?, 1]"),
    ],
)
def test_inferred_shapes_count_with_a_warning(
    output: tuple[int | str, ...],
    inner: tuple[int | str, ...] | None,
    said: str,
    prepare_quickly: Prepare,
    caplog: pytest.LogCaptureFixture,
) -> None:
    original = _product(output, inner)
    with caplog.at_level(logging.WARNING):
        prepared = prepare_quickly(original)
    assert prepared.outputs[0].shape == (4, 16)
    assert said in caplog.text
    assert np.array_equal(run(prepared.model, {"x": _X})["y"], run(original, {"x": _X})["y"])


@pytest.mark.parametrize("output", [(4, 16), ("batch", 16)])
def test_fitting_shapes_are_not_mentioned(
    output: tuple[int | str, ...], prepare_quickly: Prepare, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        prepare_quickly(_product(output, output))
    assert not caplog.text


def test_the_right_shape_of_a_resized_image_is_not_taken_for_wrong(
    prepare_quickly: Prepare, caplog: pytest.LogCaptureFixture
) -> None:
    """ONNX's own inference finds 13 rows."""
    resized = node("Resize", ["x", "", "scales"], ["y"], mode="linear")
    scales = {"scales": np.array([1, 1, 0.7, 0.7], np.float32)}
    with caplog.at_level(logging.WARNING):
        prepared = prepare_quickly(
            model([resized], [("x", (1, 3, 20, 30), FLOAT)], [("y", (1, 3, 14, 21), FLOAT)], scales)
        )
    assert prepared.outputs[0].shape == (1, 3, 14, 21)
    assert not caplog.text
