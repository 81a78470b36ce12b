"""Stock code: what is right wins where the compiler is wrong, and products of integers are exact."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import sartor
import sartor.backend
from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected
from sartor.codegen.routines.iree.stock import Stock
from sartor.config import CompileConfig
from sartor.pipeline import compile_model
from sartor.runtime.driver.signature import Array
from sartor.tuning.records.measurement import Status
from sartor.tuning.selection.problem.pin import Pin
from sartor.tuning.store.store import Store

_BUILD = Stock.build


def miscompiled(stock: Stock, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
    """Rectifiers keep what they should drop."""
    found = _BUILD(stock, task, parameters, target)
    assert isinstance(found, Implementation)
    return replace(found, body=found.body.replace("arith.maximumf", "arith.minimumf"))


def test_a_miscompiled_candidate_0_is_told_and_not_chosen(
    model_file: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Stock, "build", miscompiled)
    # Without the unsplit model, so that the plan has to come from what was measured.
    config = CompileConfig(threads=1, jobs=2, database=tmp_path / "tuning.db", pins=(Pin("*", "*"),))
    with caplog.at_level(logging.WARNING):
        shipped = compile_model(model_file("lenet"), tmp_path / "net.vmfb", config)
    assert shipped.error is not None
    assert shipped.error < 1e-4
    with Store.open(config.database) as store:
        found = {
            measurement.key.task: measurement
            for measurement in store.measurements()
            if measurement.status is Status.WRONG_RESULT
        }
    assert found
    assert all(each.key.variant.endswith(".stock") for each in found.values())
    told = [record.getMessage() for record in caplog.records if "stock IREE fails on layer" in record.getMessage()]
    assert len(told) == len(found)
    assert all("ONNX Runtime on the nodes of layer" in each for each in told)


# Several runs, as what was wrong on Vulkan was a race.
_RUNS = 6
_WIDENED = (("a", "wide"), ("b", "right"))


def _product(operands: list[Array], names: list[str], rank: int) -> ModelProto:
    given = [each for each in zip(names, operands, strict=True) if each[0]]
    values = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(each.dtype), each.shape)
        for name, each in given
    ]
    result = helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(np.dtype(np.int32)), [None] * rank)
    node = helper.make_node("MatMulInteger", names, ["y"], name="product")
    graph = helper.make_graph([node], "graph", values, [result])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _drawn(*shape: int, kind: str = "uint8") -> Array:
    limits = np.iinfo(kind)
    return np.random.default_rng(len(shape)).integers(limits.min, limits.max, shape, kind, endpoint=True)


def _check(left: Array, right: Array, points: list[Array], device: str) -> None:
    names = ["a", "b", "az", "bz"][: 2 + len(points)]
    model = _product([left, right, *points], names, left.ndim)
    zeros = [*(point.astype(np.int64) for point in points), *(np.zeros(1, np.int64) for _ in range(2 - len(points)))]
    row = zeros[0][:, None] if zeros[0].size > 1 else zeros[0]
    expected = (left.astype(np.int64) - row) @ (right.astype(np.int64) - zeros[1])
    ready = sartor.backend.prepare(model, device)
    for _ in range(_RUNS):
        np.testing.assert_array_equal(ready.run([left, right, *points])[0], expected)


@pytest.mark.parametrize("kinds", [("uint8", "uint8"), ("int8", "uint8"), ("uint8", "int8"), ("int8", "int8")])
def test_operands_without_zero_points_keep_their_signs(kinds: tuple[str, str]) -> None:
    _check(_drawn(5, 7, kind=kinds[0]), _drawn(7, 3, kind=kinds[1]), [], "CPU")


def test_one_zero_point_for_each_row_of_the_left_operand() -> None:
    _check(_drawn(5, 7), _drawn(7, 3), [_drawn(5)], "CPU")


def test_a_vector_has_one_zero_point() -> None:
    """It has no rows, so its zero point is no column."""
    for zero in (_drawn(1), np.array(7, np.uint8)):
        _check(_drawn(5), _drawn(5, 4), [zero], "CPU")


@pytest.mark.vulkan
@pytest.mark.skipif(not sartor.backend.supports_device("VULKAN"), reason="no Vulkan driver")
def test_on_vulkan_widened_operands_are_whole_before_they_are_read() -> None:
    zeros = [np.array([12], np.uint8), np.array([0], np.uint8)]
    _check(_drawn(4, 3), _drawn(3, 2), zeros, "VULKAN")
    _check(_drawn(33, 70), _drawn(70, 50), [], "VULKAN")


def _moved(way: str) -> ModelProto:
    """A product whose left operand is widened, then moved: a slice of it, or a part of a concatenation or padding."""
    cut = ("Slice", [way, "from", "to", "zero"])
    longer = {
        "wide": [],
        "concatenation": [helper.make_node("Concat", ["right", "wide"], [way], axis=0)],
        "padding": [helper.make_node("Pad", ["wide", "around"], [way])],
    }[way]
    start = {"wide": 1, "concatenation": 4, "padding": 2}[way]
    nodes = [helper.make_node("Cast", [name], [wide], to=TensorProto.INT32) for name, wide in _WIDENED]
    nodes += longer
    nodes += [helper.make_node(*cut, ["part"]), helper.make_node("MatMul", ["part", "right"], ["y"])]
    numbers = {"zero": [0], "from": [start], "to": [start + 4], "around": [1, 0, 1, 0]}
    constants = [helper.make_tensor(name, TensorProto.INT64, [len(number)], number) for name, number in numbers.items()]
    given = [helper.make_tensor_value_info(name, TensorProto.UINT8, [size, 3]) for name, size in (("a", 6), ("b", 3))]
    result = helper.make_tensor_value_info("y", TensorProto.INT32, [4, 3])
    graph = helper.make_graph(nodes, "graph", given, [result], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.vulkan
@pytest.mark.skipif(not sartor.backend.supports_device("VULKAN"), reason="no Vulkan driver")
@pytest.mark.parametrize("way", ["wide", "concatenation", "padding"])
def test_on_vulkan_operands_that_move_after_they_are_widened_are_whole(way: str) -> None:
    left, right = _drawn(6, 3), _drawn(3, 3)
    ready = sartor.backend.prepare(_moved(way), "VULKAN")
    expected = left[1:5].astype(np.int32) @ right.astype(np.int32)
    for _ in range(_RUNS):
        np.testing.assert_array_equal(ready.run([left, right])[0], expected)
