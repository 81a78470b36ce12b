"""Worker side: compile the beginnings of a network into one module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from sartor.codegen.ir.target import Target
from sartor.codegen.linking.functions.prefixes import choose, prefixes_of
from sartor.codegen.linking.overwriting import plain_name
from sartor.codegen.linking.stitching import compile_stitched, stitch
from sartor.tuning.networks.build_job import SplitNetwork, stitchings
from sartor.tuning.networks.prefixes.piece_times import PrefixEntry

_MOST_PIECES = 64


def build_prefixes(
    net: SplitNetwork, weights: Mapping[str, np.ndarray], target: Target, path: Path
) -> list[PrefixEntry]:
    """Worker side: compile the beginnings of a network on one device, with weights inside; returns them, the shortest
    first.

    Raises:
        CompileError: with IREE's diagnostic.
        ValueError: if the network is on several devices.
    """
    ((_, stitching),) = stitchings(net, weights, target).items()
    (whole,) = stitching.entries
    symbols = {name: plain_name(piece.symbol) for name, piece in stitching.pieces.items()}
    code = {name: piece.implementation for name, piece in stitching.pieces.items()}
    every = prefixes_of(whole, symbols, code)
    lengths = {prefix.entry.name: place for place, prefix in enumerate(every, 1)}
    chosen = choose(every, _MOST_PIECES)
    entries = tuple(prefix.entry for prefix in chosen)
    compile_stitched(stitch(replace(stitching, entries=entries, only_bound=True), target, ""), target, path)
    return [
        PrefixEntry(
            name=prefix.entry.name,
            symbol=prefix.symbol,
            length=lengths[prefix.entry.name],
            results=tuple(port.type for port in prefix.entry.outputs),
        )
        for prefix in chosen
    ]
