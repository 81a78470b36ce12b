"""Builds the nodes that replace one node. The main node of the replacement keeps the ONNX name."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import NodeProto, helper

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.graph import Array, GraphEditor
from sartor.onnx_model.graphs.walk import describe_node


class UnknownTypeError(UnsupportedModelError):
    """A rewrite asked for the type of a value that is not known, or not before other nodes are rewritten."""


_AXES_ARE_INPUTS = 13
_REDUCED_AXES_ARE_INPUTS = 18


class Emitter:
    """Collects the nodes that replace ``node``: call it with an operator and its inputs to get an output name.

    Nodes are named ``<node>/<part>``. The node emitted without ``part`` keeps the original name, which layers, plans
    and reports show.
    """

    def __init__(self, editor: GraphEditor, node: NodeProto) -> None:
        self.editor = editor
        self.node = node
        self.nodes: list[NodeProto] = []
        self._shared: dict[tuple[str, bytes], str] = {}

    def __call__(
        self,
        operator: str,
        *inputs: str,
        part: str = "",
        output: str = "",
        domain: str = "",
        **attributes: Any,
    ) -> str:
        """Emit a node with one output, called ``output`` or freshly named; returns the output's name."""
        return self.many(operator, *inputs, part=part, outputs=(output,), domain=domain, **attributes)[0]

    def many(
        self,
        operator: str,
        *inputs: str,
        part: str = "",
        outputs: tuple[str, ...],
        domain: str = "",
        **attributes: Any,
    ) -> tuple[str, ...]:
        """Emit a node with several outputs; an empty name in ``outputs`` becomes a fresh one."""
        name = self.editor.fresh_node(f"{self.node.name}/{part}") if part else self.node.name
        hint = f"{self.node.output[0]}/{part or operator}"
        named = tuple(output or self.editor.fresh(hint) for output in outputs)
        attributes = {key: value for key, value in attributes.items() if value is not None}
        self.nodes.append(helper.make_node(operator, inputs, named, name=name, domain=domain, **attributes))
        return named

    def copy(self, inputs: list[str], output: str = "") -> str:
        """Emit the node itself, first output only, with other inputs."""
        copy = NodeProto()
        copy.CopyFrom(self.node)
        copy.input[:] = inputs
        copy.output[:] = [output or self.editor.fresh(f"{self.node.output[0]}/{self.node.op_type}")]
        self.nodes.append(copy)
        return str(copy.output[0])

    def raised(self, value: str, axis: int, version: int) -> str:
        """Insert a dimension of one element; before opset 13 its place is an attribute."""
        if version < _AXES_ARE_INPUTS:
            return self("Unsqueeze", value, part="raise", axes=[axis])
        return self("Unsqueeze", value, self.constant([axis], "axis"), part="raise")

    def reduced(self, operator: str, value: str, axes: list[int], version: int, part: str = "") -> str:
        """Reduce axes, by another operator than ReduceSum, and drop them; before opset 18 they are an attribute."""
        if version < _REDUCED_AXES_ARE_INPUTS:
            return self(operator, value, part=part, axes=axes, keepdims=0)
        return self(operator, value, self.constant(axes, "axes"), part=part, keepdims=0)

    def constant(self, values: Array | float | list[int], hint: str, dtype: Any = None) -> str:
        """Add an initialiser named after the node; returns its name. Lists become int64, numbers need ``dtype``."""
        if isinstance(values, list):
            dtype = np.int64
        return self.editor.add_constant(f"{self.node.name}/{hint}", np.asarray(values, dtype))

    def shared_constant(self, values: Array, hint: str) -> str:
        """Like ``constant``, but repeated calls with the same values and hint return the same initialiser."""
        key = (hint, values.tobytes())
        if key not in self._shared:
            self._shared[key] = self.constant(values, hint)
        return self._shared[key]

    def like(self, value: float, name: str, hint: str) -> str:
        """Add a scalar initialiser with the element type of the value ``name``; returns its name."""
        return self.constant(np.asarray(value, self.dtype(name)), hint)

    def dtype(self, name: str) -> np.dtype[Any]:
        """NumPy type of the value ``name``; float32 if it is unknown and the node is of a standard operator.

        Raises:
            UnknownTypeError: the node is of another operator set, and the type is not known (yet).
        """
        element = self.editor.element_type(name)
        if not element and not self.node.domain:
            return np.dtype(np.float32)
        if not element:
            raise UnknownTypeError(
                f"{describe_node(self.node)} reads {name!r}, whose type is not known; "
                "declare it in the model's value_info"
            )
        return helper.tensor_dtype_to_np_dtype(element)
