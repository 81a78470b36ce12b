"""Fourier transforms as products with constant matrices."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from onnx import ModelProto, NodeProto, helper

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes, opset, optional_input, rewrite_nodes
from sartor.onnx_model.graphs.walk import describe_node, nodes

# The matrix has four times the square of this many elements.
_MAX_LENGTH = 4096
_ROUNDED_OFF = 1e-12
_AXIS_IS_INPUT = 20

ROOTS_OF_UNITY = "roots_of_unity"
"""A part of the names of the constant matrices, whose elements are rounded as parts of the unit circle."""


@dataclass(frozen=True)
class _Transform:
    """One transform: how many samples it is over, and which of ONNX's options it has."""

    length: int
    inverse: bool
    onesided: bool

    def matrix(self, samples: int, is_complex: bool) -> Array:
        """[samples * parts in, samples out * parts out], real and imaginary parts side by side."""
        kept = self.length // 2 + 1
        bins = kept if self.onesided and not self.inverse else self.length
        rows = min(samples, kept if self.onesided and self.inverse else self.length)
        angle = 2 * np.pi * (np.outer(np.arange(rows), np.arange(bins)) % self.length) / self.length
        cos, sin = np.cos(angle), np.sin(angle) if self.inverse else -np.sin(angle)
        from_real = np.stack([cos, sin], -1)
        from_imaginary = np.stack([-sin, cos], -1)
        parts = np.stack([from_real, from_imaginary], 1) if is_complex else from_real[:, None]
        if self.onesided and self.inverse:
            # The other half of the spectrum is the mirror image.
            weight = np.full(rows, 2.0)
            weight[0] = 1.0
            if self.length % 2 == 0 and rows == kept:
                weight[-1] = 1.0
            parts = (parts * weight[:, None, None, None])[..., :1]
        if self.inverse:
            parts = parts / self.length
        parts = np.where(np.abs(parts) < _ROUNDED_OFF, 0.0, parts)
        return parts.reshape(rows * parts.shape[1], -1)


def written_sides(model: ModelProto) -> tuple[str, ...]:
    """Write that an STFT gives half of the spectrum where its attribute is left out; returns the names of the nodes.

    ONNX's inference of shapes takes it for the whole one then.
    """
    halves = [node for node in nodes(model) if _is_half_by_default(node)]
    for node in halves:
        node.attribute.append(helper.make_attribute("onesided", 1))
    return tuple(node.name for node in halves)


def _is_half_by_default(node: NodeProto) -> bool:
    return (
        node.op_type == "STFT" and not node.domain and all(attribute.name != "onesided" for attribute in node.attribute)
    )


def multiply_fourier(model: ModelProto) -> tuple[str, ...]:
    """Write DFT and STFT as MatMul with a constant matrix; IREE 3.13 imports only some transforms of real values.

    Raises:
        UnsupportedModelError: an axis, length or step that is computed, or a transform that is too long.
    """
    return rewrite_nodes(model, partial(_lowered, version=opset(model)))


def _lowered(node: NodeProto, editor: GraphEditor, version: int) -> list[NodeProto] | None:
    if node.op_type == "DFT":
        return _dft(node, editor, version)
    if node.op_type == "STFT":
        return _stft(node, editor)
    return None


def _dft(node: NodeProto, editor: GraphEditor, version: int) -> list[NodeProto] | None:
    shape, settings = editor.shape(node.input[0]), attributes(node)
    if shape is None:
        return None
    given, default = _number(node, editor, 2), settings.get("axis", 1) if version < _AXIS_IS_INPUT else -2
    axis = (default if given is None else given) % len(shape)
    inverse, onesided = bool(settings.get("inverse")), bool(settings.get("onesided"))
    usual = 2 * (shape[axis] - 1) if inverse and onesided else shape[axis]
    length = _number(node, editor, 1)
    transform = _Transform(usual if length is None else length, inverse, onesided)
    emit = Emitter(editor, node)
    _transformed(emit, node.input[0], shape, axis, transform)
    return emit.nodes


def _stft(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    shape, window = editor.shape(node.input[0]), optional_input(node, 2)
    step, length = _number(node, editor, 1), _number(node, editor, 3)
    if length is None and window:
        (length,) = editor.shape(window) or (None,)
    if shape is None or step is None or length is None:
        return None
    emit = Emitter(editor, node)
    starts = np.arange(0, shape[1] - length + 1, step)
    rows = starts[:, None] + np.arange(length)
    frames = emit("Gather", node.input[0], emit.constant(rows, "rows"), part="frames", axis=1)
    if len(shape) == 2:
        frames = emit("Unsqueeze", frames, emit.constant([-1], "part"), part="parts")
    if window:
        column = emit("Unsqueeze", window, emit.constant([-1], "last"), part="column")
        frames = emit("Mul", frames, column, part="window")
    framed = (shape[0], len(starts), length, shape[2] if len(shape) > 2 else 1)
    transform = _Transform(length, False, bool(attributes(node).get("onesided", 1)))
    _transformed(emit, frames, framed, 2, transform)
    return emit.nodes


def _transformed(emit: Emitter, value: str, shape: tuple[int, ...], axis: int, transform: _Transform) -> None:
    """Transform one axis; the last holds the real part, and the imaginary part if there is one."""
    samples, parts, rank = shape[axis], shape[-1], len(shape)
    if not 1 <= transform.length <= _MAX_LENGTH:
        raise UnsupportedModelError(
            f"{describe_node(emit.node)} transforms {transform.length} samples; up to {_MAX_LENGTH} are supported"
        )
    matrix = transform.matrix(samples, parts == 2)
    used = len(matrix) // parts
    if used < samples:
        bounds = [emit.constant([bound], hint) for bound, hint in ((0, "first"), (used, "end"), (axis, "axis"))]
        value = emit("Slice", value, *bounds, part="cut")
    order = [*(index for index in range(rank - 1) if index != axis), axis, rank - 1]
    value = emit("Transpose", value, part="axis_last", perm=order)
    outer = [shape[axis_before] for axis_before in order[:-2]]
    value = emit("Reshape", value, emit.constant([*outer, used * parts], "flat"), part="flatten")
    value = emit("MatMul", value, emit.constant(matrix.astype(emit.dtype(emit.node.input[0])), ROOTS_OF_UNITY))
    made = 1 if transform.inverse and transform.onesided else 2
    value = emit("Reshape", value, emit.constant([*outer, -1, made], "parts"), part="part")
    back = [int(place) for place in np.argsort(order)]
    emit("Transpose", value, part="axis_back", output=emit.node.output[0], perm=back)


def _number(node: NodeProto, editor: GraphEditor, index: int) -> int | None:
    """An operand that has to be known; None if it is left out."""
    name = optional_input(node, index)
    if not name:
        return None
    value = editor.constant(name)
    if value is None:
        raise UnsupportedModelError(f"{describe_node(node)} computes its lengths or axis; constants were expected")
    return int(value.item())
