"""Joins plans of a decoder whose module keeps caches: one for calls of one token, and others for parts of a prompt.

All append to the same caches. Code and packed weights that several use are in the module once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sartor.codegen.ir.layer import ENTRY
from sartor.codegen.ir.target import Target
from sartor.codegen.linking.entry_writer import Writer
from sartor.codegen.linking.functions.entry_functions import entry_functions
from sartor.codegen.linking.functions.growing import growing_functions, growing_step, truncating_function
from sartor.codegen.linking.pieces import Stitching
from sartor.codegen.linking.several.last_tokens import LastLayers, written_last
from sartor.codegen.linking.stitching import Stitched, module_text
from sartor.codegen.linking.weights.parameters import Parameters
from sartor.codegen.mlir.dispatches import module_header

LAST_SUFFIX = "$last"
"""Follows ``PartPlan.entry`` in the name of the function that gives what is behind one token of the part alone."""


@dataclass(frozen=True)
class PartPlan:
    """A plan for parts of prompts.

    Attributes:
        suffix: what follows ``ENTRY``, which takes one token, in the name of its function.
        stitching: the plan, with caches of the same types in the same order.
        last: what a further function runs for the last token alone; None if there is no such.
    """

    suffix: str
    stitching: Stitching
    last: LastLayers | None = None

    @property
    def entry(self) -> str:
        """The name of its function."""
        return f"{ENTRY}{self.suffix}"


def join_prompts(
    tokens: Stitching,
    prompts: Sequence[PartPlan],
    target: Target,
    manifest: str,
    file: Path | None = None,
) -> Stitched:
    """Write the module of several plans.

    Args:
        tokens: the plan for one token, with one entry.
        prompts: those for several.
        target: what the module is compiled for.
        manifest: JSON text that the module carries.
        file: where packed weights may be kept, if they are many; None for memory.

    Raises:
        ValueError: if two have different code of one name.
    """
    parameters, code = Parameters(is_shared=True), dict[str, str]()
    written = []
    for name, stitching in ((ENTRY, tokens), *((part.entry, part.stitching) for part in prompts)):
        (entry,) = stitching.entries
        writer = Writer(stitching, parameters)
        body = writer.entry(entry)
        written.append((replace(entry, name=name), stitching.caches, body.lines, body.returned))
        for symbol, text in writer.code.items():
            if code.setdefault(symbol, text) != text:
                raise ValueError(f"two plans have different code of the name '{symbol}'")
    (entry, _, lines, returned), *parts = written
    functions = list[str]()
    for part in prompts:
        if part.last is not None:
            name, caches = f"{part.entry}{LAST_SUFFIX}", part.stitching.caches
            behind = written_last(name, part.last, tokens, part.stitching, parameters)
            code |= behind.code
            functions.append(growing_step(behind.entry, caches, behind.lines, behind.returned, has_last=True))
    functions += [
        entry_functions(entry, lines, returned, manifest),
        *growing_functions(*written[0]),
        *(growing_step(*part) for part in parts),
        truncating_function(entry),
    ]
    attributes, devices = module_header(target)
    pieces = [text for _, text in sorted(code.items())]
    return Stitched(
        module_text(attributes, [devices, *parameters.declarations, *pieces, *functions]), parameters.arrays(file)
    )
