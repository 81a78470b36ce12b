"""Measures the error of each layer of a module against ONNX Runtime, in the network and alone.

The module was built from a plan, and the same plan gives the same code again. Compiled with other outputs, it returns
results of layers (``sartor.comparison.intermediate_outputs``). To save memory, layers are compared in chunks with a
module each, and workers return only errors.
"""

from __future__ import annotations

import itertools
import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import networkx as nx

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import Layer
from sartor.codegen.ir.variants.candidates import Rejection
from sartor.comparison.bisection import Bisection, bisect
from sartor.comparison.intermediate_outputs import Probe, make_probe
from sartor.comparison.probe_job import probe_errors
from sartor.frontend.imported_model import ImportedModel
from sartor.frontend.layer_tensors import LayerTensors
from sartor.planning.recipe import Recipe
from sartor.policies import ModuleHeader
from sartor.profiling.builder import Builder
from sartor.profiling.layerwise.layer_verdict import LayerJudge
from sartor.profiling.layerwise.verdict import LayerVerdict
from sartor.progress import Progress, silent
from sartor.runtime.driver.signature import Array
from sartor.tuning.networks.net_files import NetFiles
from sartor.tuning.records.plan import LayerChoice
from sartor.tuning.workers.calls import call
from sartor.tuning.workers.pool import WorkerPool

CHUNK_BYTES = 256 << 20
_STEP = "comparing layers"


@dataclass(frozen=True)
class LayerError:
    """The errors of a layer against ONNX Runtime, relative to the largest magnitude of the reference values.

    Attributes:
        layer: its name, which is that of an ONNX node.
        nodes: names of the ONNX nodes that it computes.
        variant: descriptor of its variant.
        tensors: ONNX names of its results; empty if ONNX has no such tensors, so that nothing can be compared.
        error: largest error of its results in the network; None if nothing can be compared.
        before: largest error of its inputs; 0 for the network's inputs.
        alone: error of its results computed from reference values; None if ONNX lacks a tensor for an input.
        sensitivity: relative error of the network's outputs that its narrower type alone causes, if known.
        saved: predicted seconds that the narrower type saves.
    """

    layer: str
    nodes: tuple[str, ...]
    variant: str
    tensors: tuple[str, ...]
    error: float | None
    before: float
    alone: float | None
    sensitivity: float | None = None
    saved: float | None = None

    @property
    def growth(self) -> float | None:
        """Ratio of the error and that of the inputs; None if that of the inputs is 0 or unknown."""
        known = self.error is not None and math.isfinite(self.before) and self.before > 0
        return self.error / self.before if self.error is not None and known else None


@dataclass(frozen=True)
class FirstBeyond:
    """The first layer of a network whose error exceeds a bound.

    Attributes:
        search: the search that found it; its ``first`` is None if no measured layer's error exceeds the bound.
        layer: the layer with its errors, ``alone`` included; None likewise.
    """

    search: Bisection
    layer: LayerError | None


@dataclass(frozen=True)
class ProbeErrors:
    """Errors by layer name: of results in the network, and of results computed from reference values."""

    in_network: Mapping[str, float]
    alone: Mapping[str, float]


@dataclass(frozen=True)
class Workshop:
    """What compiling and running probes needs.

    Attributes:
        pool: workers.
        directory: for the probes' modules.
        header: of the probes' modules.
        device: on which probes run, as for ``Session``.
        threads: as for ``Session``.
        progress: told about every probe.
        chunk_bytes: limit on the size of a probe's outputs, which only a single layer may exceed.
    """

    pool: WorkerPool
    directory: Path
    header: ModuleHeader
    device: str
    threads: int | None
    progress: Progress = silent
    chunk_bytes: int = CHUNK_BYTES


