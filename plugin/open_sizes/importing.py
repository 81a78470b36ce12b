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
from sartor.dialect_passes.dump import folder_of_sizes
from sartor.dialect_passes.opening.channels_last import channels_last
from sartor.dialect_passes.opening.open_graph import open_graph, unconfirmed
from sartor.errors import SartorError, UnsupportedModelError
from sartor.frontend.imported_model import ImportedModel
from sartor.frontend.loading import import_networks
from sartor.open_sizes.calls import CallLog, logged_calls, usual_calls
from sartor.open_sizes.computed_lengths import LengthModel
from sartor.open_sizes.rounded_windows import RoundedFile, rounded_file
from sartor.open_sizes.same_pads import check_multiples, needed_multiples
from sartor.open_sizes.size_branches import numbers_told
from sartor.open_sizes.symbols import OpenDims, declared_dims
from sartor.profiling.compilation.bench import Bench
from sartor.settings.size_range import OpenShapes, SizeRange
from sartor.tuning.workers.calls import call
from sartor.tuning.workers.protocol import WorkerError
from sartor.tuning.workers.shared_arrays import StoredArrays

_LOG = logging.getLogger(__name__)
Imported = tuple[LayerGraph, Mapping[str, np.ndarray]]
Sizes = Mapping[str, int]


@dataclass(frozen=True)
class OpenImport:
    """A model for any size.

    Attributes:
        model: the model; its samples and its prepared file have the largest sizes.
        others: the model with the sizes of the other imports, which the first come with.
        symbols: the sizes that callers choose.
        dims: the dimensions of the inputs.
        length: the user's model, of one that computes a length itself; None if it computes none.
        apart: numbers by which the model may tell some sizes from others.
    """

    model: ImportedModel
    others: tuple[tuple[dict[str, int], ImportedModel], ...]
    symbols: tuple[Symbol, ...]
    dims: OpenDims
    length: LengthModel | None = None
    apart: tuple[int, ...] = ()

    def at(self, sizes: Sizes) -> ImportedModel | None:
        """The model with these sizes, if it was imported with them beside the largest ones."""
        return next((model for known, model in self.others if known == sizes), None)


def import_open(
    path: Path,
    shapes: OpenShapes,
    config: CompileConfig,
    bench: Bench,
    log: CallLog | None = None,
    ranges: Mapping[str, SizeRange] | None = None,
) -> OpenImport:
    """Import a model for any size.

    Args:
        path: ONNX file.
        shapes: of the inputs, some of whose sizes are ranges.
        config: settings.
        bench: what plans are made with.
        log: tells with which sizes the network is called; None for the usual ones.
        ranges: of symbols that no shape has.

    Raises:
        UsageError: if the shapes do not fit the model, or the log does not fit the shapes.
        UnsupportedModelError: if it cannot be imported, or does not compute alike for all sizes.
    """
    dims = OpenDims(call(bench.pool, declared_dims, {"path": path}, f"reading '{path}'"), shapes, ranges)
    counts = None if log is None else log.counts(dims.symbols)
    rounded = RoundedFile(None)
    if sides := dims.sides:
        folder = bench.directory / "rounded"
        rounded = call(bench.pool, rounded_file, {"path": path, "folder": folder}, f"reading '{path}'")
        path = rounded.path or path
        job = {"path": path, "inputs": frozenset(sides)}
        check_multiples(call(bench.pool, needed_multiples, job, f"reading '{path}'"), sides)
    fits = Fit.of(dims.symbols), Fit.of_small(dims.symbols)
    twins = [fit.twin_sizes for fit in fits]
    most = {symbol.name: symbol.most for symbol in dims.symbols}
    # Each has files of its own, and small ranges have no other primes.
    sizes = [most, *twins] if twins[0] != twins[1] else [most, twins[0]]
    one, *others = _alike(path, sizes, dims, config, bench)
    others = [others[0], others[-1]]
    networks = [(other.graph, other.weights) for other in (one, *others)]
    job = {"networks": networks, "fits": fits, "path": bench.directory / "opened.bin"}
    try:
        graph, weights, unknown = call(bench.pool, opened_graph, job, "opening the model's sizes")
    except UnsupportedModelError as error:
        distant = Fit.of_distant(dims.symbols)
        if distant == fits[0]:
            raise
        # Parts of sizes that are near each other may be equal, and then seem to be constant.
        twins[0] = distant.twin_sizes
        (others[0],) = import_sizes(path, twins[:1], dims, config, bench, simplifies=one.is_simplified)
        networks[1] = (others[0].graph, others[0].weights)
        job = {**job, "networks": networks, "fits": (distant, fits[1])}
        try:
            graph, weights, unknown = call(bench.pool, opened_graph, job, "opening the model's sizes")
        except UnsupportedModelError:
            raise error from None
    if unknown:
        _LOG.warning(
            "%d of %d layers are others where sizes are small, as '%s': only the runs at several sizes check what they "
            "compute there",
            *(len(unknown), len(graph.layers), unknown[0]),
        )
    calls = usual_calls(graph, dims.symbols) if counts is None else logged_calls(counts, dims.symbols)
    opened = " ".join(map(str, dims.symbols))
    sha256 = hashlib.sha256(f"{one.sha256} {opened}".encode()).hexdigest()
    external = (*one.external, *rounded.external)
    model = replace(one, graph=replace(graph, calls=calls), weights=weights, sha256=sha256, external=external)
    model, *others = (replace(sized, open_inputs=graph.inputs) for sized in (model, *others))
    apart = call(bench.pool, numbers_told, {"path": path}, f"reading '{path}'")
    return OpenImport(model, tuple(zip(twins, others, strict=True)), dims.symbols, dims, apart=apart)


