"""The memory that IREE plans before code is generated, and scratch memory read off lowered code."""

from __future__ import annotations

import re
from pathlib import Path
from unittest.mock import Mock

import pytest

from sartor.codegen.ir.layer import F32, TensorType
from sartor.codegen.ir.sizes.dims import Extent, Symbol
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Variant
from sartor.codegen.kernels.emit.executable import Kernel
from sartor.codegen.linking.planned_memory import peak_of, without_code
from sartor.codegen.linking.scratch import aligned, scratch_bytes, scratch_of
from sartor.codegen.routines import routines_for
from sartor.config import CompileConfig
from sartor.costing.listing import list_candidates
from sartor.planning.recipe import unsplit_recipe
from sartor.runtime.memory import allocated_bytes
from sartor.tuning.networks.build_job import NetFiles, SplitNetwork, build_net, planned_memory
from sartor.tuning.records.signature import net_signature
from tests.importing import ImportedOf

TARGET = Target.create("cpu")

ENTRY = """
  util.func private @other() {
    %c64 = arith.constant 64 : index
    %r, %t = stream.resource.alloca await(%w) => !stream.resource<transient>{%c64} => !stream.timepoint
  }
  util.func public @main_graph$async(%arg0: !hal.buffer_view) {
    %c64 = arith.constant 64 : index
    %c100 = arith.constant 100 : index
    %r, %t = stream.resource.alloca await(%w) => !stream.resource<external>{%c64} => !stream.timepoint
    %r_0, %t_1 = stream.resource.alloca await(%t) => !stream.resource<transient>{%c100} => !stream.timepoint
    %5 = stream.resource.dealloca await(%t_1) => %r_0 : !stream.resource<transient>{%c100} => !stream.timepoint
    %r_2, %t_3 = stream.resource.alloca await(%5) => !stream.resource<transient>{SIZE} => !stream.timepoint
  }"""


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        pytest.param("%c64", 164, id="what was freed does not count with what comes after"),
        pytest.param("%dynamic", None, id="an amount that is known only at run time"),
    ],
)
def test_what_is_allocated_at_once_in_the_entry_counts(size: str, expected: int | None) -> None:
    assert peak_of(ENTRY.replace("SIZE", size), []) == expected


OF_ANY_SIZE = """
  util.func public @main_graph$async(%arg0: !hal.buffer_view, %arg1: !hal.buffer_view) {
    %c64 = arith.constant 64 : index
    %c3 = arith.constant 3 : index
    %c8 = arith.constant 8 : index
    %0 = hal.buffer_view.dim<%arg1 : !hal.buffer_view>[1] : index
    %1 = arith.muli %0, %c8 overflow<nsw> : index
    %2 = arith.ceildivui %1, %c3 : index
    %3 = util.align %2, %c64 : index
    %4 = arith.cmpi ult, %0, %c64 : index
    %5 = arith.select %4, %3, %1 : index
    %6 = arith.index_cast %5 : index to i64
    %7 = arith.index_cast %6 : i64 to index
    %8 = unknown.op %7 : index
    %r, %t = stream.resource.alloca await(%w) => !stream.resource<external>{SIZE} => !stream.timepoint
  }"""


@pytest.mark.parametrize(
    ("rows", "size", "expected"), [(31, "%7", 128), (64, "%7", 512), (24, "%3", 64), (25, "%3", 128), (24, "%8", None)]
)
def test_sizes_that_follow_from_the_inputs_are_computed(rows: int, size: str, expected: int | None) -> None:
    assert peak_of(OF_ANY_SIZE.replace("SIZE", size), [(1, 2), (5, rows)]) == expected


def last_of(variants: tuple[Variant, ...], kernels: bool) -> Variant:
    """The last kernel of a task, or its candidate 0."""
    found = [variant for variant in variants if kernels and variant.implementation.kernel is not None]
    return (found or list(variants[:1]))[-1]


@pytest.mark.parametrize("kernels", [False, True])
def test_a_module_allocates_what_was_planned(imported_of: ImportedOf, tmp_path: Path, kernels: bool) -> None:
    imported, config = imported_of("residual"), CompileConfig(threads=1)
    variants = list_candidates(imported.graph, routines_for(()), TARGET).variants
    chosen = {layer.name: last_of(variants[layer.task.key], kernels) for layer in imported.graph.layers}
    assert kernels == any(each.implementation.kernel is not None for each in chosen.values())
    net, files = SplitNetwork(imported.graph, chosen), NetFiles(tmp_path / "net.vmfb", None)
    manifest = unsplit_recipe(imported, config.planning).manifest(imported, config.header)
    weights = build_net(net, imported.weights, TARGET, manifest, files)
    signature = net_signature((imported.graph.inputs, imported.graph.outputs))
    found = allocated_bytes(files.module, imported.samples, signature, files.parameters)
    assert found is not None
    assert planned_memory(net, TARGET) == found.peak + (0 if found.loaded else weights)