@dataclass
class LayerComparison:
    """Compares layers of a plan with ONNX Runtime on one set of inputs.

    Attributes:
        imported: the model; ONNX Runtime runs its prepared form.
        recipe: the plan's layers and variants.
        tensors: ONNX names of the values of each layer.
        feeds: one array per input.
        workshop: for compiling and running probes.
        rejections: why routines do not support layers, by task.
    """

    imported: ImportedModel
    recipe: Recipe
    tensors: Mapping[str, LayerTensors]
    feeds: Mapping[str, Array]
    workshop: Workshop
    rejections: tuple[Rejection, ...] = ()
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @cached_property
    def read(self) -> dict[str, tuple[str, ...]]:
        """For each layer, in execution order, the nearest layers before it that can be compared."""
        return nearest_before(self.recipe.graph, self._is_comparable)

    @cached_property
    def graph(self) -> nx.DiGraph:
        """The layers that can be compared, in execution order, with an edge to each from those that it reads."""
        digraph = nx.DiGraph()
        for name, before in self.read.items():
            if self._is_comparable(name):
                digraph.add_node(name)
                digraph.add_edges_from((source, name) for source in before)
        return digraph

    def table(self) -> list[LayerError]:
        """The errors of all layers, in execution order.

        Raises:
            CompileError: if a probe does not compile or run.
        """
        errors = self._measure(list(self.graph), alone=True)
        return [self._row(layer, errors) for layer in self.recipe.graph.layers]

    def verdict(self, module: Path) -> LayerVerdict:
        """Whether each layer of a module, which the recipe is of, is what the user's nodes define (``LayerJudge``)."""
        shop = self.workshop
        threads = shop.threads or self.recipe.plan.threads
        judge = LayerJudge(self.imported, shop.pool, shop.directory, shop.header, shop.device, threads, shop.progress)
        return judge.verdict(self.recipe, NetFiles(module.absolute(), None), [self.feeds])

    def bisect(self, bound: float) -> FirstBeyond:
        """The first layer whose error exceeds a bound.

        Raises:
            CompileError: if a probe does not compile or run.
        """
        search = bisect(self.graph, lambda names: self._measure(names).in_network, bound)
        if search.first is None:
            return FirstBeyond(search, None)
        layer = next(layer for layer in self.recipe.graph.layers if layer.name == search.first)
        alone = self._probe([], self._detachable([layer.name])).alone
        return FirstBeyond(search, self._row(layer, ProbeErrors(search.errors, alone)))

    def _is_comparable(self, name: str) -> bool:
        return any(result is not None for result in self.tensors[name].results)

    def _row(self, layer: Layer, errors: ProbeErrors) -> LayerError:
        return LayerError(
            layer=layer.name,
            nodes=layer.nodes,
            variant=self.recipe.variants[layer.name].descriptor,
            tensors=tuple(filter(None, self.tensors[layer.name].results)),
            error=errors.in_network.get(layer.name),
            before=max((errors.in_network[name] for name in self.read[layer.name]), default=0.0),
            alone=errors.alone.get(layer.name),
            sensitivity=self._planned[layer.name].error,
            saved=self._planned[layer.name].saved,
        )

    @cached_property
    def _planned(self) -> dict[str, LayerChoice]:
        return {layer.layer: layer for layer in self.recipe.plan.layers}

    def _measure(self, names: Sequence[str], *, alone: bool = False) -> ProbeErrors:
        """Measure the errors of layers, one chunk after another."""
        in_network: dict[str, float] = {}
        detached: dict[str, float] = {}
        chunks = self._chunks(names, alone)
        for done, chunk in enumerate(chunks):
            self.workshop.progress(_STEP, done, len(chunks))
            errors = self._probe(chunk, self._detachable(chunk) if alone else [])
            in_network.update(errors.in_network)
            detached.update(errors.alone)
        return ProbeErrors(in_network, detached)

    def _chunks(self, names: Sequence[str], alone: bool) -> list[list[str]]:
        """Split the names into chunks, in order, by the limit on memory."""
        layers = {layer.name: layer for layer in self.recipe.graph.layers}
        chunks: list[list[str]] = []
        left = 0
        for name in names:
            task = layers[name].task
            given = sum(tensor.bytes for tensor in task.inputs)
            needed = sum(result.bytes for result in task.results) * (1 + alone) + given * alone
            if needed > left or not chunks:
                chunks.append([])
                left = self.workshop.chunk_bytes
            chunks[-1].append(name)
            left -= needed
        return chunks

    def _detachable(self, names: Sequence[str]) -> list[str]:
        """Layers for all of whose inputs ONNX has tensors."""
        return [name for name in names if None not in self.tensors[name].inputs]

    def _probe(self, in_network: Sequence[str], alone: Sequence[str]) -> ProbeErrors:
        """Compile and run one probe."""
        if not in_network and not alone:
            return ProbeErrors({}, {})
        probe = make_probe(self.recipe.graph, self.recipe.variants, self.tensors, in_network, alone)
        directory = self.workshop.directory / f"probe{next(self._numbers)}"
        directory.mkdir()
        try:
            errors = self._run(probe, directory)
        finally:
            shutil.rmtree(directory)
        return ProbeErrors(
            {layer: max(errors[name] for name in names) for layer, names in probe.in_network.items()},
            {layer: max(errors[name] for name in names) for layer, names in probe.alone.items()},
        )

    def _run(self, probe: Probe, directory: Path) -> dict[str, float]:
        shop, known = self.workshop, self.imported.ranges
        ranges = {own: known[ref] for own, ref in probe.stands_for.items() if ref in known}
        imported = replace(self.imported, graph=probe.graph, ranges={**known, **ranges})
        recipe = replace(self.recipe, graph=probe.graph, variants=probe.variants)
        (built,) = Builder(imported, shop.pool, directory, shop.header, silent).build([recipe])
        job = {
            "files": built.files,
            "prepared": self.imported.prepared,
            "feeds": self.feeds,
            "fed": probe.fed,
            "expected": probe.expected,
            "device": shop.device,
            "threads": shop.threads,
        }
        return call(shop.pool, probe_errors, job, _STEP)


def nearest_before(graph: LayerGraph, comparable: Callable[[str], bool]) -> dict[str, tuple[str, ...]]:
    """For each layer, in execution order, the comparable layers that it depends on without another one in between."""
    nearest: dict[str, tuple[str, ...]] = {}
    for layer in graph.layers:
        sources = [ref.source for ref in layer.inputs if ref.source is not None]
        reaching = [name for source in sources for name in ((source,) if comparable(source) else nearest[source])]
        nearest[layer.name] = tuple(dict.fromkeys(reaching))
    return nearest
