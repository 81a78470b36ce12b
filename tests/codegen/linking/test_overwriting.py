"""Layers write over an activation only if nobody reads it any more: the same numbers, less memory, no copies."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto

from sartor.codegen.ir.layer import ENTRY, Layer, LayerKind, NetworkValue, Task, TensorType, ValueRef
from sartor.codegen.ir.schema import Schema
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Variant, describe
from sartor.codegen.kernels.isa.amx import BFLOAT, INTEGER, TileElement
from sartor.codegen.linking.overwriting import overwriting_layers, overwriting_symbol, plain_name
from sartor.codegen.linking.stitching import stitch
from sartor.codegen.mlir.iree_compiler import inlined, translate
from sartor.codegen.routines.amx.tile_convolution import TileConvolution
from sartor.frontend.imported_model import ImportedModel
from sartor.runtime.driver.amx import MATRIX_FEATURES, unusable
from sartor.runtime.driver.signature import Array
from sartor.runtime.session import Session
from sartor.tuning.calibration.quantised_range import QuantisedRange
from sartor.tuning.networks.build_job import NetFiles, SplitNetwork, build_net, stitchings
from tests.codegen.linking.test_stitching import manifest_of
from tests.importing import imported_model
from tests.tiny_models import Builder

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


Sizes = dict[str, int]

TARGET = Target.create("cpu", "sapphirerapids")
# 64 channels are two panels. 60 pixels are three blocks of ten pixels a tile; of eight the last block overlaps, and in
# rows of ten the second tile.
SIZES = {"lines": 1, "tiles": 2, "pixels": 10, "vectors": 2, "depth": 32, "row_groups": 2, "panel_groups": 1}
EXACT, OVERLAPPING = SIZES, {**SIZES, "pixels": 8}
CASES = [(element, sizes) for element in (BFLOAT, INTEGER) for sizes in (EXACT, OVERLAPPING)]
OVERWRITING = {"last0", "down", "last2"}

NO_TILES = f"{', '.join(unusable(MATRIX_FEATURES))}: the CPU has none, or its operating system refuses them"
needs_tiles = pytest.mark.skipif(bool(unusable(["amx-bf16", "amx-int8"])), reason=NO_TILES)


def _model() -> ModelProto:
    """Two bottlenecks, which add what they read and a convolution of it, and a wide convolution that adds."""
    b = Builder()

    def convolved(name: str, source: str, channels: tuple[int, int], kernel: int = 1) -> str:
        return b.op("Relu", f"{name}.relu", b.conv(name, source, channels, kernel))

    def inner(name: str, source: str) -> str:
        value = convolved(f"middle{name}", convolved(f"narrow{name}", source, (64, 32)), (32, 32), 3)
        return b.conv(f"last{name}", value, (32, 64), 1)

    value = convolved("first", "x", (32, 64), 3)
    value = b.op("Relu", "r0", b.op("Add", "add0", inner("0", value), value))
    down = b.conv("down", value, (64, 64), 1)
    value = b.op("Relu", "r1", b.op("Add", "add1", down, inner("1", value)))
    last = b.conv("last2", convolved("narrow2", value, (64, 32)), (32, 64))
    value = b.op("Relu", "r2", b.op("Add", "add2", last, value))
    convolved("end", value, (64, 32))
    return b.model([("x", (2, 32, 6, 10))], [("end.relu", (2, 32, 6, 10))])


@pytest.fixture(scope="module")
def imported() -> ImportedModel:
    return imported_model(_model())


def _variants(imported: ImportedModel, element: TileElement, sizes: Sizes) -> dict[str, Variant]:
    routine = TileConvolution(storage=element.dtype, element=element)
    found = {}
    for layer in imported.graph.layers:
        built = routine.build(layer.task, sizes, TARGET)
        assert isinstance(built, Implementation), built
        found[layer.name] = Variant(describe(routine, layer.task, sizes, TARGET), "cpu", element.dtype, built)
    return found


def _ranges(imported: ImportedModel) -> dict[ValueRef, QuantisedRange]:
    """Return a different range for each value, so that tests detect a residual that is read after it is overwritten."""
    values = [ValueRef(None, 0), *(ValueRef(layer.name, 0) for layer in imported.graph.layers)]
    return {ref: QuantisedRange.of(-1.0 - index, 7.0 + index) for index, ref in enumerate(values)}


def _nets(imported: ImportedModel, element: TileElement, sizes: Sizes = EXACT) -> tuple[SplitNetwork, SplitNetwork]:
    """The network, and the same where nothing may be written over."""
    variants = _variants(imported, element, sizes)
    apart = {
        name: replace(variant, implementation=replace(variant.implementation, overwriting=None))
        for name, variant in variants.items()
    }
    ranges = _ranges(imported) if element.is_quantised else {}
    return SplitNetwork(imported.graph, variants, ranges), SplitNetwork(imported.graph, apart, ranges)


def _scheduled(imported: ImportedModel, net: SplitNetwork) -> str:
    """The entry with fences once all memory is laid out; no entry copies."""
    stitched = stitch(stitchings(net, imported.weights, TARGET)["cpu"], TARGET, manifest_of(imported).to_json())
    text = translate(inlined(stitched.text), TARGET.flags, start="flow", to="stream")
    assert not re.search(r"stream\.(cmd\.copy|cmd\.fill|async\.clone)", text)
    return next(part for part in text.split("util.func ") if part.startswith(f"public @{ENTRY}$async("))


def _transient(text: str) -> int:
    """Bytes of what lies between layers."""
    (size,) = re.findall(r"alloca uninitialized.*!stream\.resource<transient>\{%c(\d+)\}", text)
    return int(size)


@pytest.mark.parametrize("element", [BFLOAT, INTEGER])
def test_residuals_are_overwritten_without_a_copy(imported: ImportedModel, element: TileElement) -> None:
    over, apart = _nets(imported, element)
    pieces = stitchings(over, imported.weights, TARGET)["cpu"].pieces
    plain = stitchings(apart, imported.weights, TARGET)["cpu"].pieces
    assert {name for name in pieces if pieces[name].symbol != plain[name].symbol} == OVERWRITING
    assert all(pieces[name].symbol == overwriting_symbol(plain[name].symbol) for name in OVERWRITING)
    texts = [_scheduled(imported, net) for net in (over, apart)]
    written_over = [re.findall(r"^ +rw %.*!stream.resource<transient>", text, re.MULTILINE) for text in texts]
    assert [len(each) for each in written_over] == [len(OVERWRITING), 0]
    assert _transient(texts[0]) <= _transient(texts[1])


def _results(imported: ImportedModel, net: SplitNetwork, path: Path, feeds: Mapping[str, Array]) -> Array:
    build_net(net, imported.weights, TARGET, manifest_of(imported).to_json(), NetFiles(path, None))
    with Session(path, threads=1) as session:
        return session.run(None, dict(feeds))[0]


@needs_tiles
@pytest.mark.parametrize(("element", "sizes"), CASES)
def test_the_result_is_the_same_to_the_bit(
    imported: ImportedModel, element: TileElement, sizes: Sizes, tmp_path: Path
) -> None:
    image = np.random.default_rng(3).standard_normal((2, 32, 6, 10)).astype(np.float32)
    over, apart = (
        _results(imported, net, tmp_path / f"{index}.vmfb", {"x": image})
        for index, net in enumerate(_nets(imported, element, sizes))
    )
    assert len(np.unique(apart)) > 100
    assert not np.array_equal(apart[0], apart[1])
    assert np.array_equal(over, apart)
