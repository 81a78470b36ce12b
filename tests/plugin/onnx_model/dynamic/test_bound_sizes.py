"""Models whose outputs' shapes depend on data compute, once prepared, what ONNX Runtime computes on the original."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, parser

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.dynamic.steps import Steps
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.driver.counts import count_name, counted_axis
from tests.plugin.onnx_model.builders import FLOAT, INT64, Array, Value, ints, model, node, run
from tests.plugin.onnx_model.conftest import Prepare
from tests.plugin.onnx_model.dynamic.selection_cases import CASES


def assert_same(prepared: ModelProto, original: ModelProto, feeds: Mapping[str, Array]) -> None:
    reference = ReferenceModel(prepared.SerializeToString(), threads=1)
    right = run(original, feeds)
    assert reference.output_names == list(right)
    for found, (name, expected) in zip(reference(feeds), right.items(), strict=True):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape), name
        np.testing.assert_allclose(found, expected, rtol=1e-6, err_msg=name)


@pytest.mark.parametrize("name", CASES)
def test_it_computes_the_same(name: str, prepare_quickly: Prepare) -> None:
    case = CASES[name]()
    prepared = prepare_quickly(case.model)
    assert all(None not in output.shape for output in prepared.outputs)
    for feeds in case.feeds:
        assert_same(prepared.model, case.model, feeds)


def test_counts_follow_the_outputs(prepare_quickly: Prepare) -> None:
    prepared = prepare_quickly(CASES["non_zero"]().model)
    full, count = prepared.outputs
    assert (full.name, full.shape) == ("y", (3, 24))
    assert (count.name, count.shape, count.dtype.name) == (count_name("y", 1), (), "int64")


@pytest.mark.parametrize("op_type", ["ReduceLogSum", "ReduceLogSumExp", "ReduceL1", "ReduceL2", "ReduceSumSquare"])
def test_every_reduction_leaves_out_what_is_not_valid(prepare_quickly: Prepare, op_type: str) -> None:
    nodes = [
        node("Greater", ["x", "zero"], ["chosen"]),
        node("Compress", ["x", "chosen"], ["selected"], axis=0),
        node(op_type, ["selected"], ["y"], axes=[0], keepdims=0),
    ]
    built = model(nodes, [("x", (6,), FLOAT)], [("y", (), FLOAT)], {"zero": np.array(0, np.float32)}, opset=13)
    prepared, x = prepare_quickly(built).model, np.array([-2, 3, -1, 0.5, 2, -7], np.float32)
    np.testing.assert_allclose(run(prepared, {"x": x})["y"], run(built, {"x": x})["y"], rtol=1e-6)


def test_a_mean_of_nothing_is_that_of_onnx_runtime(prepare_quickly: Prepare) -> None:
    nodes = [
        node("Greater", ["x", "zero"], ["chosen"]),
        node("Compress", ["x", "chosen"], ["selected"], axis=0),
        node("ReduceMean", ["selected"], ["y"], axes=[0], keepdims=0),
    ]
    built = model(nodes, [("x", (6,), FLOAT)], [("y", (), FLOAT)], {"zero": np.array(0, np.float32)}, opset=13)
    prepared = prepare_quickly(built).model
    for x in (-np.ones(6, np.float32), np.arange(-2, 4, dtype=np.float32)):
        np.testing.assert_array_equal(run(prepared, {"x": x})["y"], run(built, {"x": x})["y"])


@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_a_mean_of_many_large_numbers_is_one(prepare_quickly: Prepare, kind: type) -> None:
    """Their sum, and their number, may exceed what f16 holds."""
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    nodes = [
        node("Greater", ["x", "zero"], ["chosen"]),
        node("Compress", ["x", "chosen"], ["selected"], axis=0),
        node("ReduceMean", ["selected"], ["y"], axes=[0], keepdims=0),
    ]
    built = model(nodes, [("x", (1000,), element)], [("y", (), element)], {"zero": np.array(0, kind)}, opset=13)
    x: Array = np.full(1000, 100, kind)
    assert run(prepare_quickly(built).model, {"x": x})["y"] == 100


@pytest.mark.parametrize("operator", ["ArgMax", "ArgMin"])
def test_the_last_of_equal_extremes_is_a_valid_one(prepare_quickly: Prepare, operator: str) -> None:
    nodes = [
        node("Compress", ["x", "chosen"], ["selected"], axis=0),
        node(operator, ["selected"], ["y"], axis=0, keepdims=0, select_last_index=1),
    ]
    inputs: list[Value] = [("x", (6,), FLOAT), ("chosen", (6,), TensorProto.BOOL)]
    built = model(nodes, inputs, [("y", (), INT64)], opset=13)
    prepared = prepare_quickly(built).model
    for extreme in (-np.inf, np.inf, 1.0):
        feeds = {"x": np.full(6, extreme, np.float32), "chosen": np.array([1, 1, 1, 0, 0, 0], bool)}
        assert run(prepared, feeds)["y"] == run(built, feeds)["y"] == 2


def test_the_least_of_a_size_and_an_unknown_number_is_no_size(prepare_quickly: Prepare) -> None:
    nodes = [
        node("NonZero", ["x"], ["places"]),
        node("Shape", ["places"], ["shape"]),
        node("Gather", ["shape", "one"], ["n"]),
        node("Sub", ["n", "one"], ["less"]),
        node("Min", ["n", "less"], ["k"]),
        node("Range", ["zero", "k", "one"], ["y"]),
    ]
    constants = {"one": np.array(1), "zero": np.array(0)}
    built = model(nodes, [("x", (6,), FLOAT)], [("y", None, INT64)], constants)
    with pytest.raises(UnsupportedModelError, match=r"node 'range' \(Range\)"):
        prepare_quickly(built)


def test_the_least_of_several_sizes_and_a_number_is_no_shape_of_one(prepare_quickly: Prepare) -> None:
    nodes = [
        node("NonZero", ["x"], ["places"]),
        node("Transpose", ["places"], ["rows"]),
        node("Shape", ["rows"], ["shape"]),
        node("Min", ["shape", "most"], ["least"]),
        node("Gather", ["least", "zero"], ["k"]),
        node("Range", ["zero", "k", "one"], ["y"]),
    ]
    constants = {"most": np.array(100), "one": np.array(1), "zero": np.array(0)}
    built = model(nodes, [("x", (6,), FLOAT)], [("y", None, INT64)], constants)
    with pytest.raises(UnsupportedModelError, match=r"node 'range' \(Range\)"):
        prepare_quickly(built)


@pytest.mark.parametrize("is_computed", [True, False])
def test_rows_of_what_was_selected(prepare_quickly: Prepare, is_computed: bool) -> None:
    """As of ``x.view(x.size(0), -1)``, whose last size is that of a single entry."""
    nodes = [node("Compress", ["x", "chosen"], ["selected"], axis=0)]
    if is_computed:
        nodes += [
            node("Shape", ["selected"], ["shape"]),
            node("Gather", ["shape", "zero"], ["n"]),
            node("Concat", ["n", "rest"], ["target"], axis=0),
        ]
        constants = {"zero": ints(0), "rest": ints(-1)}
    else:
        constants = {"target": ints(0, -1)}
    nodes += [node("Reshape", ["selected", "target"], ["rows"]), node("Dropout", ["rows"], ["y"])]
    inputs: list[Value] = [("x", (8, 4, 2), FLOAT), ("chosen", (8,), TensorProto.BOOL)]
    built = model(nodes, inputs, [("y", None, FLOAT)], constants)
    feeds = {"x": np.arange(64, dtype=np.float32).reshape(8, 4, 2), "chosen": np.array([0, 1] * 4, bool)}
    found = run(prepare_quickly(built).model, feeds)
    assert found[count_name("y", 0)] == 4
    np.testing.assert_array_equal(found["y"][:4], run(built, feeds)["y"])


def test_statistics_of_a_selected_batch_are_refused(prepare_quickly: Prepare) -> None:
    nodes = [
        node("Compress", ["x", "chosen"], ["selected"], axis=0),
        node("BatchNormalization", ["selected", *"sbmv"], ["y", "rm", "rv"], training_mode=1),
    ]
    inputs: list[Value] = [("x", (8, 3), FLOAT), ("chosen", (8,), TensorProto.BOOL)]
    constants = {name: np.ones(3, np.float32) for name in "sbmv"}
    built = model(nodes, inputs, [("y", None, FLOAT), ("rm", (3,), FLOAT)], constants, opset=15)
    with pytest.raises(UnsupportedModelError, match=r"node 'batchnormalization'.* takes the mean of the dimension"):
        prepare_quickly(built)


def test_without_masks_results_are_wrong(prepare_quickly: Prepare, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault: sums and maxima take in what is not valid."""
    case = CASES["parts"]()
    monkeypatch.setattr(Steps, "masked", lambda self, value, fill: value)
    prepared = prepare_quickly(case.model)
    with pytest.raises(AssertionError, match="total"):
        assert_same(prepared.model, case.model, case.feeds[0])


