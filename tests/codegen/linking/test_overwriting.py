"""Layers write over an activation only if nobody else can read it any more."""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass, replace

import pytest

from sartor.codegen.ir.layer import Layer, LayerKind, NetworkValue, Task, TensorType, ValueRef
from sartor.codegen.ir.schema import Schema
from sartor.codegen.ir.variants.routine import Implementation
from sartor.codegen.linking.overwriting import overwriting_layers, overwriting_symbol, plain_name

IMAGE = TensorType((1, 16, 4, 4), "f32")
NARROW, WIDE = Schema("cpu", "bf16", "nhwc"), Schema("cpu", "f32", "nhwc")
Graph = dict[str, tuple[str, ...]]

# Two convolutions, the second of which adds what the first one read.
RESIDUAL: Graph = {"first": ("in",), "inner": ("first",), "last": ("inner", "first"), "end": ("last",)}


@dataclass(frozen=True)
class _Kernel:
    identity: str = "kernel"

    def executables(self) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True)
class _Over:
    operand: int

    def implementation(self) -> Implementation:
        return _code(1)


def _code(inputs: int, operand: int | None = None) -> Implementation:
    over = None if operand is None else _Over(operand)
    return Implementation("", (NARROW,) * inputs, (NARROW,), (), kernel=_Kernel(), overwriting=over)


def _ref(name: str) -> ValueRef:
    return ValueRef(None if name == "in" else name, 0)


def _layer(name: str, inputs: tuple[str, ...]) -> Layer:
    task = Task(name, LayerKind.CONVOLUTION, "", (IMAGE,) * len(inputs), (), (IMAGE,))
    return Layer(name, (), task, tuple(map(_ref, inputs)), ())


def _codes(graph: Graph, operands: dict[str, int]) -> dict[str, Implementation]:
    return {name: _code(len(inputs), operands.get(name)) for name, inputs in graph.items()}


def _found(
    graph: Graph, operands: dict[str, int], outputs: tuple[str, ...] = ("end",), **codes: Implementation
) -> set[str]:
    given = [NetworkValue(output, IMAGE, "float32", _ref(output)) for output in outputs]
    layers = [_layer(name, inputs) for name, inputs in graph.items()]
    return set(overwriting_layers(layers, {**_codes(graph, operands), **codes}, given))


def test_a_residual_that_only_ancestors_read_is_overwritten() -> None:
    assert _found(RESIDUAL, {"last": 1}) == {"last"}


def test_only_code_that_can_is_asked_to() -> None:
    assert _found(RESIDUAL, {}) == set()


def test_blocks_in_a_row_overwrite_the_same_memory() -> None:
    graph = {**RESIDUAL, "inner2": ("last",), "last2": ("inner2", "last"), "end": ("last2",)}
    order = ("first", "inner", "last", "inner2", "last2", "end")
    assert _found({name: graph[name] for name in order}, {"last": 1, "last2": 1}) == {"last", "last2"}


def test_network_inputs_belong_to_the_caller() -> None:
    assert _found({"inner": ("in",), "end": ("inner", "in")}, {"end": 1}) == set()


def test_network_outputs_are_kept() -> None:
    assert _found(RESIDUAL, {"last": 1}, ("end", "first")) == set()


def test_a_later_reader_keeps_a_value() -> None:
    assert _found({**RESIDUAL, "end": ("last", "first")}, {"last": 1}) == set()


def test_a_reader_that_may_run_at_the_same_time_keeps_a_value() -> None:
    """It comes first in the order, but nothing makes the other wait for it."""
    graph: Graph = {"first": ("in",), "beside": ("first",), **{name: RESIDUAL[name] for name in ("inner", "last")}}
    assert _found({**graph, "end": ("last", "beside")}, {"last": 1}) == set()


def test_of_two_readers_side_by_side_neither_overwrites() -> None:
    graph: Graph = {"first": ("in",), "left": ("in",), "one": ("left", "first"), "other": ("left", "first")}
    assert _found({**graph, "end": ("one", "other")}, {"one": 1, "other": 1}) == set()


def test_a_value_that_is_read_twice_by_one_layer_is_kept() -> None:
    assert _found({"first": ("in",), "end": ("first", "first")}, {"end": 1}) == set()


def test_an_ancestor_may_read_a_value_twice() -> None:
    assert _found({**RESIDUAL, "inner": ("first", "first")}, {"last": 1}) == {"last"}


def test_memory_does_not_grow_by_the_square_of_the_layers() -> None:
    graph: Graph = {str(index): (str(index - 1) if index else "in",) for index in range(2000)}
    tracemalloc.start()
    try:
        found = _found(graph, {str(index): 0 for index in range(1, 2000)}, ("1999",))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(found) == 1999
    assert peak < 16 << 20


def test_what_an_adapt_makes_may_be_shared_and_is_kept() -> None:
    first = replace(_code(1), outputs=(WIDE,))
    assert _found(RESIDUAL, {"last": 1}, first=first) == set()


def test_an_adapt_for_an_ancestor_does_not_matter() -> None:
    inner = replace(_code(1), inputs=(WIDE,))
    assert _found(RESIDUAL, {"last": 1}, inner=inner) == {"last"}


def test_a_value_of_which_there_may_be_a_view_is_kept() -> None:
    """The layer that would overwrite it reads what an ancestor that is no kernel returns, too."""
    graph: Graph = {"first": ("in",), "view": ("first",), "last": ("view", "first"), "end": ("last",)}
    assert _found(graph, {"last": 1}) == {"last"}
    assert _found(graph, {"last": 1}, view=replace(_code(1), kernel=None)) == set()


def test_what_may_be_an_argument_reshaped_is_kept() -> None:
    """Code that is no kernel may return what it was given, which others read."""
    assert _found(RESIDUAL, {"last": 1}, first=replace(_code(1), kernel=None)) == set()


@pytest.mark.parametrize("dispatch", ["s12ab_kernel", "s12ab_dispatch_0_conv_over_8"])
def test_dispatches_of_overwriting_code_are_found_under_the_plain_name(dispatch: str) -> None:
    symbol, separator, rest = dispatch.partition("_")
    assert plain_name(overwriting_symbol(symbol) + separator + rest) == dispatch
    assert plain_name(dispatch) == dispatch