def _alike(
    path: Path, sizes: Sequence[Sizes], dims: OpenDims, config: CompileConfig, bench: Bench
) -> list[ImportedModel]:
    """The model with each of these sizes: all simplified, or none, as layers are compared with each other."""
    networks = import_sizes(path, sizes, dims, config, bench)
    if all(model.is_simplified for model in networks) or not any(model.is_simplified for model in networks):
        return networks
    _LOG.warning("with some sizes the model was not simplified: it is imported again, with no size simplified")
    return import_sizes(path, sizes, dims, config, bench, simplifies=False)


def import_sizes(
    path: Path,
    sizes: Sequence[Sizes],
    dims: OpenDims,
    config: CompileConfig,
    bench: Bench,
    *,
    simplifies: bool = True,
    has_layers: bool = True,
) -> list[ImportedModel]:
    """The model with each of these sizes, with files in a folder of its own, and layers unless they are not needed."""
    settings = []
    for size in sizes:
        folder = bench.directory / ("sizes" + "x".join(map(str, size.values())))
        folder.mkdir(exist_ok=True)
        dumped = folder_of_sizes(config.dump_directory, size.values())
        policy = replace(config.importing, shapes=dims.shapes(size), dump_directory=dumped, is_open=True)
        policy = replace(policy, simplifies=simplifies, has_layers=has_layers)
        settings.append((policy, folder))
    networks = import_networks(path, settings, bench.pool, bench.progress, bench.time.end) if settings else []
    bench.imported.extend(networks)
    return networks


def opened_graph(
    networks: Sequence[Imported], fits: tuple[Fit, Fit], path: Path
) -> tuple[LayerGraph, StoredArrays, tuple[str, ...]] | WorkerError:
    """Worker side: as ``open_graph`` of the first two networks, with its weights and with what the third does not
    confirm; weights in another layout are written to ``path``."""
    try:
        one, other, small = map(channels_last, networks)
        graph = open_graph(one, other, fits[0])
        unknown = unconfirmed(graph, one, small, fits[1])
    except SartorError as error:
        return WorkerError(error)
    weights = one[1] if isinstance(one[1], StoredArrays) else StoredArrays.write(path, one[1])
    return graph, weights, unknown