def _selecting(*tail: object, outputs: list[str | Value], constants: dict[str, Array] | None = None) -> ModelProto:
    nodes = [node("NonZero", ["x"], ["columns"]), node("Squeeze", ["columns", "zero"], ["chosen"]), *tail]
    known = {"zero": ints(0), **(constants or {})}
    return model(nodes, [("x", (6,), FLOAT)], outputs, known)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("operator", "inputs", "said"),
    [
        ("CumSum", ("chosen", "zero"), "the size of its operand 'chosen' depends on data"),
        ("Add", ("chosen", "six"), "'six' has a fixed size where that of another operand depends on data"),
        ("Reshape", ("chosen", "pair"), "not one dimension of the shape depends on data"),
    ],
)
def test_what_mixes_valid_elements_with_others_is_refused(
    prepare_quickly: Prepare, operator: str, inputs: tuple[str, ...], said: str
) -> None:
    tail = node(operator, inputs, ["y"], name="mixing")
    built = _selecting(tail, outputs=[("y", None, INT64)], constants={"six": np.arange(6), "pair": ints(2, 3)})
    with pytest.raises(UnsupportedModelError, match=rf"node 'mixing' \({operator}\) is not supported: {said}; end the"):
        prepare_quickly(built)


def test_operands_of_different_counts_are_refused(prepare_quickly: Prepare) -> None:
    again = [
        node("Not", ["x_is"], ["x_is_not"]),
        node("Cast", ["x"], ["x_is"], to=9),
        node("NonZero", ["x_is_not"], ["others"], name="others"),
        node("Add", ["columns", "others"], ["y"], name="mixing"),
    ]
    built = _selecting(again[1], again[0], *again[2:], outputs=[("y", None, INT64)])
    with pytest.raises(UnsupportedModelError, match=r"node 'mixing' .*the sizes of its operands depend on different"):
        prepare_quickly(built)


