"""Joins two plans of a decoder whose module keeps caches: one for calls of one token, and one for parts of a prompt.

Both append to the same caches. Code and packed weights that both use are in the module once.
"""

from __future__ import annotations

from dataclasses import replace
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

PROMPT_ENTRY = f"{ENTRY}$prompt"
"""After which the function is named that takes a part of a prompt; ``ENTRY`` takes one token."""
LAST_ENTRY = f"{PROMPT_ENTRY}$last"
"""The same of the function that gives what is behind one token of the part alone."""


def join_prompts(
    tokens: Stitching,
    prompts: Stitching,
    target: Target,
    manifest: str,
    file: Path | None = None,
    last: LastLayers | None = None,
) -> Stitched:
    """Write the module of two plans.

    Args:
        tokens: the plan for one token, with one entry.
        prompts: that for several, with caches of the same types in the same order.
        target: what the module is compiled for.
        manifest: JSON text that the module carries.
        file: where packed weights may be kept, if they are many; None for memory.
        last: what a third function runs for the last token alone; None if there is no such.

    Raises:
        ValueError: if both have different code of one name.
    """
    parameters, code = Parameters(is_shared=True), dict[str, str]()
    written = []
    for name, stitching in ((ENTRY, tokens), (PROMPT_ENTRY, prompts)):
        (entry,) = stitching.entries
        writer = Writer(stitching, parameters)
        body = writer.entry(entry)
        written.append((replace(entry, name=name), stitching.caches, body.lines, body.returned))
        for symbol, text in writer.code.items():
            if code.setdefault(symbol, text) != text:
                raise ValueError(f"two plans have different code of the name '{symbol}'")
    (entry, _, lines, returned), second = written
    functions = list[str]()
    if last is not None:
        third = written_last(LAST_ENTRY, last, tokens, prompts, parameters)
        code |= third.code
        functions.append(growing_step(third.entry, prompts.caches, third.lines, third.returned, has_last=True))
    functions += [
        entry_functions(entry, lines, returned, manifest),
        *growing_functions(*written[0]),
        growing_step(*second),
        truncating_function(entry),
    ]
    attributes, devices = module_header(target)
    pieces = [text for _, text in sorted(code.items())]
    return Stitched(
        module_text(attributes, [devices, *parameters.declarations, *pieces, *functions]), parameters.arrays(file)
    )
