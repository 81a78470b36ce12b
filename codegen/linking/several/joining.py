"""Joins plans to one module that chooses among them: by the CPU at load, by the inputs' shapes in each call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from sartor.codegen.ir.layer import ENTRY
from sartor.codegen.ir.target import Target
from sartor.codegen.linking.entry_writer import Writer
from sartor.codegen.linking.functions.aligned_buffers import align_buffers
from sartor.codegen.linking.functions.entries import Entry
from sartor.codegen.linking.functions.entry_functions import BOUND_SUFFIX, asynchronous, bound_function
from sartor.codegen.linking.functions.stateful_calls import StatefulCalls
from sartor.codegen.linking.pieces import Stitching
from sartor.codegen.linking.several.choosing import Shapes, choosing_bound, choosing_functions, level_global
from sartor.codegen.linking.several.level import Level, best_first
from sartor.codegen.linking.several.probe import probe_first
from sartor.codegen.linking.several.variants import with_variants
from sartor.codegen.linking.stitching import embed_weights, module_text
from sartor.codegen.linking.weights.parameters import Parameters
from sartor.codegen.mlir.dispatches import executable_target, module_header
from sartor.codegen.mlir.iree_compiler import Edit, ir, run_passes, write_module


@dataclass(frozen=True)
class Part:
    """One of the plans of a module.

    Attributes:
        prefix: with which the names of all its symbols begin; no other part's names begin so.
        stitching: its layers, with one entry.
        level: of the CPU; None if the module's code is for one CPU only, or for a GPU.
    """

    prefix: str
    stitching: Stitching
    level: Level | None = None

    @property
    def entry(self) -> Entry:
        """The function."""
        (entry,) = self.stitching.entries
        return entry

    @property
    def shapes(self) -> Shapes:
        """Shapes of the inputs."""
        return tuple(port.logical.shape for port in self.entry.inputs)

    @property
    def function(self) -> str:
        """The name of its function with fences."""
        return f"{self.prefix}{ENTRY}"


@dataclass(frozen=True)
class Joined:
    """The module before its last compilation.

    Attributes:
        text: flow-level MLIR; weights appear as named parameters.
        parameters: packed weights by parameter name, each stored once, whatever plans read it.
        levels: the best first; none if there is nothing to choose.
        prefixes: the level of the symbols whose names begin with a text.
    """

    text: str
    parameters: dict[str, np.ndarray]
    levels: tuple[Level, ...]
    prefixes: Mapping[str, Level]


def join(parts: Sequence[Part], target: Target, manifest: str, parameters: Parameters) -> Joined:
    """Write the module of several plans.

    Args:
        parts: a plan for each of the levels and each of the shapes; the first shape's function reports inputs of a
            shape that no plan has.
        target: what the module is compiled for, if its parts have no levels.
        manifest: JSON text that the module carries; empty for none.
        parameters: collects the packed weights, empty before; equal ones are shared.
    """
    levels = best_first([*dict.fromkeys(part.level for part in parts if part.level is not None)])
    pieces: list[str] = []
    has_bound = len(parts) == max(1, len(levels))
    for part in parts:
        writer = Writer(part.stitching, parameters)
        written = writer.entry(part.entry)
        function = asynchronous(f"private @{part.function}", part.entry, written.lines, written.returned)
        pieces += [*writer.pieces, function]
        if has_bound:
            own = replace(part.entry, name=part.function)
            pieces.append(bound_function(own, written.lines, written.returned, is_public=False))
    attributes, devices = _header(levels, target)
    choices = {(part.level.name if part.level else None, part.shapes): part.function for part in parts}
    functions = choosing_functions(parts[0].entry, [level.name for level in levels], choices, manifest)
    if has_bound:
        by_level = sorted(parts, key=lambda part: levels.index(part.level) if part.level else 0)
        functions.append(choosing_bound(parts[0].entry, [f"{part.function}{BOUND_SUFFIX}" for part in by_level]))
    if states := parts[0].stitching.states:
        inputs = {port.name: port.type for port in parts[0].entry.inputs}
        functions += StatefulCalls(inputs, len(parts[0].entry.outputs), states).texts()
    chosen = [level_global(levels, devices)] if levels else []
    text = module_text(attributes, [devices, *chosen, *parameters.declarations, *pieces, *functions])
    prefixes = {part.prefix: part.level for part in parts if part.level is not None}
    return Joined(text, parameters.arrays(), tuple(levels), prefixes)


def compile_joined(joined: Joined, target: Target, path: Path, *, embed: bool = True) -> None:
    """Compile to a .vmfb file, with the weights inside or, if not ``embed``, as parameters of scope ``model``.

    Args:
        joined: the module.
        target: as for ``join``.
        path: the .vmfb to write.

    Raises:
        CompileError: with IREE's diagnostic.
    """

    def make() -> ir.Module:
        module = ir.Module.parse(joined.text)
        run_passes(module, "builtin.module(inline)")
        align_buffers(module, target)
        if embed:
            embed_weights(module, joined.parameters)
        return module

    edits: dict[str, Edit] = {}
    if joined.levels:
        target = joined.levels[0].target
        edits["executable-sources"] = with_variants(joined.levels, joined.prefixes)
        edits["hal"] = partial(probe_first, target=target)
    write_module(make, path, target.flags, start="flow", edits=edits)


def _header(levels: Sequence[Level], target: Target) -> tuple[str, str]:
    """Attributes of the module, and its device, which has executables for all levels."""
    if not levels:
        return module_header(target)
    attributes, devices = module_header(levels[0].target)
    targets = [executable_target(level.target) for level in levels]
    return attributes, devices.replace(targets[0], ", ".join(targets), 1)
