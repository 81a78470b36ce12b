"""Imports a model for any size: twice, for the largest sizes and for others, and joins what both have in common."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.sizes.dims import Symbol
from sartor.codegen.ir.sizes.fit import Fit
from sartor.config import CompileConfig
from sartor.dialect_passes.opening.open_graph import open_graph
from sartor.errors import SartorError, UnsupportedModelError
from sartor.frontend.imported_model import ImportedModel
from sartor.frontend.loading import import_network
from sartor.open_sizes.symbols import OpenDims, declared_dims
from sartor.profiling.compilation.tuned_network import Bench
from sartor.settings.size_range import OpenShapes
from sartor.tuning.workers.calls import call
from sartor.tuning.workers.protocol import WorkerError

Imported = tuple[LayerGraph, Mapping[str, np.ndarray]]


@dataclass(frozen=True)
class OpenImport:
    """A model for any size.

    Attributes:
        model: the model; its samples and its prepared file have the largest sizes.
        twin: the model with the sizes of ``twin_sizes``.
        twin_sizes: size of each symbol, by name.
        symbols: the sizes that callers choose.
        dims: the dimensions of the inputs.
    """

    model: ImportedModel
    twin: ImportedModel
    twin_sizes: Mapping[str, int]
    symbols: tuple[Symbol, ...]
    dims: OpenDims


def import_open(path: Path, shapes: OpenShapes, config: CompileConfig, bench: Bench) -> OpenImport:
    """Import a model for any size.

    Args:
        path: ONNX file.
        shapes: of the inputs, some of whose sizes are ranges.
        config: settings.
        bench: what plans are made with.

    Raises:
        UsageError: if the shapes do not fit the model.
        UnsupportedModelError: if it cannot be imported, or does not compute alike for all sizes.
    """
    dims = OpenDims(call(bench.pool, declared_dims, {"path": path}, f"reading '{path}'"), shapes)
    fit = Fit.of(dims.symbols)
    most = {each.name: each.most for each in dims.symbols}
    one, other = (import_at(path, sizes, dims, config, bench) for sizes in (most, fit.twin_sizes))
    job = {"one": (one.graph, one.weights), "other": (other.graph, other.weights), "fit": fit}
    graph = call(bench.pool, opened_graph, job, "opening the model's sizes")
    ranges = " ".join(map(str, dims.symbols))
    sha256 = hashlib.sha256(f"{one.sha256} {ranges}".encode()).hexdigest()
    return OpenImport(replace(one, graph=graph, sha256=sha256), other, fit.twin_sizes, dims.symbols, dims)


def import_at(
    path: Path, sizes: Mapping[str, int], dims: OpenDims, config: CompileConfig, bench: Bench
) -> ImportedModel:
    """The model with these sizes, with files in a folder of its own."""
    folder = bench.directory / ("sizes" + "x".join(map(str, sizes.values())))
    folder.mkdir(exist_ok=True)
    importing = replace(config.importing, shapes=dims.shapes(sizes))
    return import_network(path, importing, bench.pool, bench.progress, folder, bench.time.end)


def opened_graph(one: Imported, other: Imported, fit: Fit) -> LayerGraph | WorkerError:
    """Worker side: as ``open_graph``."""
    try:
        return open_graph(one, other, fit)
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
