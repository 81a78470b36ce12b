"""Compensates the weights of a model's products, a few at a time, on the samples of a calibration.

Every product's errors are compensated for what it reads in the exact model, as selection decides layer by layer which
of them are rounded at all.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto

from sartor.codegen.digest import digest
from sartor.codegen.ir.block_packing import BITS, FOUR_BITS, block_of, rounded_name
from sartor.codegen.ir.encoding import BlockEncoding
from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.source_digest import source_digest
from sartor.errors import UsageError
from sartor.frontend.imported_model import ImportedModel
from sartor.onnx_model.graphs.graph import Array, GraphEditor
from sartor.onnx_model.graphs.prepared import prepared_model
from sartor.onnx_model.quantisation.equalised_products import weight_rows
from sartor.policies import CalibrationPolicy
from sartor.precision.calibration import Calibration, observed
from sartor.precision.compensation.compensated_rounding import compensated
from sartor.precision.compensation.second_moments import SecondMoments
from sartor.precision.fake_quantisation import multiplies_rows
from sartor.progress import Progress, silent
from sartor.samples.given_samples import SampleSource
from sartor.samples.sample_sets import SampleSet
from sartor.tuning.records.plan import Plan
from sartor.tuning.workers.pool import WorkerPool
from sartor.tuning.workers.shared_arrays import StoredArrays

_LOG = logging.getLogger(__name__)
_STEP = "compensating weights"
MOMENT_BYTES = 256 << 20
"""Limit on the second moments that are held at once, unless one is larger."""
_HELD_OUT = 16
_NUMBER = 8


@dataclass(frozen=True)
class _Later:
    """The samples from ``start`` on."""

    source: SampleSource
    start: int

    def __len__(self) -> int:
        return len(self.source) - self.start

    def since(self, start: int) -> Iterator[Mapping[str, Array]]:
        """Yield the samples from index ``start`` of these on."""
        return self.source.since(self.start + start)


@dataclass(frozen=True)
class _Weight:
    """A constant matrix, and the products that read it.

    Attributes:
        name: of the constant.
        array: its numbers.
        nodes: the products, which all read it in one orientation.
    """

    name: str
    array: Array
    nodes: tuple[NodeProto, ...]

    @property
    def rows(self) -> Array:
        """As ``[depth, columns]``."""
        return weight_rows(self.nodes[0], self.array)

    @property
    def work(self) -> float:
        """Multiplications that compensating it takes, but for a factor."""
        depth, columns = self.rows.shape
        return float(depth**2 * (depth + columns))

    @property
    def tensors(self) -> tuple[str, ...]:
        """What is multiplied by it."""
        return tuple(dict.fromkeys(node.input[0] for node in self.nodes))

    def like(self, rows: Array) -> Array:
        """A matrix ``[depth, columns]`` in the orientation of the constant."""
        return weight_rows(self.nodes[0], rows)


def compensated_model(
    imported: ImportedModel,
    samples: SampleSet,
    policy: CalibrationPolicy,
    pool: WorkerPool,
    progress: Progress = silent,
    end: float = math.inf,
) -> tuple[ImportedModel, StoredArrays | None]:
    """The model with what rounding with compensation makes of its weights, and the same by names of ONNX's constants.

    Where the user gives no samples, or allows no weights in blocks, nothing is changed, and there is None.

    Args:
        imported: the model, whose weights are in a file.
        samples: where there are more than twice as many as errors of rounding are simulated on, these are left out.
        policy: the blocks that are allowed.
        pool: where ONNX Runtime runs.
        progress: told how many samples have been run.
        end: when it has to be done, by ``time.monotonic()``.

    Raises:
        OutOfTimeError: if it will not be.
        UsageError: if the samples cannot be read, or the model fails on them.
        CompileError: if the worker dies.
    """
    stored = imported.weights
    if policy.samples is None or not any(map(block_of, policy.dtypes)) or not isinstance(stored, StoredArrays):
        return imported, None
    source = samples.source
    used = _Later(source, _HELD_OUT) if len(source) > 2 * _HELD_OUT else source
    weights = _weights(prepared_model(imported.prepared), min(policy.blocks))
    replaced = _compensated(imported, weights, policy, used, pool, progress, end)
    arrays = StoredArrays.write(stored.path.with_name("compensated.bin"), replaced)
    names = _names(imported.graph, weights)
    aliases = dict(pair for weight in weights for pair in _aliases(weight, stored.only(names[weight.name]), arrays))
    _LOG.info("%d weights are rounded to 4 bits with compensation on %d samples", len(weights), len(used))
    joined = stored.joined(arrays.renamed(aliases))
    return replace(imported, weights=joined, compensated=samples.digest if aliases else ""), arrays


def with_compensation(
    imported: ImportedModel,
    calibration: Calibration,
    policy: CalibrationPolicy,
    pool: WorkerPool,
    progress: Progress = silent,
    end: float = math.inf,
) -> tuple[ImportedModel, Calibration]:
    """As ``compensated_model``, with what errors of rounding are simulated by.

    Where it would not be done in time, no weight is compensated: a plan is replayed with all weights or none.
    """
    try:
        model, rounded = compensated_model(imported, calibration.samples, policy, pool, progress, end)
    except OutOfTimeError:
        _LOG.warning(
            "errors of weights in 4 bits are not compensated: the time budget leaves too little; "
            "give more by --time-budget"
        )
        return imported, calibration
    return model, replace(calibration, rounded=rounded, compensated=identity(model.compensated))


def identity(compensated: str) -> str:
    """What weights depend on that were compensated on some samples, by the digest of these; empty for none."""
    return digest(source_digest(__name__), compensated) if compensated else ""


class OutOfTimeError(Exception):
    """Compensating the weights of a model takes longer than it may."""


class _Pace:
    """Foresees when work will be done, by how long its first part took.

    Args:
        total: all work, in any unit.
        end: when it has to be done, by ``time.monotonic()``.
    """

    def __init__(self, total: float, end: float) -> None:
        self._start, self._end = time.monotonic(), end
        self._total, self._done = total, 0.0
        if total and self._start >= end:
            raise OutOfTimeError

    def did(self, work: float) -> None:
        """Count some work.

        Raises:
            OutOfTimeError: if all of it will not be done in time.
        """
        self._done += work
        taken = time.monotonic() - self._start
        if self._start + taken / self._done * self._total > self._end:
            raise OutOfTimeError


def compensated_as(
    plan: Plan,
    imported: ImportedModel,
    samples: SampleSet,
    policy: CalibrationPolicy,
    pool: WorkerPool,
    progress: Progress = silent,
) -> ImportedModel:
    """The model with its weights rounded as those of a plan were.

    Raises:
        UsageError: if that takes samples which the user does not give; else as ``compensated_model``.
    """
    if not (plan.compensated and policy.blocks):
        return imported
    if policy.samples is None or samples.digest != plan.compensated:
        difference = "without any" if policy.samples is None else f"with others, in '{policy.samples}'"
        raise UsageError(
            "errors of weights in 4 bits were compensated on samples when the plan was made, which is replayed "
            f"{difference}; give the same samples with --calibration, or tune again"
        )
    return compensated_model(imported, samples, policy, pool, progress)[0]


def _weights(model: ModelProto, least: int) -> list[_Weight]:
    """The constants by which products multiply rows of ``least`` numbers or more, in the model's order."""
    editor, readers = GraphEditor(model.graph), dict[str, list[NodeProto]]()
    for node in model.graph.node:
        if node.op_type in ("MatMul", "Gemm") and multiplies_rows(node, editor) and _is_matrix(editor, node.input[1]):
            readers.setdefault(node.input[1], []).append(node)
    weights = []
    for name, nodes in readers.items():
        array = editor.constant(name)
        if array is None or len({weight_rows(node, array).shape for node in nodes}) > 1:
            continue
        weight = _Weight(name, array, tuple(nodes))
        if weight.rows.shape[0] >= least and weight.rows.shape[1]:
            weights.append(weight)
    return weights


