"""What modules allocate, by IREE's own count."""

from __future__ import annotations

from pathlib import Path

from sartor.codegen.ir.target import Target
from sartor.config import CompileConfig
from sartor.planning.recipe import unsplit_recipe
from sartor.runtime.driver.signature import Signature, TensorSpec
from sartor.runtime.memory import allocated_bytes
from sartor.tuning.networks.build_job import NetFiles, UnsplitNetwork, build_net
from tests.importing import ImportedOf


def test_inputs_and_outputs_count_and_mapped_weights_do_not(imported_of: ImportedOf, tmp_path: Path) -> None:
    imported, config = imported_of("residual"), CompileConfig(threads=1)
    image = 16 * 6 * 6 * 4
    (x,), (y,) = (
        [TensorSpec(value.name, value.dtype, value.type.shape) for value in values]
        for values in (imported.graph.inputs, imported.graph.outputs)
    )
    signature = Signature("main_graph", (x,), (y,))
    manifest = unsplit_recipe(imported, config.planning).manifest(imported, config.header)
    for weights in (None, tmp_path / "weights.irpa"):
        files = NetFiles(tmp_path / "net.vmfb", weights)
        size = build_net(UnsplitNetwork(imported.unsplit), imported.weights, Target.create("cpu"), manifest, files)
        assert size == sum(array.nbytes for array in imported.weights.values())
        found = allocated_bytes(files.module, imported.samples, signature, files.parameters)
        assert found is not None
        assert found.loaded in (0, size)
        # The input, the output, and what the first convolution hands to the second.
        assert found.peak - found.loaded >= 3 * image
        assert found.peak - found.loaded < 12 * image
