"""Writes out activations that IREE does not lower, or not exactly: Softsign, Gelu by a hyperbolic tangent, Clip by
bounds that are NaN, and Selu by its own constants.
"""

from __future__ import annotations

import math

from onnx import NodeProto, helper

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, node_rewrite

_SELU = {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875}


@node_rewrite("Gelu")
def written_tanh_gelu(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Write out ``Gelu`` with ``approximate="tanh"``.

    IREE 3.13 multiplies by 0.797724 there, where sqrt(2 / pi) = 0.797885 is meant: results are off by 5e-5.
    """
    if attributes(node).get("approximate") != "tanh":
        return None
    emit = Emitter(editor, node)
    emit_tanh_gelu(emit, node.input[0])
    return emit.nodes


def emit_tanh_gelu(emit: Emitter, value: str) -> None:
    """``x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2`` of a value of the node's type, as the node's output."""
    source = emit.node.input[0]
    square = emit("Mul", value, value, part="square")
    inner = emit("Mul", square, emit.like(0.044715 * math.sqrt(2 / math.pi), source, "cubic"), part="cubic")
    inner = emit("Add", inner, emit.like(math.sqrt(2 / math.pi), source, "linear"), part="linear")
    bent = emit("Tanh", emit("Mul", inner, value, part="polynomial"))
    cdf = emit("Add", bent, emit.like(1.0, source, "one"), part="add_one")
    half = emit("Mul", value, emit.like(0.5, source, "half"), part="half")
    emit("Mul", half, cdf, part="product", output=emit.node.output[0])


@node_rewrite("Softsign")
def written_softsign(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Write out ``Softsign`` as ``x / (1 + |x|)``.

    IREE 3.13 has no lowering for it, and ONNX has a function body for it from opset 18 on only.
    """
    emit = Emitter(editor, node)
    source = node.input[0]
    size = emit("Abs", source, part="absolute")
    emit("Div", source, emit("Add", size, emit.like(1.0, source, "one"), part="divisor"), output=node.output[0])
    return emit.nodes


@node_rewrite("Selu")
def selu_constants(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Give ``Selu`` the constants of ONNX, which are those of float32.

    IREE 3.13 takes 1.67326 and 1.0507 where a node has none: results are off by 1e-6 to 4e-6.
    """
    lacking = {name: value for name, value in _SELU.items() if name not in attributes(node)}
    if not lacking:
        return None
    copy = NodeProto()
    copy.CopyFrom(node)
    copy.attribute.extend(helper.make_attribute(name, value) for name, value in lacking.items())
    return [copy]
