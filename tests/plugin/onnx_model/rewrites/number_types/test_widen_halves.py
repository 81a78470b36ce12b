"""Models of half precision computed in float32, with the inputs, outputs and roundings that they declare."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from sartor.errors import RewriteError
from sartor.onnx_model.graphs.halves import half_types, widened_eps
from sartor.onnx_model.graphs.walk import graphs
from sartor.onnx_model.preparing.prepare import prepare
from sartor.onnx_model.rewrites.number_types import widen_halves
from sartor.reference.vouching.rewrite_check import Checked, checked_rewrites
from sartor.tuning.workers.protocol import WorkerError
from tests.plugin.onnx_model.builders import FLOAT, FLOAT16, INT64, Array, Value, ints, model, node, run, weights

BFLOAT16, BOOL = TensorProto.BFLOAT16, TensorProto.BOOL
H = np.float16
_MOST_ERROR = 2.0**-9
"""Two roundings of float16."""


def _unsimplified(_: ModelProto) -> tuple[str, ...]:
    return ()


def _prepared(built: ModelProto) -> ModelProto:
    return prepare(built, {}, _unsimplified, widens=True).model


def _half(*shape: int, seed: int = 0) -> Array:
    return weights(*shape, seed=seed).astype(H)


def _body(nodes: Sequence[NodeProto], inputs: Sequence[Value], outputs: Sequence[Value]) -> GraphProto:
    given, made = (
        [helper.make_tensor_value_info(name, kind, shape) for name, shape, kind in values]
        for values in (inputs, outputs)
    )
    return helper.make_graph(list(nodes), "body", given, made)


def _network() -> ModelProto:
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["c", "one", "zero", "zero", "one"], ["n"]),
        node("Relu", ["n"], ["r"]),
        node("GlobalAveragePool", ["r"], ["p"]),
        node("Flatten", ["p"], ["f"]),
        node("Gemm", ["f", "v"], ["y"]),
    ]
    constants = {"w": _half(8, 3, 3, 3), "b": _half(8), "one": np.ones(8, H), "zero": np.zeros(8, H), "v": _half(8, 5)}
    return model(nodes, [("x", (1, 3, 9, 7), FLOAT16)], [("y", (1, 5), FLOAT16)], constants)


def _mixed() -> ModelProto:
    """Float32 outside, with a normalisation in float32, as converters write it."""
    nodes = [
        node("Cast", ["x"], ["h"], to=FLOAT16, name="down"),
        node("MatMul", ["h", "w"], ["m"]),
        node("Cast", ["m"], ["wide"], to=FLOAT, name="up"),
        node("LayerNormalization", ["wide", "scale"], ["n"]),
        node("Cast", ["n"], ["narrow"], to=FLOAT16, name="down_again"),
        node("Add", ["narrow", "h"], ["s"]),
        node("Cast", ["s"], ["y"], to=FLOAT, name="out"),
    ]
    constants = {"w": _half(16, 16), "scale": weights(16)}
    return model(nodes, [("x", (4, 16), FLOAT)], [("y", (4, 16), FLOAT)], constants)


def _branches() -> ModelProto:
    taken = _body([node("Mul", ["h", "two"], ["t"])], [], [("t", (2, 4), FLOAT16)])
    other = _body([node("Neg", ["h"], ["e"])], [], [("e", (2, 4), FLOAT16)])
    nodes = [
        node("Relu", ["x"], ["h"]),
        node("If", ["which"], ["y"], then_branch=taken, else_branch=other),
    ]
    inputs: list[Value] = [("x", (2, 4), FLOAT16), ("which", (), BOOL)]
    return model(nodes, inputs, [("y", (2, 4), FLOAT16)], {"two": np.array(2, H)})


def _loop() -> ModelProto:
    state: Value = ("s", (2, 4), FLOAT16)
    step = _body(
        [node("MatMul", ["s", "w"], ["m"]), node("Tanh", ["m"], ["t"]), node("Identity", ["go"], ["goes"])],
        [("i", (), INT64), ("go", (), BOOL), state],
        [("goes", (), BOOL), ("t", (2, 4), FLOAT16)],
    )
    nodes = [node("Loop", ["count", "", "x"], ["y"], body=step)]
    constants = {"w": _half(4, 4), "count": np.array(3)}
    return model(nodes, [("x", (2, 4), FLOAT16)], [("y", (2, 4), FLOAT16)], constants)


def _filled() -> ModelProto:
    """Types in attributes, and operands of types of their own."""
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("ConstantOfShape", ["shape"], ["filled"], value=helper.make_tensor("v", FLOAT16, [1], [0.5])),
        node("EyeLike", ["x"], ["eye"], dtype=FLOAT16),
        node("CastLike", ["ids", "x"], ["numbers"]),
        node("Sum", ["x", "filled", "eye", "numbers"], ["s"]),
        node("Where", ["mask", "s", "low"], ["y"]),
    ]
    inputs: list[Value] = [("x", (4, 4), FLOAT16), ("ids", (4, 1), INT64), ("mask", (4, 4), BOOL)]
    return model(nodes, inputs, [("y", (4, 4), FLOAT16)], {"low": np.array(-np.inf, H)})


def _returned() -> ModelProto:
    """An input, a constant, and a value that others read as outputs."""
    nodes = [node("Relu", ["x"], ["y"]), node("Add", ["y", "c"], ["z"])]
    outputs: list[Value] = [(name, (2, 3), FLOAT16) for name in ("x", "c", "y", "z")]
    return model(nodes, [("x", (2, 3), FLOAT16)], outputs, {"c": _half(2, 3)})


MODELS: dict[str, Callable[[], ModelProto]] = {
    "network": _network,
    "mixed": _mixed,
    "branches": _branches,
    "loop": _loop,
    "filled": _filled,
    "returned": _returned,
}


def _feeds(built: ModelProto) -> dict[str, Array]:
    random, feeds = np.random.default_rng(1), dict[str, Array]()
    for value in built.graph.input:
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        kind = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        drawn = random.standard_normal(shape) if kind.kind == "f" else random.integers(0, 2, shape)
        feeds[value.name] = np.asarray(drawn, kind)
    return feeds


@pytest.mark.parametrize("name", MODELS)
def test_they_compute_the_same(name: str) -> None:
    built = MODELS[name]()
    feeds, prepared = _feeds(built), _prepared(built)
    expected, actual = run(built, feeds), run(prepared, feeds)
    for output, right in expected.items():
        assert actual[output].dtype == right.dtype
        infinite = np.isinf(right)
        np.testing.assert_array_equal(actual[output][infinite], right[infinite])
        largest = float(np.abs(right[~infinite]).max(initial=0.0))
        np.testing.assert_allclose(actual[output][~infinite], right[~infinite], 0, _MOST_ERROR * largest)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "filled"])
def test_only_casts_read_and_give_half_precision(name: str) -> None:
    prepared = _prepared(MODELS[name]())
    kinds = {
        (value.type.tensor_type.elem_type, maker.op_type)
        for graph in graphs(prepared)
        for maker in graph.node
        for value in (*graph.value_info, *graph.output)
        if value.name in maker.output
    }
    assert {maker for kind, maker in kinds if kind == FLOAT16} <= {"Cast"}
    assert half_types(prepared) == {FLOAT16}
    assert widened_eps(prepared) == np.finfo(H).eps


def _single(operator: str, values: Any, kind: int = INT64, **attributes: Any) -> Array:
    """What an operator makes of values that are computed, the sum of an input and 0."""
    array = np.asarray(values, H)
    nodes = [node("Mul", ["x", "third"], ["s"]), node(operator, ["s"], ["y"], **attributes)]
    built = model(nodes, [("x", array.shape, FLOAT16)], [("y", None, kind)], {"third": np.array(1 / 3, H)})
    prepared = _prepared(built)
    assert "Cast" in {each.op_type for each in prepared.graph.node}
    return np.asarray(run(prepared, {"x": array})["y"])


def test_what_decides_reads_rounded_numbers() -> None:
    """A third is 0.33325 in float16, so that 3 thirds are just below 1, and rounded they are 1."""
    assert _single("Cast", [3.0, 6.0, 9.0], to=INT64).tolist() == [1, 2, 3]
    assert _single("Floor", [3.0, -3.0], FLOAT16).tolist() == [1, -1]
    # These differ before they are rounded, by less than a unit.
    tied = np.array([[2049.0 * 3, 2048.0 * 3, 1.0]])
    assert _single("ArgMax", tied.astype(H), axis=1).tolist() == [[0]]


def test_casts_of_the_model_round() -> None:
    nodes = [
        node("Cast", ["x"], ["h"], to=FLOAT16, name="down"),
        node("Cast", ["h"], ["w"], to=FLOAT, name="up"),
        node("Sub", ["w", "x"], ["y"]),
    ]
    x = np.array([1.0001, 70000.0, 1e-9], np.float32)
    prepared = _prepared(model(nodes, [("x", (3,), FLOAT)], [("y", (3,), FLOAT)]))
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(run(prepared, {"x": x})["y"], x.astype(H).astype(np.float32) - x)


def test_bits_are_those_of_half_precision() -> None:
    nodes = [node("Add", ["x", "x"], ["s"]), node("BitCast", ["s"], ["y"], to=TensorProto.INT16)]
    prepared = _prepared(model(nodes, [("x", (2,), FLOAT16)], [("y", (2,), TensorProto.INT16)], opset=26))
    (read,) = [each for each in prepared.graph.node if each.op_type == "BitCast"]
    types = {value.name: value.type.tensor_type.elem_type for value in prepared.graph.value_info}
    assert types[read.input[0]] == FLOAT16


def test_caches_that_are_passed_on_keep_their_type() -> None:
    nodes = [
        node("MatMul", ["x", "w"], ["new"]),
        node("Concat", ["past", "new"], ["present"], axis=0),
        node("ReduceSum", ["present"], ["y"], keepdims=0),
    ]
    inputs: list[Value] = [("x", (1, 4), FLOAT16), ("past", (5, 4), FLOAT16)]
    built = model(nodes, inputs, [("present", (6, 4), FLOAT16), ("y", (), FLOAT16)], {"w": _half(4, 4)})
    prepared = _prepared(built)
    (joined,) = [each for each in prepared.graph.node if each.op_type == "Concat"]
    assert (joined.input[0], joined.output[0]) == ("past", "present")
    feeds = _feeds(built)
    expected, actual = run(built, feeds), run(prepared, feeds)
    np.testing.assert_allclose(actual["present"], expected["present"], 0, _MOST_ERROR)
    np.testing.assert_allclose(actual["y"], expected["y"], 4 * _MOST_ERROR)


def test_tables_of_rows_stay_small() -> None:
    nodes = [node("Gather", ["table", "ids"], ["rows"]), node("Relu", ["rows"], ["y"])]
    built = model(nodes, [("ids", (3,), INT64)], [("y", (3, 8), FLOAT16)], {"table": _half(100, 8)})
    prepared = _prepared(built)
    (table,) = [tensor for tensor in prepared.graph.initializer if tensor.name == "table"]
    assert table.data_type == FLOAT16
    feeds = {"ids": ints(0, 99, 7)}
    np.testing.assert_array_equal(run(prepared, feeds)["y"], run(built, feeds)["y"])


def test_bfloat16_is_widened_too() -> None:
    w = weights(8, 8).astype(ml_dtypes.bfloat16)
    nodes = [
        node("Cast", ["x"], ["h"], to=BFLOAT16, name="down"),
        node("MatMul", ["h", "w"], ["m"]),
        node("Cast", ["m"], ["y"], to=FLOAT, name="up"),
    ]
    prepared = _prepared(model(nodes, [("x", (4, 8), FLOAT)], [("y", (4, 8), FLOAT)], {"w": w}))
    x = weights(4, 8, seed=2)
    right = x.astype(ml_dtypes.bfloat16).astype(np.float32) @ w.astype(np.float32)
    np.testing.assert_allclose(run(prepared, {"x": x})["y"], right, 1e-5, 1e-6)
    assert widened_eps(prepared) == 2.0**-7


@pytest.mark.parametrize("rank", [4, 2])
def test_a_fault_behind_it_is_seen(rank: int, tmp_path: Path) -> None:
    """The rewritten model is compared with the file within what rounding in the file's own type explains."""
    built = _network()
    path = tmp_path / "model.onnx"
    path.write_bytes(built.SerializeToString())
    prepared, feeds = _prepared(built), _feeds(built)
    right = checked_rewrites(path, prepared.SerializeToString(), [feeds], (), 0.0)
    assert isinstance(right, Checked)
    assert right.is_compared
    (tensor,) = [initializer for initializer in prepared.graph.initializer if len(initializer.dims) == rank]
    tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float32(1.03), tensor.name))
    wrong = checked_rewrites(path, prepared.SerializeToString(), [feeds], (), 0.0)
    assert isinstance(wrong, WorkerError)
    assert isinstance(wrong.error, RewriteError)


