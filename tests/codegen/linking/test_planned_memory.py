"""The memory that IREE plans, before code is generated."""

from __future__ import annotations

from pathlib import Path

import pytest

from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Variant
from sartor.codegen.linking.planned_memory import peak_of, without_code
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
    assert peak_of(ENTRY.replace("SIZE", size)) == expected


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
