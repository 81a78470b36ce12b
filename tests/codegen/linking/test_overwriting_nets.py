"""Networks whose residual layers write over what they add: the same numbers, less memory, and no copies."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto

from sartor.codegen.ir.layer import ENTRY, ValueRef
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Variant, describe
from sartor.codegen.kernels.isa.amx import BFLOAT, INTEGER, TileElement
from sartor.codegen.linking.overwriting import overwriting_symbol
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