def _is_matrix(editor: GraphEditor, name: str) -> bool:
    return editor.rank(name) == 2 and editor.element_type(name) == TensorProto.FLOAT


def _compensated(
    imported: ImportedModel,
    weights: Sequence[_Weight],
    policy: CalibrationPolicy,
    samples: SampleSource,
    pool: WorkerPool,
    progress: Progress,
    end: float,
) -> Iterator[tuple[str, Array]]:
    """Yield the rounded constants, by ``rounded_name``, a few weights' at a time.

    Raises:
        OutOfTimeError: if they are not done by ``end``.
    """
    threads, pace = policy.threads, _Pace(sum(weight.work for weight in weights), end)
    for group in _groups(weights):
        tensors = {tensor for weight in group for tensor in weight.tensors}
        seen = observed(
            imported.prepared, tensors, samples, pool, SecondMoments, threads=threads, step=_STEP, progress=progress
        )
        for weight in group:
            moments = _moments(weight, seen)
            rows = weight.rows
            if moments is None or not (np.isfinite(moments).all() and np.isfinite(rows).all()):
                continue
            for block in policy.blocks:
                of = BlockEncoding(BITS, block, *rows.shape)
                yield rounded_name(weight.name, block), weight.like(compensated(rows, moments, of))
            pace.did(weight.work)


