"""Which recurrent operators become loops with kernels of their own, and are not unrolled."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto

from sartor.onnx_model.graphs.graph import GraphEditor, attributes, optional_input

_DEFAULTS = {"RNN": ("Tanh",), "LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh")}
_LOOPED = ("Relu", "Sigmoid", "Tanh")
_WEIGHTS = (1, 2, 3)
_LENGTHS, _PEEPHOLES = 4, 7
LENGTHS = "sequence_lens"
"""The input that has the lengths of sequences, by ONNX's name."""
_HARD_SIGMOID = {"activation_alpha": 0.2, "activation_beta": 0.5}
_UNSUPPORTED = ("activation_alpha", "activation_beta", "clip", "input_forget", "layout")


def is_kept(node: NodeProto, editor: GraphEditor) -> bool:
    """Whether a node is computed by a loop: a cell without extras, over f32 and constant weights, of the main graph."""
    shape = editor.shape(node.input[0])
    return shape is not None and is_kept_at_full_length(node, editor) and not has_lengths(node, editor, shape[0])


def is_kept_at_full_length(node: NodeProto, editor: GraphEditor) -> bool:
    """Whether a node would be computed by a loop if all sequences had all steps."""
    if node.op_type not in _DEFAULTS or editor.is_nested or editor.element_type(node.input[0]) != TensorProto.FLOAT:
        return False
    shape = editor.shape(node.input[0])
    names = [optional_input(node, index) for index in _WEIGHTS]
    if shape is None or 0 in shape or any(name and editor.constant(name) is None for name in names):
        return False
    return extras(node, editor, shape[0]) in ((), (LENGTHS,)) and all(name in _LOOPED for name in activations(node))


def is_plain(node: NodeProto, editor: GraphEditor, steps: int) -> bool:
    """Whether IREE's loop computes a node: without extras, forward, and with the usual activations.

    It takes no notice of any of them.
    """
    is_usual = activations(node) == _DEFAULTS[node.op_type]
    return is_usual and attributes(node).get("direction", "forward") == "forward" and not extras(node, editor, steps)


def extras(node: NodeProto, editor: GraphEditor, steps: int) -> tuple[str, ...]:
    """Names of inputs and attributes that change what a node computes, beside direction and activations."""
    peepholes = optional_input(node, _PEEPHOLES)
    settings = attributes(node)
    named = [name for name in _UNSUPPORTED if settings.get(name) and not is_usual(name, settings[name])]
    if peepholes and ((constant := editor.constant(peepholes)) is None or constant.any()):
        named.append("peepholes")
    if has_lengths(node, editor, steps):
        named.append(LENGTHS)
    return tuple(named)


def has_lengths(node: NodeProto, editor: GraphEditor, steps: int) -> bool:
    """Whether a sequence may end before the last step."""
    name = optional_input(node, _LENGTHS)
    return bool(name) and ((constant := editor.constant(name)) is None or bool((constant != steps).any()))


def is_usual(name: str, values: Any) -> bool:
    """Whether parameters of activations are those that ``HardSigmoid``, the one here that has any, has without them."""
    return name in _HARD_SIGMOID and np.allclose(values, _HARD_SIGMOID[name], rtol=1e-6)


def activations(node: NodeProto) -> tuple[str, ...]:
    """ONNX names of a recurrent node's activations, for each direction in turn."""
    settings = attributes(node)
    directions = 2 if settings.get("direction") == "bidirectional" else 1
    names = settings.get("activations") or _DEFAULTS[node.op_type] * directions
    return tuple(name.capitalize() for name in names)
