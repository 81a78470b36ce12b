"""Worker side: compile several plans of a model into one module: for CPU levels, and for shapes of its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sartor.codegen.ir.target import Target
from sartor.codegen.linking.several.joining import Part, compile_joined, join
from sartor.codegen.linking.several.level import level_of
from sartor.codegen.linking.weights.parameters import Identity, Parameters
from sartor.runtime.segments.packing import pack
from sartor.runtime.several.record import plan_prefix
from sartor.tuning.networks.build_job import NetFiles, SplitNetwork, stitchings, write_weights


@dataclass(frozen=True)
class JoinedPlan:
    """One of the plans of a file.

    Attributes:
        net: its layers and variants, all for one device.
        weights: by name, in ONNX layout.
        target: what it is compiled for; of several CPU levels each is ``portable``.
    """

    net: SplitNetwork
    weights: Mapping[str, np.ndarray]
    target: Target


@dataclass(frozen=True)
class JoinedModule:
    """The plans of one device.

    Attributes:
        plans: for each level and each shape of the inputs one.
        part: name of the part of the file; empty for the file's first module, which stock tools run as it is.
        manifest: JSON text that the module carries.
    """

    plans: Sequence[JoinedPlan]
    part: str
    manifest: str


def build_joined(modules: Sequence[JoinedModule], files: NetFiles) -> int:
    """Worker side: compile modules into one file; returns the bytes of their weights.

    Args:
        modules: one for each device, the first of which begins the file.
        files: the .vmfb to write, and the file of the weights if they are not inside. Only there do the modules of two
            devices share equal weights.

    Raises:
        CompileError: with IREE's diagnostic.
    """
    path, embed = files.module, files.weights is None
    parts: dict[str, Path] = {}
    arrays: dict[str, np.ndarray] = {}
    stored: dict[Identity, str] = {}
    for module in modules:
        where = path.with_suffix(f".{module.part}") if module.part else path
        prefix = f"{module.plans[0].target.device}_" if module.part else ""
        parameters = Parameters(prefix, is_shared=True, stored={} if embed else stored)
        arrays |= _build(module, where, parameters, embed=embed)
        if module.part:
            parts[module.part] = where
    if parts:
        pack(path, parts)
    if files.weights is not None:
        write_weights(files, arrays)
    return sum(array.nbytes for array in arrays.values())


def _build(module: JoinedModule, path: Path, parameters: Parameters, *, embed: bool) -> dict[str, np.ndarray]:
    """Compile the module of a device; returns its weights."""
    targets = [plan.target for plan in module.plans]
    has_levels = len({target.architecture for target in targets}) > 1
    parts = []
    for number, plan in enumerate(module.plans):
        prefix = plan_prefix(number)
        (stitching,) = stitchings(plan.net, plan.weights, plan.target, prefix=prefix).values()
        parts.append(Part(prefix, stitching, level_of(plan.target) if has_levels else None))
    joined = join(parts, targets[0], module.manifest, parameters)
    compile_joined(joined, targets[0], path, embed=embed)
    return joined.parameters
