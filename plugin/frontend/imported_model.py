"""The result of the front end: layers, weights, and the facts about the file that later steps need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import NetworkValue, ValueRef
from sartor.codegen.ir.sizes.computed import ComputedSize
from sartor.codegen.mlir.machine import Flags, Machine
from sartor.reference.random_inputs import USUAL, Style
from sartor.reference.sample_styles import NO_DOUBTS, Doubts
from sartor.runtime.driver.bound_input import BoundInput
from sartor.runtime.driver.cache import Cache
from sartor.runtime.driver.noise import Noise
from sartor.runtime.driver.signature import Array
from sartor.runtime.driver.state import State
from sartor.tuning.calibration.quantised_range import QuantisedRange
from sartor.tuning.kept.values import FileState


@dataclass(frozen=True)
class StoredIntegers:
    """Integers of the user's file, which stand for ``scale * (integer - zero)``.

    Attributes:
        name: of the tensor in the file.
        scale, zero: of all its elements.
    """

    name: str
    scale: float
    zero: int


@dataclass(frozen=True)
class Origin:
    """How a model was imported, so that this, and what follows from it alone, can be kept for later compilations.

    Attributes:
        settings: all that importing depends on besides the model's file, pickled.
        state: of that file when the import began.
        found: the key under which it was kept; empty if it was imported now.
        content: what is to be kept of it, pickled; empty if it was kept.
        files: that it needs, and what they were when they were made.
        digests: the SHA-256 of each of these; empty if that is not known.
    """

    settings: bytes
    state: tuple[int, ...]
    found: str = ""
    content: bytes = b""
    files: tuple[tuple[Path, FileState], ...] = ()
    digests: tuple[str, ...] = ()


@dataclass(frozen=True)
class ImportedModel:
    """A model as layers, with its weights and the facts that later steps need.

    Attributes:
        path: the model's file.
        graph: the model as layers.
        weights: parameter name to array.
        unsplit: the module before it was split into layers, as bytecode.
        prepared: the prepared model, serialised, or the file that holds it.
        skeleton: the prepared model without weights but with the quantisation of its inputs, serialised.
        sha256: hash of the prepared model.
        samples: inputs to run the model on.
        node_count: nodes of the prepared model.
        ranges: 8-bit ranges of values that may be quantised: a quantised model's own, and calibrated ones.
        is_quantised: whether the file itself quantises values.
        integers: what tensors of the prepared model stand for, by their name.
        names: ONNX's name of each value of the graph that has one.
        styles: how samples are drawn; the first is that of ``samples``.
        doubts: about outputs that are constant or not finite on such samples.
        nan_weights: names of weights that contain NaN.
        is_rounding: whether the model computes with integers that represent real numbers.
        bound: inputs with a fixed value, which the prepared model does not have.
        tie_spread: relative error on drawn samples by rounding ties to the other side; 0 if nothing is rounded.
        external: the files that hold weights outside the model's file.
        exponents: of channels of tensors that were equalised before products.
        noise: inputs that stand for random operators.
        has_definitions: whether definitions of operators may have to vouch for rewrites, as ONNX Runtime cannot.
        states: inputs and outputs that the module keeps between calls.
        caches: inputs and outputs that it keeps as caches that grow.
        compensated: identifies the samples on which the errors of weights in blocks of 4 bits were compensated;
            empty if they are rounded to nearest.
        rows: of the shortest table that all elements of an input index, by the input's name.
        machines: what the compiler says of the target's CPUs, for a process that has not asked it (``take_answers``).
        is_hurried: whether there was no time to look at all samples by which ``styles`` are chosen.
        is_simplified: whether onnxslim simplified it, which it was not asked to, or failed to, if it did not.
        origin: how it was imported; None if that is not to be kept.
        open_inputs: inputs of the network of any size that it is with some sizes; empty for any other.
        computed: a size that modules compute themselves, which callers neither give nor get; None while plans are
            selected, and for models without such a size.
    """

    path: Path
    graph: LayerGraph
    weights: Mapping[str, np.ndarray]
    unsplit: bytes
    prepared: bytes | Path
    skeleton: bytes
    sha256: str
    samples: dict[str, Array]
    node_count: int
    ranges: Mapping[ValueRef, QuantisedRange] = field(default_factory=dict)
    is_quantised: bool = False
    integers: Mapping[str, StoredIntegers] = field(default_factory=dict)
    names: Mapping[ValueRef, str] = field(default_factory=dict)
    styles: tuple[Style, ...] = (USUAL,)
    doubts: Doubts = NO_DOUBTS
    nan_weights: tuple[str, ...] = ()
    is_rounding: bool = False
    bound: tuple[BoundInput, ...] = ()
    tie_spread: float = 0.0
    external: tuple[Path, ...] = ()
    exponents: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    has_definitions: bool = False
    noise: tuple[Noise, ...] = ()
    states: tuple[State, ...] = ()
    caches: tuple[Cache, ...] = ()
    compensated: str = ""
    rows: Mapping[str, int] = field(default_factory=dict)
    machines: Mapping[Flags, Machine] = field(default_factory=dict)
    is_hurried: bool = False
    is_simplified: bool = True
    origin: Origin | None = None
    open_inputs: tuple[NetworkValue, ...] = ()
    computed: ComputedSize | None = None