def _moments(weight: _Weight, seen: Mapping[str, object]) -> Array | None:
    """The moments of all that is multiplied by a weight; None if they were not observed."""
    arrays = [moments.total for name in weight.tensors if isinstance(moments := seen.get(name), SecondMoments)]
    known = [array for array in arrays if array is not None]
    return np.sum(known, axis=0) if len(known) == len(weight.tensors) else None


def _groups(weights: Iterable[_Weight]) -> Iterator[list[_Weight]]:
    """Weights in their order, in groups whose moments are held at once."""
    group: list[_Weight] = []
    tensors: dict[str, int] = {}
    for weight in weights:
        size = weight.rows.shape[0] ** 2 * _NUMBER
        added = dict.fromkeys(weight.tensors, size)
        if group and sum((tensors | added).values()) > MOMENT_BYTES:
            yield group
            group, tensors = [], {}
        group.append(weight)
        tensors |= added
    if group:
        yield group


def _names(graph: LayerGraph, weights: Sequence[_Weight]) -> dict[str, list[str]]:
    """The weights of the layers that compute a constant's products, by the constant's name."""
    of_node: dict[str, list[str]] = {}
    for layer in graph.all_layers():
        for node in layer.nodes:
            of_node.setdefault(node, []).extend(layer.weights)
    return {weight.name: [name for node in weight.nodes for name in of_node.get(node.name, ())] for weight in weights}


def _aliases(weight: _Weight, stored: StoredArrays, arrays: StoredArrays) -> Iterator[tuple[str, tuple[str, bool]]]:
    """The names under which linking looks for a constant's rounded forms, with theirs and whether they are
    transposed: the import keeps constants' numbers, but no names."""
    for name in stored:
        is_transposed = _is_transposed(stored[name], weight.array)
        if is_transposed is not None:
            for block in FOUR_BITS:
                if (rounded := rounded_name(weight.name, block)) in arrays:
                    yield rounded_name(name, block), (rounded, is_transposed)


def _is_transposed(one: Array, other: Array) -> bool | None:
    """Whether a matrix is another one transposed, rather than itself; None if it is neither."""
    for is_transposed, matrix in ((False, other), (True, other.T)):
        # The first rows tell most weights apart.
        if one.dtype == matrix.dtype and np.array_equal(one[:1], matrix[:1]) and np.array_equal(one, matrix):
            return is_transposed
    return None