def test_what_would_take_too_much_memory_is_refused(prepare_quickly: Prepare) -> None:
    built = model([node("NonZero", ["x"], ["y"])], [("x", (2**12, 2**12), FLOAT)], [("y", None, INT64)])
    with pytest.raises(UnsupportedModelError, match=r"'nonzero' .*selects from 16777216 elements"):
        prepare_quickly(built)


def test_the_names_of_counts_are_kept(prepare_quickly: Prepare) -> None:
    name = count_name("y", 0)
    built = model([node("Relu", ["x"], [name])], [("x", (6,), FLOAT)], [name])
    with pytest.raises(UnsupportedModelError, match="is kept for counts"):
        prepare_quickly(built)


def test_other_models_are_not_changed(prepare_quickly: Prepare) -> None:
    prepared = prepare_quickly(model([node("Relu", ["x"], ["y"])], [("x", (6,), FLOAT)], ["y"]))
    assert "bound_sizes" not in {change.rewrite for change in prepared.changes}
    assert not any(counted_axis(output.name) for output in prepared.outputs)


def test_loops_without_a_bound_that_end_by_what_they_compute_are_refused(prepare_quickly: Prepare) -> None:
    """IREE's importer drops their condition, so that they would run on."""
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[3] x) => (float[3] y)
        <bool begin = {1}, float[3] one = {1, 1, 1}, float limit = {10}> {
            y = Loop (, begin, x) <body = body (int64 i, bool going, float[3] v) => (bool more, float[3] w) {
                w = Add (v, one)
                sum = ReduceSum <keepdims = 0> (w)
                more = Less (sum, limit)
            }>
        }"""
    with pytest.raises(UnsupportedModelError, match="Loop whose body decides when it ends"):
        prepare_quickly(parser.parse_model(text))
