"""Worker side: compile two plans of a network into one module, for the first inference and for later ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from sartor.codegen.ir.target import Target
from sartor.codegen.linking.pieces import Stitching
from sartor.codegen.linking.several.switching import join_switching
from sartor.codegen.linking.stitching import compile_stitched
from sartor.errors import CompileError
from sartor.runtime.driver.iree_runtime import write_parameters
from sartor.runtime.manifest import Manifest
from sartor.tuning.kept.code import KeptCode
from sartor.tuning.networks.build_job import SplitNetwork, record_checksums, stitchings
from sartor.tuning.networks.net_files import NetFiles


@dataclass(frozen=True)
class SwitchingNetwork:
    """Two plans of one network for one device.

    Attributes:
        first: its layers and variants for the first inference.
        later: those for later ones.
    """

    first: SplitNetwork
    later: SplitNetwork


def build_switching(
    net: SwitchingNetwork, weights: Mapping[str, np.ndarray], target: Target, manifest: Manifest, files: NetFiles
) -> tuple[int, int]:
    """Worker side: compile two plans into ``files``.

    Args:
        net: the plans.
        weights: by name, in ONNX layout.
        target: what both are compiled for.
        manifest: of the file, with a successor; the bytes of that one's weights are filled in.
        files: to write.

    Returns:
        Bytes of the weights that the first plan reads, and of those that only the other reads.

    Raises:
        CompileError: with IREE's diagnostic.
    """
    later = manifest.successor
    if later is None:
        raise ValueError("a file with two plans needs a manifest that names the second")

    def text(added: int) -> str:
        return replace(manifest, successor={**later, "weight_bytes": added}).to_json()

    joined = join_switching(
        _stitching(net.first, weights, target), _stitching(net.later, weights, target), target, text
    )
    embed = files.weights is None
    compile_stitched(joined.stitched, target, files.module, embed=embed, store=KeptCode.of_user())
    if files.weights is not None:
        write_parameters(files.weights, joined.stitched.parameters)
        record_checksums(files)
    return joined.first_bytes, joined.added_bytes


def _stitching(net: SplitNetwork, weights: Mapping[str, np.ndarray], target: Target) -> Stitching:
    stitched = stitchings(net, weights, target)
    if len(stitched) > 1:
        raise CompileError("a plan for the first inference and one for later ones are for one device")
    (stitching,) = stitched.values()
    return stitching
