"""The rewrite of a single node, compared with the definition of its operator on the values that the node reads."""

from __future__ import annotations

import itertools
import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto, helper, numpy_helper

from sartor.errors import UnsupportedModelError, UsageError
from sartor.onnx_model.graphs.evaluator_errors import EVALUATOR_ERRORS
from sartor.onnx_model.graphs.walk import describe_node
from sartor.onnx_model.preparing.prepare import prepare
from sartor.reference.layerwise.bounded import Bounded
from sartor.reference.layerwise.node_bounds import bounded_outputs
from sartor.reference.tolerance import tolerance
from sartor.reference.trusted.oracles.call import Call
from sartor.reference.trusted.oracles.element_types import numpy_code
from sartor.reference.trusted.oracles.table import definition_of
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.reference.vouching.differences import (
    Difference,
    is_quantised,
    quantised_difference,
    real_difference,
    steps_error,
)
from sartor.runtime.driver.signature import Array

_Run = tuple[Call, Sequence[Array]]
_LOG = logging.getLogger(__name__)
# Arrays of other types do not pass ONNX Runtime's door.
_PASSING = "biuf"
# Share of quantised values that another rounding of a tie may change, and of how many, in how many runs at most.
_MOST_MOVED, _MANY, _MOST_DRAWS = 1 / 64, 128, 16
# Elements of a constant by whose values rewrites may decide, as by a zero point.
_FEW = 16
# Factors and shifts of inputs by element type. Squares of usual values hide what a normalisation adds to them, as 1e-5,
# and their mean is near zero. In f16 products of two such values are still normal numbers, and shifted scores of
# attention would be too coarse.
_CHANGES = {
    np.dtype(np.float32): ((2.0**-10, 0.0), (2.0**-20, 0.0), (1.0, 4.0)),
    np.dtype(np.float16): ((2.0**-8, 0.0),),
}


