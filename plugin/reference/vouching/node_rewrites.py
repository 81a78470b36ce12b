"""The rewrite of a single node, compared with the definition of its operator on the values that the node reads."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from onnx import GraphProto, ModelProto, ValueInfoProto, helper, numpy_helper

from sartor.errors import UnsupportedModelError, UsageError
from sartor.onnx_model.preparing.prepare import prepare
from sartor.reference.tolerance import tolerance
from sartor.reference.trusted.oracles.call import Call
from sartor.reference.trusted.oracles.element_types import numpy_code
from sartor.reference.trusted.oracles.table import definition_of
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.driver.signature import Array
from sartor.runtime.output_error import LAYER, Noise, output_errors, scales_of

_LOG = logging.getLogger(__name__)
# Arrays of other types do not pass ONNX Runtime's door.
_PASSING = "biuf"
# Steps of quantised values that another rounding of a tie may change.
_MOST_MOVED = 1 / 64
# Factors and shifts of inputs by element type. Squares of usual values hide what a normalisation adds to them, as 1e-5,
# and their mean is near zero. In f16 products of two such values are still normal numbers, and shifted scores of
# attention would be too coarse.
_CHANGES = {
    np.dtype(np.float32): ((2.0**-10, 0.0), (2.0**-20, 0.0), (1.0, 4.0)),
    np.dtype(np.float16): ((2.0**-8, 0.0),),
}


@dataclass(frozen=True)
class Difference:
    """How far a rewrite is off, and what it may be."""

    error: float
    allowed: float


class NodeRewrites:
    """Compares rewrites of nodes of one model; equal nodes on inputs of equal shapes are compared once.

    Args:
        model: the user's; weights are not read.
        usual: bound on the relative error in f32.
    """

    def __init__(self, model: ModelProto, usual: float) -> None:
        self._opsets, self._ir_version, self._usual = list(model.opset_import), model.ir_version, usual
        self._constants = {tensor.name for tensor in model.graph.initializer}
        self._known: set[str] = set()

    def compare(self, call: Call, outputs: Sequence[Array]) -> Difference | None:
        """The largest difference of a node's rewrite from its definition's outputs, on other inputs too.

        None if an equal node was compared, or the node cannot be prepared or run alone: then the whole model tells.
        """
        kind = _kind(call)
        arrays = [*(value for value in call.inputs if value is not None), *outputs]
        if kind in self._known or any(array.dtype.kind not in _PASSING for array in arrays):
            return None
        self._known.add(kind)
        runs = [(call, outputs), *self._on_other_inputs(call)]
        try:
            prepared = prepare(self._alone(call, outputs)).model
            reference = ReferenceModel(prepared.SerializeToString(), threads=1, optimises=False)
            pairs = [pair for each, right in runs for pair in self._pairs(reference, each, right)]
        except (UnsupportedModelError, UsageError) as error:
            _LOG.debug("%s is not compared alone: %s", call.node.name, error)
            return None
        return Difference(_error(pairs), tolerance(prepared, self._usual))

    def _on_other_inputs(self, call: Call) -> Iterator[tuple[Call, Sequence[Array]]]:
        """Calls on smaller and on shifted values, with the outputs by the definition of the node's operator, if any.

        A wrong epsilon may change less than the bound allows on drawn samples, and all on an image of one colour.
        """
        compute, fed = definition_of(call.node), self._fed(call)
        real = {name: value for name, value in fed.items() if value.dtype in _CHANGES}
        if compute is None or not real:
            return
        for factor, shift in min((_CHANGES[value.dtype] for value in real.values()), key=len):
            changed = {name: (value * factor + shift).astype(value.dtype) for name, value in real.items()}
            named = zip(call.node.input, call.inputs, strict=True)
            other = replace(call, inputs=[changed.get(name, value) for name, value in named])
            yield other, compute(other)

    def _fed(self, call: Call) -> dict[str, Array]:
        """The inputs that are no weights of the model."""
        named = zip(call.node.input, call.inputs, strict=True)
        return {name: value for name, value in named if value is not None and name not in self._constants}

    def _pairs(self, reference: ReferenceModel, call: Call, right: Sequence[Array]) -> Iterator[tuple[Array, Array]]:
        """The outputs of a node's rewrite on the inputs of a call, with the right ones."""
        results = dict(zip(reference.output_names, reference(self._fed(call)), strict=True))
        return ((results[name], value) for name, value in zip(call.node.output, right, strict=False) if name)

    def _alone(self, call: Call, outputs: Sequence[Array]) -> ModelProto:
        """A model of one node, whose weights are those of the model."""
        values = {name: value for name, value in zip(call.node.input, call.inputs, strict=True) if value is not None}
        graph = GraphProto(name="one", node=[call.node])
        graph.initializer.extend(
            numpy_helper.from_array(value, name) for name, value in values.items() if name in self._constants
        )
        graph.input.extend(_declared(name, value) for name, value in self._fed(call).items())
        # Without shapes: a rewrite that computes another one is not to be refused, but found wrong.
        graph.output.extend(
            helper.make_tensor_value_info(name, numpy_code(value.dtype), None)
            for name, value in zip(call.node.output, outputs, strict=False)
            if name
        )
        return ModelProto(ir_version=self._ir_version, opset_import=self._opsets, graph=graph)


def _declared(name: str, value: Array) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, numpy_code(value.dtype), value.shape)


def _kind(call: Call) -> str:
    """What equal nodes on inputs of equal shapes have in common."""
    inputs = [None if value is None else (value.dtype.name, value.shape) for value in call.inputs]
    attributes = sorted(each.SerializeToString() for each in call.node.attribute)
    return repr((call.node.domain, call.node.op_type, attributes, inputs, [bool(name) for name in call.node.output]))


def _error(pairs: Sequence[tuple[Array, Array]]) -> float:
    """The largest relative error of some outputs from the right ones."""
    return max((_error_of(*pair) for pair in pairs), default=0.0)


def _error_of(output: Array, right: Array) -> float:
    if is_quantised(right):
        return steps_error(output, right, _MOST_MOVED)
    return output_errors([output], [right], scales=scales_of([right], _no_noise(right)))[0]


def is_quantised(right: Array) -> bool:
    """Whether an output is of integers that a tie may move by one step."""
    return right.dtype.kind in "iu" and right.dtype.itemsize == 1


def steps_error(output: Array, right: Array, share: float) -> float:
    """The error of quantised values: none if at most a share of them is off, by one step; else infinite."""
    if output.shape != right.shape:
        return math.inf
    distance = np.abs(output.astype(np.int64) - right.astype(np.int64))
    is_near = distance.max(initial=0) <= 1 and np.count_nonzero(distance) <= max(1, share * distance.size)
    return 0.0 if is_near else math.inf


def _no_noise(right: Array) -> Noise:
    return Noise([np.zeros(right.shape)], 1, LAYER)
