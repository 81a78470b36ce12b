"""Calibration: the samples, and the 8-bit ranges found on them, that lower precision needs."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import ValueRef
from sartor.codegen.routines import LOW_PRECISION
from sartor.config import CompileConfig
from sartor.frontend.imported_model import ImportedModel
from sartor.frontend.layer_tensors import LayerTensors, layer_tensors
from sartor.onnx_model.graphs.prepared import prepared_model
from sartor.precision.fake_quantisation import I8
from sartor.precision.observed_ranges import observed_ranges
from sartor.precision.sensitivity_cache import SensitivityCache
from sartor.progress import Progress, silent
from sartor.samples.sample_sets import MOST_VERIFIED, SampleSet, sample_set
from sartor.samples.samples_job import tie_spread_on, unchecked_outputs
from sartor.tuning.calibration.methods import OBSERVERS
from sartor.tuning.calibration.quantised_range import QuantisedRange
from sartor.tuning.calibration.ranges import Ranges
from sartor.tuning.workers.calls import call
from sartor.tuning.workers.pool import WorkerPool

_LOG = logging.getLogger(__name__)
_STEP = "running the model on samples"
# A bound above this relative error may hide a defect, so the user is warned.
_MUCH_BY_TIES = 0.1


@dataclass(frozen=True)
class Calibration:
    """Samples of a network's inputs, and ranges of its values on them.

    Attributes:
        samples: inputs on which errors are measured.
        dtypes: narrower element types that layers may compute in.
        tensors: ONNX names of each layer's values, by the layer's name; empty if there are no narrower types.
        tensor_ranges: 8-bit ranges by ONNX tensor; empty if 8 bits are not allowed.
        ranges: 8-bit ranges by the graph's values.
        method: name of the calibration method; empty if 8 bits are not allowed.
    """

    samples: SampleSet
    dtypes: tuple[str, ...] = ()
    tensors: Mapping[str, LayerTensors] = field(default_factory=dict)
    tensor_ranges: Mapping[str, QuantisedRange] = field(default_factory=dict)
    ranges: Ranges = field(default_factory=Ranges)
    method: str = ""


def calibrate(
    imported: ImportedModel,
    config: CompileConfig,
    pool: WorkerPool,
    progress: Progress = silent,
    dtypes: Sequence[str] | None = None,
) -> Calibration:
    """Read the samples, and find ranges on them if 8 bits are allowed; ``dtypes`` replaces the config's types.

    Raises:
        UsageError: if the samples do not fit the model, or cannot be read.
        CompileError: if the worker dies.
    """
    samples = checked_samples(imported, config, pool)
    if len(samples) > MOST_VERIFIED:
        _LOG.warning("errors are measured on the first %d of %d samples", MOST_VERIFIED, len(samples))
    wanted = tuple(each for each in config.precision.types if each in LOW_PRECISION) if dtypes is None else dtypes
    if not wanted:
        return Calibration(samples)
    if I8 in wanted and config.calibration is None:
        _LOG.warning(
            "ranges for 8 bits are those of %d samples of random values, others are clipped; "
            "give samples of what the network will see with --calibration",
            len(samples),
        )
    tensors = layer_tensors(prepared_model(imported.prepared), imported.graph)
    tensor_ranges = _tensor_ranges(imported, config, samples, tensors, pool, progress) if I8 in wanted else {}
    method = config.calibration_method.value if I8 in wanted else ""
    ranges = graph_ranges(imported.graph, tensors, tensor_ranges)
    return Calibration(samples, tuple(wanted), tensors, tensor_ranges, ranges, method)


def checked_samples(imported: ImportedModel, config: CompileConfig, pool: WorkerPool) -> SampleSet:
    """The samples, with the outputs that cannot be checked on them, of which the user is warned.

    Raises:
        UsageError: if the samples do not fit the model, or cannot be read.
        CompileError: if the worker dies.
    """
    samples = sample_set(imported, config.calibration, config.precision)
    if config.calibration is not None:
        job = {"prepared": imported.prepared, "source": samples.source}
        samples = replace(samples, unchecked=call(pool, unchecked_outputs, job, _STEP))
        if imported.is_rounding:
            samples = replace(samples, tie_spread=call(pool, tie_spread_on, {"path": imported.path, **job}, _STEP))
    if samples.tie_spread > _MUCH_BY_TIES:
        _LOG.warning(
            "the model rounds to integers so often that a number next to a tie moves an output by up to %.0f%%: "
            "errors up to that cannot be told from it",
            100 * samples.tie_spread,
        )
    for name in samples.unchecked:
        _LOG.warning(
            "output '%s' is not checked: on all samples it is constant, saturated or no number; "
            "give samples of what the network will see with --calibration",
            name,
        )
    return samples


def _tensor_ranges(
    imported: ImportedModel,
    config: CompileConfig,
    samples: SampleSet,
    tensors: Mapping[str, LayerTensors],
    pool: WorkerPool,
    progress: Progress,
) -> dict[str, QuantisedRange]:
    """8-bit ranges of all tensors that layers read or write, by ONNX name."""
    cache = SensitivityCache.beside(config.database)
    key = ("ranges", imported.sha256, samples.digest, config.calibration_method.value)
    known = cache.get(*key)
    names = {name for each in tensors.values() for name in (*each.inputs, *each.results) if name is not None}
    if missing := names - known.keys():
        observer, threads = OBSERVERS[config.calibration_method], config.threads
        found = observed_ranges(
            imported.prepared, missing, samples.source, pool, observer, threads=threads, progress=progress
        )
        # A tensor of integers has no range; an empty entry in the cache records that.
        known |= {name: found.get(name, ()) for name in missing}
        cache.put(known, *key)
    return {name: QuantisedRange.of(known[name][0], known[name][1]) for name in sorted(names) if known[name]}


def graph_ranges(
    graph: LayerGraph, tensors: Mapping[str, LayerTensors], tensor_ranges: Mapping[str, QuantisedRange]
) -> Ranges:
    """8-bit ranges by value of the graph, from ranges by ONNX tensor."""
    names: dict[ValueRef, str | None] = {ValueRef(None, index): each.name for index, each in enumerate(graph.inputs)}
    fused = ((each.layer.name, each.members[-1]) for each in graph.fusions)
    for name, last in (*((layer.name, layer.name) for layer in graph.layers), *fused):
        names |= {ValueRef(name, index): tensor for index, tensor in enumerate(tensors[last].results)}
    return Ranges(
        {ref: tensor_ranges[name] for ref, name in names.items() if name is not None and name in tensor_ranges}
    )
