"""Binding of values: the input becomes a constant, the branch on it is chosen, and what does not fit is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from sartor.errors import UnsupportedModelError, UsageError
from sartor.frontend.import_job import run_import
from sartor.onnx_model.graphs.walk import nodes
from sartor.onnx_model.preparing.prepare import prepare
from sartor.runtime.driver.bound_input import Number, bound_feeds
from sartor.tuning.workers.protocol import WorkerError
from tests.plugin.onnx_model.builders import FLOAT, INT64, Value, ints, model, node, relative_error, run, weights
from tests.plugin.onnx_model.conftest import Prepare
from tests.plugin.rate_models import rate_model

X = weights(1, 8)


def _reading(*inputs: Value) -> ModelProto:
    """A model with a further input of each kind, which nothing reads."""
    return model([node("Relu", ["x"], ["y"])], [("x", (1, "n"), FLOAT), *inputs], ["y"])


@pytest.mark.parametrize("rate", [16000, 8000])
def test_the_taken_branch_is_inlined_and_computes_the_same(rate: int, prepare_quickly: Prepare) -> None:
    prepared = prepare(rate_model(), bindings={"sr": (rate,)})
    assert [each.name for each in prepared.inputs] == ["x"]
    assert "If" not in {each.op_type for each in nodes(prepared.model)}
    assert prepared.outputs[0].shape == ((2, 3) if rate == 16000 else (4, 5))
    feeds = {"x": X}
    (right,) = run(rate_model(), {**feeds, **bound_feeds(prepared.bound)}).values()
    assert relative_error(run(prepared.model, feeds)["y"], right) < 1e-6


def test_a_bound_shape_makes_the_model_static(prepare_quickly: Prepare) -> None:
    built = model([node("Reshape", ["x", "target"], ["y"])], [("x", (2, 6), FLOAT), ("target", (2,), INT64)], ["y"])
    assert prepare(built, bindings={"target": (3, -1)}).outputs[0].shape == (3, 4)


def test_bound_sizes_make_slices_static(prepare_quickly: Prepare) -> None:
    ends: Value = ("ends", ("k",), INT64)
    built = model([node("Slice", ["x", "from", "ends"], ["y"])], [("x", (9,), FLOAT), ends], ["y"], {"from": [2]})
    prepared = prepare(built, bindings={"ends": (5,)})
    assert prepared.outputs[0].shape == (3,)


@pytest.mark.parametrize(
    ("kind", "shape", "values", "expected"),
    [
        (TensorProto.BOOL, (), (True,), np.array(True)),
        (TensorProto.BOOL, (2,), (1, 0), np.array([True, False])),
        (TensorProto.FLOAT16, (1, 1), (0.5,), np.full((1, 1), 0.5, np.float16)),
        (TensorProto.DOUBLE, None, (1, 2.5), np.array([1.0, 2.5])),
        (TensorProto.UINT64, (), (2**64 - 1,), np.array(2**64 - 1, np.uint64)),
        (TensorProto.INT8, ("k", 2), (1, 2, 3, 4), np.array([[1, 2], [3, 4]], np.int8)),
    ],
)
def test_values_get_the_type_and_shape_of_the_input(
    kind: int, shape: tuple[int | str, ...] | None, values: tuple[Number, ...], expected: np.ndarray
) -> None:
    prepared = prepare(_reading(("s", shape, kind)), {"x": (1, 4)}, lambda _: (), {"s": values})
    (bound,) = prepared.bound
    assert bound.array.dtype == expected.dtype
    np.testing.assert_array_equal(bound.array, expected)


def test_a_symbol_of_a_bound_input_is_bound_everywhere(prepare_quickly: Prepare) -> None:
    prepared = prepare(_reading(("s", ("n",), INT64)), bindings={"s": (1, 2, 3)})
    assert prepared.inputs[0].shape == (1, 3)


def test_other_values_of_an_input_that_nothing_reads_make_another_model(prepare_quickly: Prepare) -> None:
    built = _reading(("s", (), INT64))
    first, second = (prepare(built, {"x": (1, 4)}, bindings={"s": (value,)}).model for value in (1, 2))
    assert first.SerializeToString() != second.SerializeToString()


@pytest.mark.parametrize(
    ("name", "kind", "shape", "values", "said"),
    [
        ("t", INT64, (), (1,), "'t', which the model does not have; its inputs are 'x', 's'"),
        ("s", INT64, (), (1.0,), "integers within"),
        ("s", INT64, (), (True,), "s=true does not fit"),
        ("s", TensorProto.INT8, (), (300,), "s=300 does not fit the input's element type int8"),
        ("s", TensorProto.BOOL, (), (2,), "give true or false"),
        ("s", TensorProto.FLOAT16, (), (1e5,), "float16"),
        ("s", FLOAT, (), (10**400,), "float32"),
        ("s", TensorProto.STRING, (), (1,), "neither booleans nor numbers"),
        ("s", INT64, (-1, -2), (1, 2), r"\[\?, \?\]"),
        ("s", INT64, (), (1, 2), r"2 values for input 's' of shape \[\]"),
        ("s", INT64, (3,), (1,), r"1 value for input 's' of shape \[3\]"),
        ("s", INT64, ("a", "b"), (1,), r"\[a, b\]"),
    ],
)
def test_what_does_not_fit_is_refused(
    name: str, kind: int, shape: tuple[int | str, ...], values: tuple[Number, ...], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        prepare(_reading(("s", shape, kind)), {"x": (1, 4)}, bindings={name: values})


def test_a_symbol_has_one_size() -> None:
    with pytest.raises(UsageError, match="'k' the sizes 1 and 2"):
        prepare(_reading(("s", ("k",), INT64), ("t", ("k",), INT64)), bindings={"s": (1,), "t": (1, 2)})


def test_a_choice_by_an_unbound_input_is_refused_with_advice(prepare_quickly: Prepare) -> None:
    with pytest.raises(UnsupportedModelError, match=r"'choice'.* by input 'sr': fix that with --bind sr=1, or with"):
        prepare(rate_model())


def test_no_advice_where_data_decide(prepare_quickly: Prepare) -> None:
    built = rate_model()
    sr = next(value for value in built.graph.input if value.name == "sr")
    sr.CopyFrom(helper.make_tensor_value_info("sr", INT64, (1000,)))
    first = node("ReduceMax", ["sr"], ["largest"], keepdims=0)
    built.graph.node.insert(0, first)
    built.graph.node[1].input[0] = "largest"
    with pytest.raises(UnsupportedModelError) as refused:
        prepare(built)
    assert "--bind" not in str(refused.value)


def test_a_choice_that_the_importer_refuses_has_the_advice_too(tmp_path: Path) -> None:
    built = rate_model(slow=(2, 3))
    built.graph.node.extend(
        [
            node("Reshape", ["y", "image"], ["pixels"], name="pixels"),
            node("MaxRoiPool", ["pixels", "regions"], ["pooled"], pooled_shape=[1, 1]),
        ]
    )
    built.graph.initializer.extend(
        [numpy_helper.from_array(ints(1, 1, 2, 3), "image"), numpy_helper.from_array(weights(1, 5), "regions")]
    )
    built.graph.output[0].CopyFrom(helper.make_tensor_value_info("pooled", FLOAT, (1, 1, 1, 1)))
    onnx.save(built, tmp_path / "net.onnx")
    refused = run_import(tmp_path / "net.onnx", {}, None)
    assert isinstance(refused, WorkerError)
    assert isinstance(refused.error, UnsupportedModelError)
    assert str(refused.error).endswith("fix that with --bind sr=1, or with other values")
    assert "\n" not in str(refused.error)
