"""What the front end makes of a model: layers, weights, and what every later step must know of the file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import ValueRef
from sartor.reference.random_inputs import USUAL, Style
from sartor.runtime.driver.signature import Array
from sartor.tuning.calibration.quantised_range import QuantisedRange


@dataclass(frozen=True)
class Front:
    """What the front end makes of a model.

    Attributes:
        path: the model's file.
        graph: the model as layers.
        weights: parameter name to array.
        whole: the module before it was split into layers, as bytecode.
        prepared: the prepared model, serialised, or the file that holds it.
        skeleton: the prepared model without weights and with what quantises its inputs, serialised.
        sha256: hash of the prepared model.
        samples: inputs to run the model on.
        node_count: nodes of the prepared model.
        ranges: of values that may be quantised: those of a quantised model, and others if that was asked for.
        is_quantised: whether the model came with ranges.
        names: ONNX's names of values of the graph, as far as they have one.
        styles: how samples are drawn; the first is that of ``samples``.
        unchecked: outputs that say nothing on such samples.
        tie_spread: relative error that numbers next to a tie make on drawn samples; 0 where nothing is rounded.
    """

    path: Path
    graph: LayerGraph
    weights: Mapping[str, np.ndarray]
    whole: bytes
    prepared: bytes | Path
    skeleton: bytes
    sha256: str
    samples: dict[str, Array]
    node_count: int
    ranges: Mapping[ValueRef, QuantisedRange] = field(default_factory=dict)
    is_quantised: bool = False
    names: Mapping[ValueRef, str] = field(default_factory=dict)
    styles: tuple[Style, ...] = (USUAL,)
    unchecked: tuple[str, ...] = ()
    tie_spread: float = 0.0
