"""The chosen code of layers and conversions, from which one module is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from sartor.codegen.ir.layer import ValueRef
from sartor.codegen.ir.sizes.computed import ComputedSize
from sartor.codegen.ir.states import CachePair, StatePair
from sartor.codegen.ir.variants.routine import Implementation
from sartor.codegen.linking.adapts import AdaptKind
from sartor.codegen.linking.functions.entries import Entry
from sartor.codegen.mlir.dispatches import DispatchCode


@dataclass(frozen=True)
class Piece:
    """Lowered code under a symbol that is unique in the module."""

    symbol: str
    implementation: Implementation
    code: DispatchCode


@dataclass(frozen=True)
class Stitching:
    """The parts of one module.

    Attributes:
        entries: the functions, all for the module's device.
        pieces: the chosen piece of each layer, by name.
        adapts: the piece of each conversion.
        weights: parameter name to array, in ONNX layout.
        ranges: for each quantised value the ``RANGE`` that code takes as an argument.
        only_bound: whether entries have no other function than the one that writes into given buffers.
        states: inputs and outputs that are the same storage across calls; only one entry may have any.
        caches: the same of caches that grow; then there are no states.
        cuts: the piece that cuts an input to a computed size, by the input's name.
        computed: a size that the network computes itself; None if callers choose all. Then there are no states.
    """

    entries: tuple[Entry, ...]
    pieces: Mapping[str, Piece]
    adapts: Mapping[AdaptKind, Piece]
    weights: Mapping[str, np.ndarray]
    ranges: Mapping[ValueRef, np.ndarray] = field(default_factory=dict)
    only_bound: bool = False
    states: tuple[StatePair, ...] = ()
    caches: tuple[CachePair, ...] = ()
    cuts: Mapping[str, Piece] = field(default_factory=dict)
    computed: ComputedSize | None = None