def test_only_kernels_lose_their_code(imported_of: ImportedOf) -> None:
    (task, *_) = imported_of("residual").graph.tasks().values()
    variants = list_candidates(imported_of("residual").graph, routines_for(()), TARGET).variants[task.key]
    stock, kernel = (last_of(variants, number).implementation for number in (False, True))
    assert without_code(stock) is stock
    hollow = without_code(kernel).kernel
    assert hollow is not None
    assert kernel.kernel is not None
    (text,) = hollow.executables()
    assert text.startswith("hal.executable private @kernel ")
    assert len(text) < len(kernel.kernel.executables()[0])


@pytest.mark.parametrize("alone", [0, 100])
def test_kernels_that_are_given_how_much_they_compute_lose_their_code(alone: int) -> None:
    rows = Symbol("rows", 1, 64)
    tensor = TensorType((64, 8), F32, (Extent((rows,)), 8))
    kernel = Kernel("kernel", (tensor,), (tensor,), (4, 1, 1), 8, symbols=(rows,), alone=alone)
    hollow = without_code(Implementation(kernel.dispatch(["%a"]), (), (), (), kernel=Mock())).kernel
    assert hollow is not None
    (text,) = hollow.executables()
    (counted,) = re.findall(r"count\(%d: !hal.device(.*)\) -> \(", text)
    assert counted.count(": index") == kernel.may_be_alone == (alone > 0)
    assert "constants = 1, " in text


PADDED = """
util.func private @f(%arg0: tensor<4x8x8xf32>, %arg1: tensor<4xf32>) -> tensor<1x4x8x8xf32> {
  %cst = arith.constant 0.0 : f32
  %1 = flow.tensor.splat %cst : tensor<4x10x10xf32>
  %2 = flow.dispatch @a::@a(%arg0, %1) : (tensor<4x8x8xf32>, tensor<4x10x10xf32>) -> %1
  %3 = flow.dispatch @b::@b(%2, %arg1) : (tensor<4x10x10xf32>, tensor<4xf32>) -> tensor<4x8x8xf32>
  %4 = flow.tensor.reshape %3 : tensor<4x8x8xf32> -> tensor<1x4x8x8xf32>
  util.return %4 : tensor<1x4x8x8xf32>
}"""

WORKSPACE = """
util.func public @layer(%a0: tensor<8xf32>) -> tensor<8xf32> {
  %r:2 = flow.dispatch @k::@k::@k(%a0) {hal.executable.ref = [@k]} : (tensor<8xf32>) -> (tensor<8xf32>, tensor<300xf32>)
  util.return %r#0 : tensor<8xf32>
}"""

CHAIN = """
util.func private @f(%arg0: tensor<16xf32>) -> tensor<16xf32> {
  %0 = flow.dispatch @a::@a(%arg0) : (tensor<16xf32>) -> tensor<100xf32>
  %1 = flow.dispatch @b::@b(%0) : (tensor<100xf32>) -> tensor<200xf32>
  %2 = flow.dispatch @c::@c(%1) : (tensor<200xf32>) -> tensor<50xf32>
  %3 = flow.dispatch @d::@d(%2, %arg0) : (tensor<50xf32>, tensor<16xf32>) -> tensor<16xf32>
  util.return %3 : tensor<16xf32>
}"""

JOINED = """
util.func private @f(%arg0: tensor<16xf32>) -> tensor<64xf32> {
  %0 = flow.dispatch @a::@a(%arg0) : (tensor<16xf32>) -> tensor<16xf32>
  %1 = flow.dispatch @b::@b(%arg0) : (tensor<16xf32>) -> tensor<16xf32>
  %2 = flow.tensor.empty : tensor<32xf32>
  %3 = flow.tensor.update %0, %2[%c0] : tensor<16xf32> -> %2 as tensor<32xf32>
  %4 = flow.tensor.update %1, %3[%c16] : tensor<16xf32> -> %3 as tensor<32xf32>
  %5 = flow.dispatch @c::@c(%4) : (tensor<32xf32>) -> tensor<64xf32>
  util.return %5 : tensor<64xf32>
}"""


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        pytest.param(PADDED, 4 * 10 * 10 * 4, id="a result that is returned under another shape is not scratch"),
        pytest.param(WORKSPACE, aligned(300 * 4), id="a workspace is a result that is not returned"),
        pytest.param(CHAIN, aligned(100 * 4) + aligned(200 * 4), id="two neighbours are there at once, not all three"),
        pytest.param(JOINED, 32 * 4, id="parts are written where they are joined"),
    ],
)
def test_intermediates_that_are_there_at_once_count(function: str, expected: int) -> None:
    assert scratch_bytes(function) == expected


def test_kernels_and_lowered_code_are_weighed_alike(imported_of: ImportedOf) -> None:
    graph = imported_of("residual").graph
    (task, *_) = graph.tasks().values()
    variants = list_candidates(graph, routines_for(()), TARGET).variants[task.key]
    found = scratch_of({number: variant.implementation for number, variant in enumerate(variants)}, TARGET)
    by_name = {variants[number].descriptor: size for number, size in found.items()}
    assert len(found) == len(variants)
    stock = next(size for name, size in by_name.items() if name.endswith(".stock"))
    # The image is padded by one pixel on each side before candidate 0 reads it.
    assert stock == aligned(16 * 8 * 8 * 4)
    assert all(size > 0 for name, size in by_name.items() if "winograd" in name)
    assert all(size == 0 for name, size in by_name.items() if ".direct{" in name)
