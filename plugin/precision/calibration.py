"""Calibration: samples, and the 8-bit ranges of a network's values on them, which layers in lower precision need."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
from onnx import ModelProto, helper

from sartor.codegen.digest import digest
from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import ValueRef
from sartor.frontend.imported_model import ImportedModel
from sartor.frontend.layer_tensors import LayerTensors, layer_tensors
from sartor.onnx_model.graphs.graph import GraphEditor
from sartor.onnx_model.graphs.prepared import prepared_model
from sartor.policies import CalibrationPolicy, Precision
from sartor.precision.fake_quantisation import I8
from sartor.precision.observe_job import Observed, observe
from sartor.precision.sensitivity_cache import SensitivityCache
from sartor.progress import Progress, silent
from sartor.samples.checked_samples import checked_samples
from sartor.samples.given_samples import SampleSource
from sartor.samples.sample_sets import MOST_VERIFIED, SampleSet
from sartor.tuning.calibration.methods import OBSERVERS, Observer
from sartor.tuning.calibration.quantised_range import QuantisedRange
from sartor.tuning.calibration.ranges import Ranges
from sartor.tuning.workers.calls import as_file, call_until_done
from sartor.tuning.workers.pool import WorkerPool
from sartor.tuning.workers.shared_arrays import StoredArrays

_LOG = logging.getLogger(__name__)

CHUNK_BYTES = 256 << 20
"""Limit on the values of tensors that are observed in one run."""

_STEP = "calibrating"
# Products of the steps of smaller values and of weights may be subnormal numbers, which IREE takes for zero.
_LEAST_EXTENT = 1e-10
_OBSERVABLE = ("float16", "float32", "float64")


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
        rounded: what weights of products are rounded to in blocks, by ``rounded_name`` of ONNX's constant; None if to
            nearest.
        compensated: as for ``ImportedModel``.
        covered: identifies ranges that hold what values are with other sizes, too; empty for those on its own samples.
    """

    samples: SampleSet
    dtypes: tuple[str, ...] = ()
    tensors: Mapping[str, LayerTensors] = field(default_factory=dict)
    tensor_ranges: Mapping[str, QuantisedRange] = field(default_factory=dict)
    ranges: Ranges = field(default_factory=Ranges)
    method: str = ""
    rounded: StoredArrays | None = None
    compensated: str = ""
    covered: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        """What errors of rounding depend on, beside the model."""
        return (self.samples.digest, self.method, *(known for known in (self.compensated, self.covered) if known))

    def covering(self, others: Sequence[Calibration]) -> Calibration:
        """The same with ranges that hold what values are with other sizes of a model for any, too: it has one range for
        all calls."""
        if not self.ranges.values or not others:
            return self
        values, tensors = {**self.ranges.values}, {**self.tensor_ranges}
        for other in others:
            values = {value: one.covering(other.ranges.of(value)) for value, one in values.items()}
            tensors = {name: one.covering(other.tensor_ranges.get(name)) for name, one in tensors.items()}
        covered = digest(*(f"{name} {one}" for name, one in sorted(tensors.items())))
        return replace(self, ranges=Ranges(values), tensor_ranges=tensors, covered=covered)

    def permitting(self, errors: Iterable[float]) -> Calibration:
        """The same where the rounding that the model permits has further errors, with other sizes."""
        permitted = max(self.samples.permitted_error, *errors, 0.0)
        return replace(self, samples=replace(self.samples, permitted_error=permitted))


def calibrate(
    imported: ImportedModel,
    policy: CalibrationPolicy,
    pool: WorkerPool,
    progress: Progress = silent,
    dtypes: Sequence[str] | None = None,
) -> Calibration:
    """Read the samples, and find ranges on them if 8 bits are allowed; ``dtypes`` replaces the policy's types.

    Raises:
        UsageError: if the samples do not fit the model, or cannot be read.
        CompileError: if the worker dies.
    """
    samples = checked_samples(imported, policy.samples, pool, narrow=policy.precision is not Precision.F32)
    if len(samples) > MOST_VERIFIED:
        _LOG.warning("errors are measured on the first %d of %d samples", MOST_VERIFIED, len(samples))
    wanted = policy.dtypes if dtypes is None else dtypes
    if not wanted:
        return Calibration(samples)
    finds_ranges = I8 in wanted and (dtypes is not None or policy.precision.quantises_values)
    if finds_ranges and policy.samples is None:
        _LOG.warning(
            "ranges for 8 bits are those of %d samples of random values, others are clipped; "
            "give samples of what the network will see with --calibration",
            len(samples),
        )
    tensors = layer_tensors(prepared_model(imported.prepared), imported.graph)
    tensor_ranges = _tensor_ranges(imported, policy, samples, tensors, pool, progress) if finds_ranges else {}
    method = policy.method.value if finds_ranges else ""
    ranges = graph_ranges(imported.graph, tensors, tensor_ranges)
    return Calibration(samples, tuple(wanted), tensors, tensor_ranges, ranges, method)


