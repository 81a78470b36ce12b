"""Types carried by others: the prepared model has the same bits as the original."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, parser

from tests.plugin.onnx_model.builders import INT64, Array, model, node, run
from tests.plugin.onnx_model.conftest import Prepare


@pytest.mark.parametrize("source", [TensorProto.INT32, INT64, TensorProto.UINT32])
@pytest.mark.parametrize(
    ("target", "lowest"),
    [(TensorProto.UINT4, (1, 15, 0)), (TensorProto.INT4, (1, -1, 0)), (TensorProto.UINT2, (1, 3, 0))],
)
def test_large_integers_keep_their_lowest_bits(
    source: int, target: int, lowest: tuple[int, ...], prepare_quickly: Prepare
) -> None:
    nodes = [node("Cast", ["x"], ["n"], to=target), node("Cast", ["n"], ["y"], name="back", to=TensorProto.INT32)]
    built = model(nodes, [("x", (3,), source)], [("y", (3,), TensorProto.INT32)], opset=25)
    stored = helper.tensor_dtype_to_np_dtype(TensorProto.INT32 if source == TensorProto.UINT32 else source)
    x = np.array([2**24 + 1, 2**30 + 15, 2**28], stored)
    assert tuple(run(prepare_quickly(built).model, {"x": x})["y"]) == lowest


@pytest.mark.parametrize("target", [TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2])
def test_the_largest_uint64_are_not_negative_as_small_floats(target: int, prepare_quickly: Prepare) -> None:
    nodes = [node("Cast", ["x"], ["f"], to=target), node("Cast", ["f"], ["y"], name="back", to=TensorProto.FLOAT)]
    built = model(nodes, [("x", (4,), TensorProto.UINT64)], [("y", (4,), TensorProto.FLOAT)], opset=21)
    x = np.array([2**63 + 5, 2**64 - 1, 2**40, 3], np.uint64)
    found = run(prepare_quickly(built).model, {"x": x.view(np.int64)})["y"]
    np.testing.assert_array_equal(found, run(built, {"x": x})["y"])


def test_input_that_is_also_an_output(prepare_quickly: Prepare) -> None:
    kind = TensorProto.UINT16
    built = model([node("Add", ["x", "x"], ["y"])], [("x", (2,), kind)], [("x", (2,), kind), ("y", (2,), kind)])
    found = run(prepare_quickly(built).model, {"x": np.array([3, -1], np.int16)})
    assert found["x"].view(np.uint16).tolist() == [3, 2**16 - 1]
    assert found["y"].view(np.uint16).tolist() == [6, 2**16 - 2]


def test_upper_bits_of_a_float4_are_ignored(prepare_quickly: Prepare) -> None:
    nodes = [node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)]
    built = model(nodes, [("x", (16,), TensorProto.FLOAT4E2M1)], [("y", (16,), TensorProto.FLOAT)], opset=23)
    codes = np.arange(16, dtype=np.uint8)
    found = run(prepare_quickly(built).model, {"x": codes | 0xA0})["y"]
    np.testing.assert_array_equal(found, codes.view(ml_dtypes.float4_e2m1fn).astype(np.float32))


_BRANCHES = """<ir_version: 8, opset_import: ["": 17]>
branches (uint32[3] a, uint32[3] b, bool[1] c) => (float[3] y, uint32[3] z) {
    y, z = If (c) <
        then_branch = first () => (float[3] p, uint32[3] a2) { s = Add(a, b) p = Cast<to = 1>(s) a2 = Identity(a) },
        else_branch = second () => (float[3] q, uint32[3] d) { d = Sub(a, b) q = Cast<to = 1>(d) }
    >
}"""


@pytest.mark.parametrize("condition", [True, False])
def test_branches_compute_with_what_the_graph_around_them_carries(condition: bool, prepare_quickly: Prepare) -> None:
    built = parser.parse_model(_BRANCHES)
    feeds: dict[str, Array] = {"a": np.array([2**32 - 1, 5, 1], np.uint32), "b": np.array([2, 7, 2**31], np.uint32)}
    given = {name: feed.view(np.int32) for name, feed in feeds.items()}
    expected, found = (
        run(each, {**values, "c": np.array([condition])})
        for each, values in ((built, feeds), (prepare_quickly(built).model, given))
    )
    np.testing.assert_array_equal(found["y"], expected["y"])
    np.testing.assert_array_equal(found["z"].view(np.uint32), expected["z"])


_STEPS = """<ir_version: 10, opset_import: ["": 21]>
steps (int64 n, int64[3] x) => (int64[3] y) {
    y = Loop (n, , x) <body = step (int64 i, bool c, int64[3] p) => (bool d, int64[3] r) {
        d = Identity(c)
        count = Constant<value = uint32[1] {4000000000}>()
        u = Cast<to = 12>(p)
        v = Add(u, count)
        h = Cast<to = 21>(v)
        low = Cast<to = 7>(h)
        whole = Cast<to = 7>(v)
        r = Add(whole, low)
    }>
}"""


def test_types_that_only_a_body_has_are_carried(prepare_quickly: Prepare, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop stays one, as its number of steps is an input; the last check refuses that later."""
    monkeypatch.setattr("sartor.onnx_model.preparing.prepare.check_prepared", lambda model: None)
    x = np.array([2**32 - 1, 5, 2**31], np.int64)
    expected = x
    for _ in range(3):
        total = (expected + 4_000_000_000) % 2**32
        expected = total + total % 16
    prepared = prepare_quickly(parser.parse_model(_STEPS)).model
    kinds = {initializer.data_type for initializer in prepared.graph.initializer}
    assert not kinds & {TensorProto.UINT32, TensorProto.UINT4}
    np.testing.assert_array_equal(run(prepared, {"n": np.array(3), "x": x})["y"], expected)
