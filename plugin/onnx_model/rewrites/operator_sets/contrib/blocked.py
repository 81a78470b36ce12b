"""Takes back the layout in blocks of channels that ONNX Runtime's optimiser chose for one kind of processor.

A tensor in that layout has channels that fill whole blocks; what fills the last one means nothing. Here images keep the
channels that they have, in the usual order. The layout of a filter follows from the size of a block
(``MlasReorderFilterOIHWBiBo`` and ``MlasReorderFilterOIHWBo`` of ONNX Runtime).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes, editors, optional_input
from sartor.onnx_model.graphs.infer import infer_shapes
from sartor.onnx_model.graphs.open_shapes import why_open
from sartor.onnx_model.graphs.walk import describe_node, nodes
from sartor.onnx_model.operator_types.block_size import LARGE_BLOCK, SMALL_BLOCK, block_size_here
from sartor.onnx_model.operator_types.schemas import BLOCKED_DOMAIN, CONTRIB_DOMAIN
from sartor.onnx_model.rewrites.operator_sets.normal_domains import declare_contrib

_SAVE_AGAIN = "save the optimised model with ORT_ENABLE_EXTENDED, or take the model from before"


def plain_layouts(model: ModelProto) -> tuple[str, ...]:
    """Rewrite the operators of ``com.microsoft.nchwc`` to those of images in the usual order.

    Returns:
        The names of the rewritten nodes.

    Raises:
        UnsupportedModelError: a filter is not constant, a shape is not known, or the blocks are those of another
            processor than this one, where ONNX Runtime cannot check results.
    """
    if all(node.domain != BLOCKED_DOMAIN for node in nodes(model.graph)):
        return ()
    infer_shapes(model)
    changed: list[str] = []
    for editor in editors(model.graph):
        if any(node.domain == BLOCKED_DOMAIN for node in editor.nodes):
            changed.extend(editor.rewrite(_Layouts(editor).rule))
    declare_contrib(model)
    return tuple(changed)


class _Layouts:
    """Rewrites the nodes of one graph in order, and knows how many channels each result has by then."""

    def __init__(self, editor: GraphEditor) -> None:
        self._editor = editor
        self._block = _block_size(editor)
        self._counts: dict[str, int] = {}

    def rule(self, node: NodeProto) -> list[NodeProto] | None:
        """The nodes for one in blocks."""
        if node.domain != BLOCKED_DOMAIN:
            return None
        if node.op_type not in _RULES:
            raise UnsupportedModelError(f"{describe_node(node)} is not known; {_SAVE_AGAIN}")
        emit = Emitter(self._editor, node)
        # Its description counts what fills the last block.
        self._editor.forget(node.output[0])
        self._counts[node.output[0]] = _RULES[node.op_type](self, emit)
        return emit.nodes

    def _channels(self, name: str) -> int:
        """How many channels an image has."""
        if name in self._counts:
            return self._counts[name]
        shape = self._editor.shape(name)
        if shape is None:
            raise UnsupportedModelError(
                f"an operator of {BLOCKED_DOMAIN} needs channels that are known: {why_open([name], self._editor)}"
            )
        return shape[1]

    def _fitted(self, emit: Emitter, name: str, count: int, part: str) -> str:
        """An image with a number of channels: without its last ones, or with others of zeros."""
        present = self._channels(name)
        if count == present:
            return name
        if count < present:
            ends = [emit.constant([value], hint) for value, hint in ((0, "start"), (count, "end"), (1, "axis"))]
            return emit("Slice", name, *ends, part=part)
        return emit("Pad", name, emit.constant([0, 0, 0, 0, 0, count - present, 0, 0], "pads"), part=part)

    def conv(self, emit: Emitter) -> int:
        """A FusedConv without the channels that fill blocks, as far as their filters and biases are zeros."""
        node, settings = emit.node, attributes(emit.node)
        filters, bias = self._filters(node), self._constant(node, 2)
        groups, addend = int(settings.get("group", 1)), optional_input(node, 3)
        is_depthwise = groups > 1 and filters.shape[1] == 1
        count, present = len(filters), self._channels(node.input[0])
        if groups == 1:
            filters = filters[:, :present]
        if groups == 1 or is_depthwise:
            count = max(_used(filters, bias, settings), self._channels(addend) if addend else 1)
            count = max(count, present) if is_depthwise else count
        image = node.input[0]
        if groups > 1:
            image = self._fitted(emit, image, count if is_depthwise else groups * filters.shape[1], "channels")
        operands = [image, emit.constant(np.ascontiguousarray(filters[:count]), "filter"), ""]
        operands[2] = emit.constant(bias[:count], "bias") if bias is not None else ""
        if addend:
            operands.append(self._fitted(emit, addend, count, "addend"))
        settings["group"] = count if is_depthwise else groups
        settings.pop("kernel_shape", None)
        emit("FusedConv", *operands, output=node.output[0], domain=CONTRIB_DOMAIN, **settings)
        return count

    def _constant(self, node: NodeProto, index: int) -> Array | None:
        name = optional_input(node, index)
        values = self._editor.constant(name) if name else None
        if name and values is None:
            raise UnsupportedModelError(f"{describe_node(node)} has weights in blocks that are computed; {_SAVE_AGAIN}")
        return values

    def _filters(self, node: NodeProto) -> Array:
        """A filter [outputs, inputs, rows, columns] in the usual order."""
        values = self._constant(node, 1)
        assert values is not None
        outputs, inputs, *window = values.shape
        block = self._block
        if inputs % block:
            blocks = values.reshape(outputs // block, inputs, *window, block)
            return np.moveaxis(blocks, -1, 1).reshape(values.shape)
        blocks = values.reshape(outputs // block, inputs // block, *window, block, block)
        # To [output blocks, outputs of a block, input blocks, inputs of a block, rows, columns].
        return np.transpose(blocks, (0, 5, 1, 4, 2, 3)).reshape(values.shape)

    def pooled(self, emit: Emitter) -> int:
        """The standard's pooling of the same name."""
        emit(emit.node.op_type, emit.node.input[0], output=emit.node.output[0], **attributes(emit.node))
        return self._channels(emit.node.input[0])

    def upsampled(self, emit: Emitter) -> int:
        """A Resize by whole factors."""
        settings, node = attributes(emit.node), emit.node
        scales = emit.constant(np.asarray(settings["scales"], np.float32), "scales")
        mode = settings.get("mode", "nearest")
        emit(
            "Resize",
            node.input[0],
            "",
            scales,
            output=node.output[0],
            mode=mode,
            coordinate_transformation_mode=settings.get("coordinate_transformation_mode", "asymmetric"),
            nearest_mode="floor" if mode == "nearest" else None,
        )
        return self._channels(node.input[0])

    def blocked(self, emit: Emitter) -> int:
        """An image from outside, whose channels may be last."""
        node = emit.node
        shape = self._editor.shape(node.input[0])
        if attributes(node).get("channels_last"):
            emit("Transpose", node.input[0], output=node.output[0], perm=[0, 3, 1, 2])
            return shape[-1] if shape else self._channels(node.input[0])
        emit("Identity", node.input[0], output=node.output[0])
        return self._channels(node.input[0])

    def ordered(self, emit: Emitter) -> int:
        """An image for outside, with the channels that it names."""
        node, settings = emit.node, attributes(emit.node)
        image = self._fitted(emit, node.input[0], int(settings["channels"]), "channels")
        if settings.get("channels_last"):
            emit("Transpose", image, output=node.output[0], perm=[0, 2, 3, 1])
        else:
            emit("Identity", image, output=node.output[0])
        return int(settings["channels"])


