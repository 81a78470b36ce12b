"""Which models tell some sizes from others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

from sartor.codegen.ir.sizes.dims import Symbol
from sartor.config import CompileConfig
from sartor.errors import CompileError
from sartor.open_sizes.checking import checked_sizes
from sartor.open_sizes.compilation import OpenConfig, compile_open
from sartor.open_sizes.size_branches import branch_on_sizes, compared_numbers
from sartor.settings.size_range import SizeRange
from tests.open_models import encoder, feed_forward, saved

_SHAPE = helper.make_node("Shape", ["x"], ["shape"])
_SIZE = helper.make_node("Gather", ["shape", "first"], ["size"])
_LESS = helper.make_node("Sub", ["size", "two"], ["less"])


def told(*nodes: NodeProto) -> str | None:
    """The operator that tells sizes apart, in a model with these nodes behind a shape, a size, and two less."""
    held = {"first": 0, "two": 2, "none": -1, "signs": [-1, -1]}
    graph = helper.make_graph(
        [_SHAPE, _SIZE, _LESS, *nodes],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value, np.int64), name) for name, value in held.items()],
    )
    node = branch_on_sizes(helper.make_model(graph))
    return None if node is None else node.op_type


@pytest.mark.parametrize(
    ("operator", "operands"),
    [
        ("Equal", ["size", "two"]),
        ("Less", ["two", "size"]),
        ("Equal", ["less", "none"]),
        ("Equal", ["size", "less"]),
        ("Max", ["less", "first"]),
        ("Clip", ["size", "two"]),
        ("Mod", ["size", "two"]),
    ],
)
def test_what_some_sizes_alone_give_is_told(operator: str, operands: Sequence[str]) -> None:
    assert told(helper.make_node(operator, operands, ["y"])) == operator


def test_a_size_as_a_condition_and_bodies_are_told() -> None:
    assert told(helper.make_node("Cast", ["less"], ["y"], to=TensorProto.BOOL)) == "Cast"
    body = helper.make_graph([helper.make_node("Identity", ["x"], ["z"])], "body", [], [])
    assert told(helper.make_node("If", ["flag"], ["y"], then_branch=body, else_branch=body)) == "If"


@pytest.mark.parametrize(
    ("operator", "operands"), [("Equal", ["shape", "signs"]), ("Mul", ["less", "size"]), ("Reshape", ["x", "shape"])]
)
def test_what_is_alike_for_all_sizes_is_not(operator: str, operands: Sequence[str]) -> None:
    assert told(helper.make_node(operator, operands, ["y"])) is None


def test_numbers_of_which_sizes_are_told_apart_are_known() -> None:
    held = {"first": 0, "far": [100, -7], "two": 2}
    nodes = [_SHAPE, _SIZE, _LESS, helper.make_node("Less", ["less", "far"], ["y"])]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 3])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.BOOL, None)]
    tensors = [numpy_helper.from_array(np.asarray(value, np.int64), name) for name, value in held.items()]
    assert compared_numbers(helper.make_model(helper.make_graph(nodes, "graph", inputs, outputs, tensors))) == (
        2,
        100,
        7,
    )
    assert compared_numbers(feed_forward()) == ()


def test_files_are_checked_beside_these_numbers() -> None:
    symbols = [Symbol("rows", 1, 512), Symbol("width", 32, 640, 32)]
    before, sizes = ([{*each.values()} for each in checked_sizes(symbols, apart)] for apart in ((), (96, 513, 3000)))
    assert {95, 96, 97, 64, 128} <= set().union(*sizes)
    assert not {95, 97} & set().union(*before)
    assert not {513, 514, 3000} & set().union(*sizes)


def test_numbers_beside_which_no_file_is_run_are_told(caplog: pytest.LogCaptureFixture) -> None:
    sizes = checked_sizes([Symbol("rows", 1, 512)], (50, 100, 150, 200, 250, 600))
    assert {"rows": 201} in sizes
    assert {"rows": 250} not in sizes
    assert "compares sizes with 5 numbers: with 250 of 'rows' and beside them" in caplog.text


def test_a_size_that_is_another_case_than_those_of_the_imports_is_seen(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"], end=1),
        helper.make_node("Equal", ["shape", "apart"], ["is_apart"]),
        helper.make_node("Neg", ["x"], ["negative"]),
        helper.make_node("Where", ["is_apart", "x", "negative"], ["y"]),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", 3]) for name in "xy"]
    held = [numpy_helper.from_array(np.array([100]), "apart")]
    graph = helper.make_graph(nodes, "graph", values[:1], values[1:], held)
    path = saved(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "net.onnx")
    config = CompileConfig(threads=1, jobs=1, database=tmp_path / "tuning.db", time_budget=0.0)
    with pytest.raises(CompileError, match="with rows=100: relative error 2"):
        compile_open(path, tmp_path / "net.vmfb", OpenConfig(config, {"x": (SizeRange(1, 512), 3)}))
    assert not (tmp_path / "net.vmfb").exists()


def test_data_may_be_compared() -> None:
    assert told(helper.make_node("Less", ["x", "x"], ["y"])) is None
    assert branch_on_sizes(feed_forward()) is None
    assert branch_on_sizes(encoder()) is None
