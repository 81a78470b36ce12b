"""Worker side: compile two plans of a decoder into one module, for single tokens and for parts of a prompt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sartor.codegen.ir.target import Target
from sartor.codegen.linking.several.prompts import join_prompts
from sartor.codegen.linking.stitching import compile_stitched
from sartor.runtime.manifest import Manifest
from sartor.tuning.kept.code import KeptCode
from sartor.tuning.networks.build_job import SplitNetwork, packed_file, stitchings, write_weights
from sartor.tuning.networks.net_files import NetFiles


@dataclass(frozen=True)
class WeightedNetwork:
    """A plan of a network on the CPU.

    Attributes:
        net: its layers and variants.
        weights: by name, in ONNX layout.
    """

    net: SplitNetwork
    weights: Mapping[str, np.ndarray]


def build_prompts(
    tokens: WeightedNetwork, prompts: WeightedNetwork, target: Target, manifest: Manifest, files: NetFiles
) -> int:
    """Worker side: compile two plans into ``files``; returns the bytes of their weights.

    Args:
        tokens: the plan for one token.
        prompts: that for several.
        target: what both are compiled for.
        manifest: of the file.
        files: to write.

    Raises:
        CompileError: with IREE's diagnostic.
    """
    one, other = (next(iter(stitchings(each.net, each.weights, target).values())) for each in (tokens, prompts))
    joined = join_prompts(one, other, target, manifest.to_json(), packed_file(files.module))
    embed = files.weights is None
    compile_stitched(joined, target, files.module, embed=embed, store=KeptCode.of_user())
    if files.weights is not None:
        write_weights(files, joined.parameters)
    return sum(array.nbytes for array in joined.parameters.values())