class NodeRewrites:
    """Compares rewrites of nodes of one model; equal nodes on inputs of equal shapes are compared once.

    Args:
        model: the user's; weights are not read.
        usual: bound on the relative error in f32.
        widens: whether the whole model is computed in f32 where it has half precision.
    """

    def __init__(self, model: ModelProto, usual: float, *, widens: bool = False) -> None:
        self._opsets, self._ir_version, self._usual = list(model.opset_import), model.ir_version, usual
        self._widens = widens
        self._constants = {tensor.name for tensor in model.graph.initializer}
        self._known: set[str] = set()
        self.uncompared: list[str] = []
        """Nodes that cannot be prepared or run alone, in words, and why: then the whole model tells."""

    def compare(self, call: Call, outputs: Sequence[Array]) -> Difference | None:
        """The largest difference of a node's rewrite from its definition's outputs, on other inputs too.

        None if an equal node was compared, or this one cannot be compared.
        """
        kind, named = self._kind(call), [*zip(call.node.output, outputs, strict=False)]
        arrays = [*(value for value in call.inputs if value is not None), *(value for name, value in named if name)]
        # Nothing is to be compared of no elements.
        is_empty = not any(value.size for name, value in named if name)
        if kind in self._known or is_empty:
            return None
        self._known.add(kind)
        if foreign := {array.dtype.name for array in arrays if array.dtype.kind not in _PASSING}:
            types = ", ".join(sorted(foreign))
            self._note(f"operator {call.node.op_type} of {types}: its element types are not compared alone")
            return None
        differences: list[Difference] = []
        try:
            # Inputs of no elements have to be allowed by name.
            shapes = {name: value.shape for name, value in self._fed(call).items()}
            prepared = prepare(self._alone(call, outputs), shapes, widens=self._widens).model
            reference = ReferenceModel(prepared.SerializeToString(), threads=1, optimises=False)
            runs = itertools.chain([(call, outputs)], self._on_other_inputs(call, outputs))
            for difference in self._differences(call.node, prepared, reference, runs):
                # What fails later leaves those before it.
                differences.append(difference)
        except (UnsupportedModelError, UsageError) as error:
            self._note(f"{describe_node(call.node)}: {error}")
            if not any(difference.is_wrong for difference in differences):
                return None
        return max(differences, key=lambda difference: (difference.is_wrong, difference.error), default=Difference())

    def _note(self, reason: str) -> None:
        if reason not in self.uncompared:
            self.uncompared.append(reason)

    def _differences(
        self, node: NodeProto, prepared: ModelProto, reference: ReferenceModel, runs: Iterable[_Run]
    ) -> Iterator[Difference]:
        """Those of each named output, in each run; of quantised ones with unknown bounds in all runs together."""
        usual, quantised = tolerance(prepared, self._usual), defaultdict[str, list[tuple[Array, Array]]](list)
        for call, right in runs:
            fed = self._fed(call)
            results = dict(zip(reference.output_names, reference(fed), strict=True))
            bounds = _bounds(prepared, fed)
            for name, value in zip(node.output, right, strict=False):
                known = bounds.get(name)
                if name and not is_quantised(value):
                    yield real_difference(results[name], value, known, usual)
                elif name and known is not None:
                    yield quantised_difference(results[name], value, known)
                elif name:
                    quantised[name].append((results[name], value))
        yield from (Difference(steps_error(pairs, _MOST_MOVED)) for pairs in quantised.values())

    def _on_other_inputs(self, call: Call, outputs: Sequence[Array]) -> Iterator[_Run]:
        """Calls on other values, with the outputs by the definition of the node's operator, if any.

        Smaller and shifted ones: a wrong epsilon may change less than the bound allows on drawn samples, and all on an
        image of one colour. Integers are drawn so often that few of many results may be next to a tie.

        Raises:
            UsageError: if the definition does not take them.
        """
        compute, fed = definition_of(call.node), self._fed(call)
        if compute is None:
            return
        for changed in (*_changed(fed), *_drawn(fed, outputs)):
            named = zip(call.node.input, call.inputs, strict=True)
            other = replace(call, inputs=[changed.get(name, value) for name, value in named])
            try:
                right = compute(other)
            except EVALUATOR_ERRORS as error:
                raise UsageError(f"its definition fails on other values: {error}") from error
            yield other, right

    def _kind(self, call: Call) -> str:
        """What nodes have in common of which one is compared: shapes, which operands are constants, and the values of
        small ones, by which rewrites decide."""
        inputs = [
            None
            if value is None
            else (value.dtype.name, value.shape, name in self._constants, self._decisive(name, value))
            for name, value in zip(call.node.input, call.inputs, strict=True)
        ]
        attributes = sorted(attribute.SerializeToString() for attribute in call.node.attribute)
        return repr(
            (call.node.domain, call.node.op_type, attributes, inputs, [bool(name) for name in call.node.output])
        )

    def _decisive(self, name: str, value: Array) -> bytes:
        return value.tobytes() if name in self._constants and value.size <= _FEW else b""

    def _fed(self, call: Call) -> dict[str, Array]:
        """The inputs that are no weights of the model."""
        named = zip(call.node.input, call.inputs, strict=True)
        return {name: value for name, value in named if value is not None and name not in self._constants}

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


def _changed(fed: Mapping[str, Array]) -> Iterator[dict[str, Array]]:
    """The inputs that are floats, smaller and shifted."""
    real = {name: value for name, value in fed.items() if value.dtype in _CHANGES}
    for factor, shift in min((_CHANGES[value.dtype] for value in real.values()), key=len, default=()):
        yield {name: (value * factor + shift).astype(value.dtype) for name, value in real.items()}


def _drawn(fed: Mapping[str, Array], outputs: Sequence[Array]) -> Iterator[dict[str, Array]]:
    """Other numbers for inputs of 8-bit integers, if outputs are of them, so often that these are many together."""
    whole = {name: value for name, value in fed.items() if is_quantised(value)}
    sizes = [value.size for value in outputs if is_quantised(value) and value.size]
    for seed in range(min(-(-_MANY // min(sizes)), _MOST_DRAWS) if whole and sizes else 0):
        random = np.random.default_rng(seed)
        limits = {name: np.iinfo(value.dtype) for name, value in whole.items()}
        yield {
            name: random.integers(limits[name].min, limits[name].max + 1, value.shape, value.dtype)
            for name, value in whole.items()
        }


def _bounds(prepared: ModelProto, fed: Mapping[str, Array]) -> Mapping[str, Bounded]:
    """The outputs of a rewrite with what rounding in its nodes may change; none where that is not known."""
    try:
        return bounded_outputs(prepared, fed)
    except (UnsupportedModelError, UsageError) as error:
        _LOG.debug("what rounding changes in a rewrite is not known: %s", error)
        return {}
