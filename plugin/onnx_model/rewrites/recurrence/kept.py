"""Which recurrent operators become loops with kernels of their own, and are not unrolled."""

from __future__ import annotations

from onnx import NodeProto, TensorProto

from sartor.onnx_model.graphs.graph import GraphEditor, attributes, optional_input

_DEFAULTS = {"RNN": ("Tanh",), "LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh")}
_LOOPED = ("Relu", "Sigmoid", "Tanh")
_WEIGHTS = (1, 2, 3)
_LENGTHS, _PEEPHOLES = 4, 7
_UNSUPPORTED = ("activation_alpha", "activation_beta", "clip", "input_forget", "layout")


def is_kept(node: NodeProto, editor: GraphEditor) -> bool:
    """Whether a node is computed by a loop: a cell without extras, over f32 and constant weights, of the main graph."""
    if node.op_type not in _DEFAULTS or editor.is_nested or editor.element_type(node.input[0]) != TensorProto.FLOAT:
        return False
    found, shape = attributes(node), editor.shape(node.input[0])
    names = [optional_input(node, index) for index in _WEIGHTS]
    if shape is None or 0 in shape or any(name and editor.constant(name) is None for name in names):
        return False
    peepholes = editor.constant(optional_input(node, _PEEPHOLES)) if optional_input(node, _PEEPHOLES) else None
    if optional_input(node, _PEEPHOLES) and (peepholes is None or peepholes.any()):
        return False
    lengths = editor.constant(optional_input(node, _LENGTHS)) if optional_input(node, _LENGTHS) else None
    if optional_input(node, _LENGTHS) and (lengths is None or (lengths != shape[0]).any()):
        return False
    return not any(found.get(name) for name in _UNSUPPORTED) and all(each in _LOOPED for each in activations(node))


def activations(node: NodeProto) -> tuple[str, ...]:
    """ONNX names of a recurrent node's activations, for each direction in turn."""
    found = attributes(node)
    directions = 2 if found.get("direction") == "bidirectional" else 1
    names = found.get("activations") or _DEFAULTS[node.op_type] * directions
    return tuple(each.capitalize() for each in names)