def test_other_models_are_left_alone() -> None:
    built = model([node("Relu", ["x"], ["y"])], [("x", (2,), FLOAT)], [("y", (2,), FLOAT)])
    prepared = prepare(built, {}, _unsimplified, widens=True)
    assert "widen_halves" not in {change.rewrite for change in prepared.changes}
    assert not widened_eps(prepared.model)


@pytest.mark.parametrize("wider", [FLOAT, TensorProto.DOUBLE])
@pytest.mark.parametrize("shaped", [False, True])
def test_numbers_that_are_equal_in_half_precision_stay_equal_behind_a_cast(wider: int, shaped: bool) -> None:
    """Two products differ in float32 and not in float16: the first of equal numbers is the largest."""
    nodes = [node("Mul", ["x", "third"], ["m"]), node("Cast", ["m"], ["wide"], to=wider)]
    nodes += [node("Reshape", ["wide", "flat"], ["shaped"])] if shaped else []
    nodes += [node("ArgMax", ["shaped" if shaped else "wide"], ["y"], axis=0, keepdims=0)]
    constants = {"third": np.array(1 / 3, H), "flat": ints(-1)}
    built = model(nodes, [("x", (2,), FLOAT16)], [("y", (), INT64)], constants)
    assert run(_prepared(built), {"x": np.array([6144, 6148], H)})["y"] == 0


def test_a_model_that_no_message_could_hold_in_float32_stays_in_half_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    def has_halves() -> bool:
        return any(tensor.data_type == FLOAT16 for tensor in _prepared(_network()).graph.initializer)

    assert not has_halves()
    monkeypatch.setattr(widen_halves, "MAX_MODEL_BYTES", 1000)
    assert has_halves()
