"""Joins two plans of one network to a module with a function for each: for the first inference, and for later ones.

NNV12 (section 3.5) calls it kernel switching. Code and packed weights that both plans use are in the module once. The
weights of the first plan come first, so that a reader which begins at the file's beginning keeps ahead of the first
inference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from sartor.codegen.ir.layer import ENTRY
from sartor.codegen.ir.target import Target
from sartor.codegen.linking.entry_writer import Writer
from sartor.codegen.linking.functions.entry_functions import entry_functions
from sartor.codegen.linking.pieces import Stitching
from sartor.codegen.linking.stitching import Stitched, module_text
from sartor.codegen.linking.weights.parameters import Parameters
from sartor.codegen.mlir.dispatches import module_header

LATER_ENTRY = f"{ENTRY}$later"
"""The function of the plan for later inferences; ``ENTRY`` is that for the first."""


@dataclass(frozen=True)
class Switching:
    """A module with two plans before its last compilation.

    Attributes:
        stitched: the module.
        first_bytes: of the weights that the first plan reads.
        added_bytes: of those that only the other reads.
    """

    stitched: Stitched
    first_bytes: int
    added_bytes: int


def join_switching(first: Stitching, later: Stitching, target: Target, manifest: Callable[[int], str]) -> Switching:
    """Write the module of two plans.

    Args:
        first: the plan for the first inference, with one entry.
        later: that for later ones.
        target: what the module is compiled for.
        manifest: JSON text that the module carries, by ``added_bytes``.

    Raises:
        ValueError: if both have different code of one name.
    """
    parameters = Parameters(is_shared=True)
    code: dict[str, str] = {}
    written = []
    counts = []
    for name, stitching in ((ENTRY, first), (LATER_ENTRY, later)):
        (entry,) = stitching.entries
        writer = Writer(stitching, parameters)
        written.append((replace(entry, name=name), writer.entry(entry)))
        counts.append(parameters.weight_bytes)
        for symbol, text in writer.code.items():
            if code.setdefault(symbol, text) != text:
                raise ValueError(f"two plans have different code of the name '{symbol}'")
    first_bytes, added = counts[0], counts[1] - counts[0]
    carried = [manifest(added), ""]
    functions = [
        entry_functions(entry, part.lines, part.returned, text)
        for (entry, part), text in zip(written, carried, strict=True)
    ]
    attributes, devices = module_header(target)
    pieces = [text for _, text in sorted(code.items())]
    text = module_text(attributes, [devices, *parameters.declarations, *pieces, *functions])
    return Switching(Stitched(text, parameters.arrays()), first_bytes, added)
