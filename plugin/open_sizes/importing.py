"""Imports a model for any size: for the largest sizes and for others, and joins what they have in common.

The largest sizes and primes just below are joined; small primes tell what only seems to be constant.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.sizes.dims import Symbol
from sartor.codegen.ir.sizes.fit import Fit
from sartor.config import CompileConfig
from sartor.dialect_passes.opening.open_graph import open_graph, unconfirmed
from sartor.errors import SartorError, UnsupportedModelError
from sartor.frontend.imported_model import ImportedModel
from sartor.frontend.loading import import_network
from sartor.open_sizes.calls import CallLog, logged_calls, usual_calls
from sartor.open_sizes.symbols import OpenDims, declared_dims
from sartor.profiling.compilation.tuned_network import Bench
from sartor.settings.size_range import OpenShapes
from sartor.tuning.workers.calls import call
from sartor.tuning.workers.protocol import WorkerError

_LOG = logging.getLogger(__name__)
Imported = tuple[LayerGraph, Mapping[str, np.ndarray]]


@dataclass(frozen=True)
class OpenImport:
    """A model for any size.

    Attributes:
        model: the model; its samples and its prepared file have the largest sizes.
        others: the model with the sizes of the other imports, which the first come with.
        symbols: the sizes that callers choose.
        dims: the dimensions of the inputs.
    """

    model: ImportedModel
    others: tuple[tuple[dict[str, int], ImportedModel], ...]
    symbols: tuple[Symbol, ...]
    dims: OpenDims

    def at(self, sizes: Mapping[str, int]) -> ImportedModel | None:
        """The model with these sizes, if it was imported with them beside the largest ones."""
        return next((model for known, model in self.others if known == sizes), None)


def import_open(
    path: Path, shapes: OpenShapes, config: CompileConfig, bench: Bench, log: CallLog | None = None
) -> OpenImport:
    """Import a model for any size.

    Args:
        path: ONNX file.
        shapes: of the inputs, some of whose sizes are ranges.
        config: settings.
        bench: what plans are made with.
        log: tells with which sizes the network is called; None for the usual ones.

    Raises:
        UsageError: if the shapes do not fit the model, or the log does not fit the shapes.
        UnsupportedModelError: if it cannot be imported, or does not compute alike for all sizes.
    """
    dims = OpenDims(call(bench.pool, declared_dims, {"path": path}, f"reading '{path}'"), shapes)
    counts = None if log is None else log.counts(dims.symbols)
    fits = Fit.of(dims.symbols), Fit.of_small(dims.symbols)
    sizes = [each.twin_sizes for each in fits]
    most = {each.name: each.most for each in dims.symbols}
    one, *others = (import_at(path, each, dims, config, bench) for each in (most, sizes[0]))
    # Each has files of its own, and small ranges have no other primes.
    others.append(others[0] if sizes[0] == sizes[1] else import_at(path, sizes[1], dims, config, bench))
    job = {"networks": [(each.graph, each.weights) for each in (one, *others)], "fits": fits}
    graph, unknown = call(bench.pool, opened_graph, job, "opening the model's sizes")
    if unknown:
        _LOG.warning(
            "%d of %d layers are others where sizes are small, as '%s': only the runs at several sizes check what they "
            "compute there",
            *(len(unknown), len(graph.layers), unknown[0]),
        )
    calls = usual_calls(graph, dims.symbols) if counts is None else logged_calls(counts, dims.symbols)
    ranges = " ".join(map(str, dims.symbols))
    sha256 = hashlib.sha256(f"{one.sha256} {ranges}".encode()).hexdigest()
    model = replace(one, graph=replace(graph, calls=calls), sha256=sha256)
    return OpenImport(model, tuple(zip(sizes, others, strict=True)), dims.symbols, dims)


def import_at(
    path: Path, sizes: Mapping[str, int], dims: OpenDims, config: CompileConfig, bench: Bench
) -> ImportedModel:
    """The model with these sizes, with files in a folder of its own."""
    folder = bench.directory / ("sizes" + "x".join(map(str, sizes.values())))
    folder.mkdir(exist_ok=True)
    importing = replace(config.importing, shapes=dims.shapes(sizes))
    return import_network(path, importing, bench.pool, bench.progress, folder, bench.time.end)


def opened_graph(
    networks: Sequence[Imported], fits: tuple[Fit, Fit]
) -> tuple[LayerGraph, tuple[str, ...]] | WorkerError:
    """Worker side: as ``open_graph`` of the first two networks, with what the third does not confirm."""
    one, other, small = networks
    try:
        graph = open_graph(one, other, fits[0])
        return graph, unconfirmed(graph, one, small, fits[1])
    except SartorError as error:
        return WorkerError(error)


def check_open(model: ImportedModel) -> None:
    """Make sure that a model of open sizes has nothing that needs known ones.

    Raises:
        UnsupportedModelError: if it quantises values, whose ranges are found on samples of one size.
    """
    if model.is_quantised:
        raise UnsupportedModelError(
            "a quantised model cannot be compiled for any size yet; give the sizes that occur, as --shape x=1|8,16"
        )
