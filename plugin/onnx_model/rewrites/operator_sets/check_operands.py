"""Refuses nodes whose operands do not fit each other, where ONNX's inference of shapes does not look at them.

Rewrites would fail over such a node, or IREE would refuse what they make of it, without a reason that a user can read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from onnx import ModelProto, NodeProto

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, editors, opset, optional_input, rewrite_nodes
from sartor.onnx_model.graphs.infer import infer_shapes
from sartor.onnx_model.graphs.walk import describe_node

# Before, GroupNormalization had a scale for each group.
_SCALES_BY_CHANNEL = 21
# Before, BatchNormalization may have had one for each element of a sample.
_NORMS_BY_CHANNEL = 9
_CLASSES = 2


@dataclass(frozen=True)
class _Checked:
    """A node, and what is known of what it reads.

    Attributes:
        node: the node.
        editor: of its graph.
        shape: of its first input.
        version: of the operators.
    """

    node: NodeProto
    editor: GraphEditor
    shape: tuple[int, ...]
    version: int

    @property
    def attributes(self) -> dict[str, Any]:
        return attributes(self.node)

    @property
    def channels(self) -> int:
        """Of the first input; a vector has one."""
        return self.shape[1] if len(self.shape) > 1 else 1

    def known(self, index: int) -> tuple[int, ...] | None:
        """Shape of an input; None if the node does not have it or it is not known."""
        name = optional_input(self.node, index)
        return self.editor.shape(name) if name else None


Reasons = Iterator[str]


def check_operands(model: ModelProto) -> tuple[str, ...]:
    """Check sizes of operands and attributes against each other; adds inferred shapes to the model if some are unknown.

    Raises:
        UnsupportedModelError: some do not fit; the message names the node, and what does not fit.
    """
    checked = [
        (node, editor)
        for editor in editors(model.graph)
        for node in editor.nodes
        if not node.domain and node.op_type in _CHECKS
    ]
    if not checked:
        return ()
    if any(editor.shape(name) is None for node, editor in checked for name in node.input if name):
        infer_shapes(model)
    version = opset(model)

    def check(node: NodeProto, editor: GraphEditor) -> None:
        check = _CHECKS.get(node.op_type)
        shape = editor.shape(node.input[0]) if check is not None else None
        if check is None or shape is None:
            return
        for reason in check(_Checked(node, editor, shape, version)):
            raise UnsupportedModelError(f"{describe_node(node)} {reason}; export the model again")

    return rewrite_nodes(model, check)


def _length(of: _Checked, index: int, name: str, length: int, made: str) -> Reasons:
    """A reason if an input is known to be no vector of ``length``."""
    return _shape(of, index, name, (length,), made)


def _shape(of: _Checked, index: int, name: str, expected: tuple[int, ...], made: str) -> Reasons:
    """A reason if an input is known to have another shape."""
    shape = of.known(index)
    if shape is not None and shape != expected:
        yield f"has {list(shape)} as the shape of its input '{name}', where {made} need {list(expected)}"


def _single_or(of: _Checked, index: int, name: str, length: int, made: str) -> Reasons:
    """A reason if an input is known to be neither one number nor a vector of ``length``."""
    shape = of.known(index)
    if shape is not None and shape not in ((), (1,), (length,)):
        yield f"has {list(shape)} as the shape of its input '{name}', where {made} need one number or [{length}]"


def _batch_normalisation(of: _Checked) -> Reasons:
    is_by_element = of.version < _NORMS_BY_CHANNEL and not of.attributes.get("spatial", 1)
    expected = of.shape[1:] if is_by_element else (of.channels,)
    made = f"samples of shape {list(expected)}" if is_by_element else f"{of.channels} channels"
    for index, name in enumerate(("scale", "B", "input_mean", "input_var"), 1):
        yield from _shape(of, index, name, expected, made)


def _group_normalisation(of: _Checked) -> Reasons:
    groups = of.attributes["num_groups"]
    if of.version < _SCALES_BY_CHANNEL:
        yield f"is of opset {of.version}, where ONNX withdrew it; it needs opset {_SCALES_BY_CHANNEL} or newer"
    if of.channels % groups:
        yield f"has {groups} as its attribute 'num_groups', which does not divide {of.channels} channels"
    for index, name in enumerate(("scale", "bias"), 1):
        yield from _length(of, index, name, of.channels, f"{of.channels} channels")


def _transposed_convolution(of: _Checked) -> Reasons:
    settings, rank = of.attributes, len(of.shape) - 2
    group, weight = settings.get("group", 1), of.known(1)
    if of.channels % group:
        yield f"has {group} as its attribute 'group', which does not divide {of.channels} channels"
    if weight is not None and len(weight) != len(of.shape):
        yield f"has weights of shape {list(weight)} for an input of shape {list(of.shape)}"
    if weight is not None and weight[0] != of.channels:
        yield f"has weights of shape {list(weight)}, whose first size is not the {of.channels} channels of its input"
    kernel = settings.get("kernel_shape")
    if weight is not None and kernel and tuple(kernel) != weight[2:]:
        yield f"has {list(kernel)} as its attribute 'kernel_shape', and weights of shape {list(weight)}"
    if weight is not None:
        count = weight[1] * group
        yield from _length(of, 2, "B", count, f"{count} channels of its result")
    for name, size in (("strides", rank), ("dilations", rank), ("pads", 2 * rank), ("output_shape", rank)):
        if settings.get(name) and len(settings[name]) != size:
            yield f"has {len(settings[name])} numbers as its attribute '{name}', which needs {size}"
    yield from _output_padding(settings, rank)


def _output_padding(settings: Mapping[str, Any], rank: int) -> Reasons:
    added = settings.get("output_padding")
    if added and len(added) != rank:
        yield f"has {len(added)} numbers as its attribute 'output_padding', which needs {rank}"
    ones = [1] * rank
    steps = zip(added or (), settings.get("strides") or ones, settings.get("dilations") or ones, strict=False)
    for number, stride, dilation in steps:
        if number >= max(stride, dilation):
            yield (
                f"has {number} as its attribute 'output_padding', which has to be less than the stride {stride} or the "
                f"dilation {dilation}"
            )


def _quantised_convolution(of: _Checked) -> Reasons:
    weight, group = of.known(3), of.attributes.get("group", 1)
    for index, name in ((1, "x_scale"), (2, "x_zero_point"), (6, "y_scale"), (7, "y_zero_point")):
        yield from _single_or(of, index, name, 1, "all channels")
    if weight is None:
        return
    if len(weight) != len(of.shape) or weight[1] * group != of.channels or weight[0] % group:
        yield f"has weights of shape {list(weight)} in {group} groups for an input of shape {list(of.shape)}"
    made = f"{weight[0]} channels of its result"
    for index, name in ((4, "w_scale"), (5, "w_zero_point")):
        yield from _single_or(of, index, name, weight[0], made)
    yield from _length(of, 8, "B", weight[0], made)


def _one_hot(of: _Checked) -> Reasons:
    depth, values = of.editor.constant(of.node.input[1]), of.known(2)
    if depth is not None and depth.size != 1:
        yield f"has {list(depth.shape)} as the shape of its input 'depth', which is one number"
    if depth is not None and not 1 <= depth.reshape(-1)[0] < math.inf:
        yield f"has {depth.reshape(-1)[0]} as its input 'depth', which is a number of classes"
    if values is not None and values != (_CLASSES,):
        yield f"has {list(values)} as the shape of its input 'values', which are those of off and on"


def _quantisation(of: _Checked) -> Reasons:
    scale, zero = of.known(1), of.known(2)
    if scale is not None and zero is not None and scale != zero and {math.prod(scale), math.prod(zero)} != {1}:
        yield f"has scales of shape {list(scale)} with zero points of shape {list(zero)}, which need the same"


def _selection(of: _Checked) -> Reasons:
    axis: int = of.attributes.get("axis", 0)
    others = math.prod([size for index, size in enumerate(of.shape) if index != axis % len(of.shape)])
    if of.shape and others and of.shape[axis] == 0:
        yield f"selects an element among none, along axis {axis} of an input of shape {list(of.shape)}"


def _global_pooling(of: _Checked) -> Reasons:
    if 0 in of.shape[2:] and 0 not in of.shape[:2]:
        yield f"takes all pixels of images that have none, in an input of shape {list(of.shape)}"


_CHECKS: Mapping[str, Callable[[_Checked], Reasons]] = {
    "ArgMax": _selection,
    "ArgMin": _selection,
    "BatchNormalization": _batch_normalisation,
    "ConvTranspose": _transposed_convolution,
    "DequantizeLinear": _quantisation,
    "GlobalAveragePool": _global_pooling,
    "GlobalLpPool": _global_pooling,
    "GlobalMaxPool": _global_pooling,
    "GroupNormalization": _group_normalisation,
    "OneHot": _one_hot,
    "QLinearConv": _quantised_convolution,
    "QuantizeLinear": _quantisation,
}
