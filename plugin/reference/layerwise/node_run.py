"""Runs single nodes of a model by the reference, on any operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto, helper, numpy_helper

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.walk import describe_node, names_read
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.driver.signature import Array

Operands = Sequence[Array | None]

# Operands that ONNX Runtime has to know when it loads a node: a Resize has sizes where its scales are empty.
_CONSTANT = {"Resize": (1, 2, 3)}


class NodeRun:
    """A node as a callable from its operands to its results.

    Args:
        model: has the node, and the operator sets and functions that it is of.
        node: in the model, or of its operator sets.
        outer: values that its subgraphs read, by name.
    """

    def __init__(self, model: ModelProto, node: NodeProto, outer: Mapping[str, Array] | None = None) -> None:
        self._model = model
        self._node = node
        self._outer = outer or {}
        self._loaded: dict[tuple[object, ...], ReferenceModel] = {}
        self.results = tuple(name for name in node.output if name)

    def __call__(self, operands: Operands) -> list[Array]:
        """The results that have a name, in order.

        Args:
            operands: one for each input of the node, None for an optional one that it does not have.

        Raises:
            UnsupportedModelError, UsageError: if the reference does not run the node.
        """
        # Arithmetic with arrays of no dimension gives numbers of numpy's.
        given = {
            f"operand{index}": np.asarray(operand) for index, operand in enumerate(operands) if operand is not None
        }
        fixed = {name: given.pop(name) for name in self._fixed if name in given}
        feeds = {**given, **self._outer}
        key = (
            *((name, feed.dtype, feed.ndim) for name, feed in feeds.items()),
            *((name, array.dtype, array.tobytes()) for name, array in fixed.items()),
        )
        if key not in self._loaded:
            self._loaded[key] = ReferenceModel(self._alone(operands, feeds, fixed), optimises=False, cuts=False)
        try:
            results = self._loaded[key](feeds)
        except RuntimeError as error:
            # ONNX Runtime takes and gives no arrays of types that numpy does not have, as integers of four bits.
            raise UnsupportedModelError(f"{describe_node(self._node)} cannot be run alone: {error}") from error
        for name, result in zip(self.results, results, strict=True):
            _check_tensor(name, result)
        return results

    def of(self, node: NodeProto) -> NodeRun:
        """Another node in the same place."""
        return NodeRun(self._model, node, self._outer)

    @property
    def _fixed(self) -> list[str]:
        """Operands that are constants of the model of this node alone."""
        return [f"operand{index}" for index in _CONSTANT.get(self._node.op_type, ())]

    def _alone(self, operands: Operands, feeds: Mapping[str, Array], fixed: Mapping[str, Array]) -> bytes:
        """A model of this node alone. Its operands have new names, as one tensor may be several of them."""
        node = NodeProto()
        node.CopyFrom(self._node)
        node.input[:] = ["" if operand is None else f"operand{index}" for index, operand in enumerate(operands)]
        graph = GraphProto(name="node", node=[node])
        graph.input.extend(_described(name, array) for name, array in feeds.items())
        graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in fixed.items())
        graph.output.extend(ValueInfoProto(name=name) for name in self.results)
        return ModelProto(
            ir_version=self._model.ir_version,
            opset_import=self._model.opset_import,
            functions=self._model.functions,
            graph=graph,
        ).SerializeToString()


def outer_reads(node: NodeProto) -> set[str]:
    """Names that only a node's subgraphs read from outside."""
    return names_read(node) - set(node.input)


def _check_tensor(name: str, value: object) -> None:
    if not isinstance(value, np.ndarray):
        raise UnsupportedModelError(f"'{name}' is no tensor")


def _described(name: str, array: Array) -> ValueInfoProto:
    _check_tensor(name, array)
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, kind, [None] * array.ndim)
