"""Computes nodes of a model with bounds on what rounding may change in their results."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from onnx import FunctionProto, GraphProto, ModelProto, NodeProto

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.tensor_data import to_array
from sartor.onnx_model.graphs.walk import describe_node, names_read, nodes, subgraphs
from sartor.reference.layerwise.bounded import Bounded
from sartor.reference.layerwise.expansions import Place, definition
from sartor.reference.layerwise.node_run import NodeRun, outer_reads
from sartor.reference.layerwise.operators import EXACT, Precision, results_of
from sartor.reference.tie_spread import rounds_values
from sartor.runtime.driver.signature import Array

# Operators that round operands before they multiply them, for which there is no definition by others.
_ROUNDING_INSIDE = frozenset({"DynamicQuantizeLSTM"})


class NodeBounds:
    """Computes nodes of one model from values with bounds.

    Args:
        model: has the nodes, and the operator sets and functions that they are of.
    """

    def __init__(self, model: ModelProto) -> None:
        self._model = model
        self._version = next((opset.version for opset in model.opset_import if opset.domain in ("", "ai.onnx")), 1)
        self._rounding = _rounding_functions(model)

    def __call__(
        self, node: NodeProto, known: Mapping[str, Bounded], precision: Precision = EXACT
    ) -> dict[str, Bounded]:
        """The node's results by name.

        Args:
            node: of the model's main graph.
            known: values by name, at least those that the node reads.
            precision: of the layer that computes it.

        Raises:
            UnsupportedModelError: if it rounds numbers that are none of its results.
            UnsupportedModelError, UsageError: if the reference does not run the node.
        """
        if self._rounds_inside(node):
            raise UnsupportedModelError(f"{describe_node(node)} rounds inside, where ties are not followed")
        defining = definition(node, Place(self._version, lambda name: known[name].value))
        if defining is None:
            return self._one(node, known, precision)
        scope = dict(known)
        for part in defining:
            scope |= self._one(part, scope, precision)
        return {node.output[0]: scope[node.output[0]]}

    def _rounds_inside(self, node: NodeProto) -> bool:
        is_rounding = node.op_type in _ROUNDING_INSIDE or _identity(node) in self._rounding
        return is_rounding or any(_is_rounding(body, self._rounding) for body in subgraphs(node))

    def _one(self, node: NodeProto, known: Mapping[str, Bounded], precision: Precision) -> dict[str, Bounded]:
        missing = [name for name in names_read(node) if name not in known]
        if missing:
            raise UnsupportedModelError(f"{describe_node(node)} reads '{missing[0]}', which is not known")
        run = NodeRun(self._model, node, {name: known[name].value for name in outer_reads(node)})
        operands = [known[name] if name else None for name in node.input]
        return dict(zip(run.results, results_of(node, run, operands, precision), strict=True))


def _rounding_functions(model: ModelProto) -> set[tuple[str, str, str]]:
    """The functions of a model that round values, or call others that do."""
    rounding = set[tuple[str, str, str]]()
    while added := {_own(item) for item in model.functions if _is_rounding(item, rounding)} - rounding:
        rounding |= added
    return rounding


def _is_rounding(body: GraphProto | FunctionProto, functions: Collection[tuple[str, str, str]]) -> bool:
    return rounds_values(body) or any(_identity(node) in functions for node in nodes(body))


def _identity(node: NodeProto) -> tuple[str, str, str]:
    return node.domain, node.op_type, node.overload


def _own(function: FunctionProto) -> tuple[str, str, str]:
    return function.domain, function.name, function.overload


def bounded_outputs(model: ModelProto, feeds: Mapping[str, Array]) -> dict[str, Bounded]:
    """The outputs of a model with sorted nodes, with bounds on what rounding in all its nodes may change, by name.

    Raises:
        UnsupportedModelError, UsageError: if the reference does not run a node.
    """
    bounds = NodeBounds(model)
    known = {tensor.name: Bounded(to_array(tensor)) for tensor in model.graph.initializer}
    known |= {name: Bounded(array) for name, array in feeds.items()}
    for node in model.graph.node:
        known |= bounds(node, known)
    return {output.name: known[output.name] for output in model.graph.output}