_RULES: Mapping[str, Callable[[_Layouts, Emitter], int]] = {
    "AveragePool": _Layouts.pooled,
    "Conv": _Layouts.conv,
    "GlobalAveragePool": _Layouts.pooled,
    "GlobalMaxPool": _Layouts.pooled,
    "MaxPool": _Layouts.pooled,
    "ReorderInput": _Layouts.blocked,
    "ReorderOutput": _Layouts.ordered,
    "Upsample": _Layouts.upsampled,
}
BLOCKED_OPERATORS = frozenset(_RULES)


def _used(filters: Array, bias: Array | None, settings: Mapping[str, Any]) -> int:
    """How many channels a convolution has without the last ones, whose results are zeros."""
    if not _keeps_zeros(settings):
        return len(filters)
    rows = filters.reshape(len(filters), -1).any(axis=1)
    used = np.nonzero(rows if bias is None else rows | (bias != 0))[0]
    return int(used[-1]) + 1 if used.size else 1


def _keeps_zeros(settings: Mapping[str, Any]) -> bool:
    """Whether the fused activation, if there is one, leaves zeros as they are."""
    name = settings.get("activation", "")
    if name == "Clip":
        least, most = settings["activation_params"]
        return bool(least <= 0 <= most)
    return name in ("", "LeakyRelu", "Relu", "Tanh")


def _block_size(editor: GraphEditor) -> int:
    """How many channels a block has, by the filters; where these fit both sizes, that of this machine.

    Raises:
        UnsupportedModelError: it is not this machine's.
    """
    size, here = None, block_size_here()
    for node in editor.nodes:
        shape = editor.shape(node.input[1]) if node.domain == BLOCKED_DOMAIN and node.op_type == "Conv" else None
        if shape and shape[0] % LARGE_BLOCK:
            size = SMALL_BLOCK
    size = size or here or LARGE_BLOCK
    if size != here:
        node = next(node for node in editor.nodes if node.domain == BLOCKED_DOMAIN)
        raise UnsupportedModelError(
            f"{describe_node(node)} has blocks of {size} channels, for another processor than this one, so that ONNX "
            f"Runtime cannot check results here; {_SAVE_AGAIN}"
        )
    return size
