"""Finds channels whose sizes differ so much that one range of 8 bits for all of them would leave most few steps.

Sizes are moved to the weights, which are quantised by channels of the result (Xiao et al., SmoothQuant, 2023). Where
that pays is estimated from sizes of channels; what it changes in the outputs' error is simulated as for every model.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, NodeProto

from sartor.frontend.imported_model import ImportedModel
from sartor.onnx_model.graphs.graph import Array, GraphEditor
from sartor.onnx_model.graphs.prepared import prepared_model
from sartor.onnx_model.quantisation.equalised_products import (
    MOST_EXPONENT,
    is_exact,
    products_by_tensor,
    weight_rows,
)
from sartor.precision.calibration import observed
from sartor.progress import Progress, silent
from sartor.samples.given_samples import SampleSource
from sartor.tuning.workers.pool import WorkerPool

_LOG = logging.getLogger(__name__)
_STEP = "finding sizes of channels"
# The estimated mean square error must fall to this part: a multiplication of the tensor should halve the error.
_WORTH = 0.25
_LEAST_SIZE = 1e-6
_STEPS = 255


@dataclass
class ChannelSizes:
    """Observes the largest size and the mean square of each channel, the last axis of a tensor."""

    largest: Array | None = None
    squares: Array | None = None
    count: int = 0

    def observe(self, array: Array) -> None:
        """Take the tensor's values on one more sample into account."""
        rows = np.nan_to_num(array.reshape(-1, array.shape[-1]).astype(np.float64), posinf=0.0, neginf=0.0)
        largest, squares = np.abs(rows).max(0, initial=0.0), (rows**2).sum(0)
        self.largest = largest if self.largest is None else np.maximum(self.largest, largest)
        self.squares = squares if self.squares is None else self.squares + squares
        self.count += len(rows)

    def range(self) -> tuple[float, float]:
        """The range of all channels together, symmetric."""
        size = 0.0 if self.largest is None else float(self.largest.max(initial=0.0))
        return -size, size


def find_exponents(
    imported: ImportedModel, samples: SampleSource, pool: WorkerPool, threads: int | None, progress: Progress = silent
) -> dict[str, tuple[int, ...]]:
    """The exponents of tensors that should be equalised before products in 8 bits.

    Raises:
        UsageError: if the samples cannot be read, or the model fails on them.
        CompileError: if the worker dies.
    """
    model = prepared_model(imported.prepared)
    products = products_by_tensor(model)
    if not products or imported.is_quantised or imported.is_rounding:
        return {}
    seen = observed(
        imported.prepared, products, samples, pool, ChannelSizes, threads=threads, step=_STEP, progress=progress
    )
    exponents_of_all = {}
    for name, nodes in products.items():
        sizes = seen.get(name)
        if isinstance(sizes, ChannelSizes) and (exponents := exponents_of(sizes, nodes, model)):
            exponents_of_all[name] = exponents
    if exponents_of_all:
        _LOG.info("%d tensors have channels of very different sizes, which are moved to weights", len(exponents_of_all))
    return exponents_of_all


def exponents_of(sizes: ChannelSizes, nodes: Sequence[NodeProto], model: ModelProto) -> tuple[int, ...]:
    """The exponent of each channel of what products read; empty if equalisation does not pay, or would not be exact."""
    if sizes.largest is None or sizes.squares is None or not sizes.largest.any():
        return ()
    editor = GraphEditor(model.graph)
    weights = [editor.constant(node.input[1]) for node in nodes]
    known = [weight for weight in weights if weight is not None]
    rows = [weight_rows(node, array).astype(np.float64) for node, array in zip(nodes, known, strict=True)]
    if not all(np.isfinite(row).all() for row in rows):
        return ()
    exponents = _balanced(sizes.largest, rows)
    squares = sizes.squares / max(sizes.count, 1)
    plain = np.zeros(len(exponents), np.int64)
    gain = _noise(sizes.largest, squares, rows, exponents) / max(_noise(sizes.largest, squares, rows, plain), 1e-300)
    wholes = tuple(int(exponent) for exponent in exponents)
    return wholes if gain < _WORTH and _are_exact(nodes, known, wholes) else ()


def _are_exact(nodes: Iterable[NodeProto], weights: Iterable[Array], exponents: Sequence[int]) -> bool:
    return all(is_exact(node, weight, exponents) for node, weight in zip(nodes, weights, strict=True))


def _balanced(largest: Array, rows: Sequence[Array]) -> Array:
    """Powers of two near the square root of activations' sizes over weights' (SmoothQuant with a strength of 0.5)."""
    weight = np.max([np.abs(row).max(1) for row in rows], 0)
    logs = np.log2(np.maximum(largest, _LEAST_SIZE) / np.maximum(weight, _LEAST_SIZE)) / 2
    return np.asarray(np.clip(np.rint(logs - logs.mean()), -MOST_EXPONENT, MOST_EXPONENT), np.int64)


def _noise(largest: Array, squares: Array, rows: Sequence[Array], exponents: Array) -> float:
    """Mean square error of products with one step for the tensor and one for each column of the weights."""
    scale = np.ldexp(1.0, exponents)
    step = 2 * (largest / scale).max() / _STEPS
    total = 0.0
    for row in rows:
        weight = row * scale[:, np.newaxis]
        steps = 2 * np.abs(weight).max(0) / _STEPS
        total += step**2 * (weight**2).sum() + (steps**2).sum() * (squares / scale**2).sum()
    return float(total)