def _tensor_ranges(
    imported: ImportedModel,
    policy: CalibrationPolicy,
    samples: SampleSet,
    tensors: Mapping[str, LayerTensors],
    pool: WorkerPool,
    progress: Progress,
) -> dict[str, QuantisedRange]:
    """8-bit ranges of all tensors that layers read or write, by ONNX name."""
    cache = SensitivityCache.beside(policy.database)
    key = ("ranges", imported.sha256, samples.digest, policy.method.value)
    known = {name: numbers for name, numbers in cache.get(*key).items() if _is_range(numbers)}
    names = {name for tensor in tensors.values() for name in (*tensor.inputs, *tensor.results) if name is not None}
    if missing := names - known.keys():
        observer, threads = OBSERVERS[policy.method], policy.threads
        seen = observed(imported.prepared, missing, samples.source, pool, observer, threads=threads, progress=progress)
        # A tensor of integers has no range; an empty entry in the cache records that.
        known |= {name: seen[name].range() if name in seen else () for name in missing}
        cache.put(known, *key)
    limits = {name: (known[name][0], known[name][1]) for name in sorted(names) if known[name]}
    return {
        name: QuantisedRange.of(low, high) for name, (low, high) in limits.items() if not 0 < high - low < _LEAST_EXTENT
    }


def _is_range(numbers: tuple[float, ...]) -> bool:
    """Whether numbers of the cache are a range, or the note that a tensor has none."""
    return not numbers or (len(numbers) == 2 and all(map(math.isfinite, numbers)) and numbers[0] <= numbers[1])


def graph_ranges(
    graph: LayerGraph, tensors: Mapping[str, LayerTensors], tensor_ranges: Mapping[str, QuantisedRange]
) -> Ranges:
    """8-bit ranges by value of the graph, from ranges by ONNX tensor."""
    names: dict[ValueRef, str | None] = {ValueRef(None, index): value.name for index, value in enumerate(graph.inputs)}
    fused = ((fusion.layer.name, fusion.members[-1]) for fusion in graph.fusions)
    for name, last in (*((layer.name, layer.name) for layer in graph.layers), *fused):
        names |= {ValueRef(name, index): tensor for index, tensor in enumerate(tensors[last].results)}
    return Ranges(
        {ref: tensor_ranges[name] for ref, name in names.items() if name is not None and name in tensor_ranges}
    )


def observed(
    prepared: bytes | Path,
    tensors: Iterable[str],
    samples: SampleSource,
    pool: WorkerPool,
    observer: Callable[[], Observer],
    *,
    threads: int | None = None,
    step: str = _STEP,
    progress: Progress = silent,
    chunk_bytes: int = CHUNK_BYTES,
) -> dict[str, Observer]:
    """Observers of tensors inside a model that have taken their values on all samples, by tensor.

    Args:
        prepared: the prepared model, or the file that holds it.
        tensors: names in the model; tensors of other than floating-point types are left out.
        samples: inputs, with one array per input of the model.
        pool: where ONNX Runtime runs: the model is not trusted.
        observer: makes an observer for each tensor.
        threads: as for ``ReferenceModel``.
        step: names what this is done for to ``progress``.
        progress: told how many samples have been run.
        chunk_bytes: limit on the values of tensors that are observed in one run.

    Raises:
        UsageError: if the samples cannot be read, or the model fails on them.
        CompileError: if the worker dies.
    """
    observers: dict[str, Observer] = {}
    with as_file(prepared) as path:
        chunks = _chunks(prepared_model(path), tensors, chunk_bytes)
        total = len(chunks) * len(samples)
        for number, chunk in enumerate(chunks):
            job = {"prepared": path, "samples": samples, "threads": threads}
            seen = Observed({name: observer() for name in chunk}, 0)
            tell = partial(_tell, progress, number * len(samples), total)
            observers |= call_until_done(pool, observe, job, seen, len(samples), step, progress=tell).observers
        progress(step, total, total)
    return observers


def _tell(progress: Progress, before: int, total: int, step: str, done: int, _: int) -> None:
    """Report the progress of all chunks together: one has ``done`` samples, ``before`` were done by earlier chunks."""
    progress(step, before + done, total)


def _chunks(model: ModelProto, tensors: Iterable[str], limit: int) -> list[list[str]]:
    """The tensors that can be observed, in the model's order, in groups that fit into ``limit`` bytes.

    Neighbours in that order share a group, so that nodes after the last tensor of a group need not be computed.
    """
    wanted, editor = set(tensors), GraphEditor(model.graph)
    computed = [name for node in model.graph.node for name in node.output]
    chunks: list[list[str]] = []
    left = 0
    for name in [*(value.name for value in model.graph.input), *computed]:
        if name not in wanted or _dtype(editor, name).name not in _OBSERVABLE:
            continue
        shape = editor.shape(name)
        size = limit if shape is None else _dtype(editor, name).itemsize * math.prod(shape)
        if size > left or not chunks:
            chunks.append([])
            left = limit
        chunks[-1].append(name)
        left -= size
    return chunks


def _dtype(editor: GraphEditor, name: str) -> np.dtype[np.generic]:
    element = editor.element_type(name)
    return np.dtype(helper.tensor_dtype_to_np_dtype(element)) if element else np.dtype(bool)
