"""Lowers products and look-ups of weights that ONNX Runtime stores in few bits, quantised block by block.

The weights must be constant. Those of products of f32 stay as they are; others are dequantised when the model is
prepared.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from onnx import NodeProto, TensorProto

from sartor.codegen.ir.encoding import BlockEncoding, unpacked
from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes, optional_input
from sartor.onnx_model.graphs.walk import describe_node
from sartor.onnx_model.rewrites.number_types.quantized import Lowering

DOMAIN = "com.microsoft"
"""The domain of ONNX Runtime's operators."""
_PRODUCT = "MatMulNBits"
_SIZES = {"K", "N", "bits", "block_size"}
_BITS = (2, 4, 8)
_BFLOAT = np.dtype(ml_dtypes.bfloat16)
# The LHS, codes, scales and zero points.
_INPUTS = 4


def _constant(node: NodeProto, editor: GraphEditor, index: int) -> Array | None:
    """The values of an optional input, which must be constant."""
    name = optional_input(node, index)
    values = editor.constant(name) if name else None
    if name and values is None:
        raise UnsupportedModelError(
            f"{describe_node(node)} has packed weights that are not constant; export it with weights in floats"
        )
    return values


def _matmul(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """``MatMulNBits(A, B, scales, zero_points, group_indices, bias)``; B is [N, blocks of K, packed block].

    Products of f32 keep their weights as they are, in a node of its first inputs alone; others are dequantised.
    """
    if is_kept(node, editor):
        return None
    weight = _Weight.of(node, editor)
    emit = Emitter(editor, node)
    bias = optional_input(node, 5)
    output = "" if bias else node.output[0]
    if _may_stay(node, editor):
        given, of = [node.input[0], *weight.stored(emit)], weight.encoding
        sizes: dict[str, Any] = {"K": of.depth, "N": of.columns, "bits": of.bits, "block_size": of.block}
        product = emit(_PRODUCT, *given, output=output, domain=DOMAIN, **sizes)
    else:
        values = weight.decoded().astype(emit.dtype(node.input[0]))
        product = emit("MatMul", node.input[0], emit.constant(np.ascontiguousarray(values), "weight"), output=output)
    if bias:
        emit("Add", product, bias, part="bias", output=node.output[0])
    return emit.nodes


def is_kept(node: NodeProto, editor: GraphEditor) -> bool:
    """Whether a node is a product whose weight stays encoded: of f32, with constant parts whose sizes fit, and without
    a bias or any permission to round."""
    is_product = node.op_type == _PRODUCT and node.domain == DOMAIN and _may_stay(node, editor)
    if not is_product or len(node.input) > _INPUTS or set(attributes(node)) != _SIZES:
        return False
    of = _encoding(node)
    shapes: list[Collection[tuple[int, ...]]] = [
        [of.codes.shape],
        [(of.columns * of.blocks,)],
        [(of.columns * -(-of.blocks * of.bits // 8),), (of.columns * of.blocks,)],
    ]
    parts = list(zip(node.input[1:], shapes, strict=False))
    is_fitting = all(editor.is_constant(name) and editor.shape(name) in allowed for name, allowed in parts)
    scales = editor.element_type(node.input[2])
    is_supported = of.bits in _BITS and scales in (TensorProto.FLOAT, TensorProto.FLOAT16)
    return is_fitting and is_supported


def _may_stay(node: NodeProto, editor: GraphEditor) -> bool:
    """Whether the LHS of a product is of f32, has elements, and belongs to the main graph."""
    lhs = node.input[0]
    is_real = editor.element_type(lhs) == TensorProto.FLOAT
    return is_real and not editor.is_nested and 0 not in (editor.shape(lhs) or ())


def _encoding(node: NodeProto) -> BlockEncoding:
    found = attributes(node)
    return BlockEncoding(found.get("bits", 4), found["block_size"], found["K"], found["N"])


@dataclass(frozen=True)
class _Weight:
    """The weight of a product.

    Attributes:
        encoding: how it is stored.
        codes: [N, blocks, bytes of a block].
        scales: [N, blocks].
        points: packed as the operator has them, in bytes, or [N, blocks] in the scales' type; None for the middle.
    """

    encoding: BlockEncoding
    codes: Array
    scales: Array
    points: Array | None

    @classmethod
    def of(cls, node: NodeProto, editor: GraphEditor) -> _Weight:
        """The weight of a node.

        Raises:
            UnsupportedModelError: if the weight is not constant, its sizes do not fit, or its encoding is not
                supported.
        """
        of = _encoding(node)
        codes, scales, points = (_constant(node, editor, index) for index in (1, 2, 3))
        if codes is None or scales is None or of.bits not in _BITS or attributes(node).get("weight_prepacked"):
            raise UnsupportedModelError(f"{describe_node(node)} has weights of {of.bits} bits; 2, 4 or 8 were expected")
        if _constant(node, editor, 4) is not None:
            raise UnsupportedModelError(
                f"{describe_node(node)} reorders its weights by group indices; quantise the model without act-order"
            )
        _check_size(node, "weights", codes, of.codes.elements)
        _check_size(node, "scales", scales, of.columns * of.blocks)
        if points is not None and points.dtype == np.uint8:
            _check_size(node, "zero points", points, of.columns * -(-of.blocks * of.bits // 8))
        elif points is not None:
            _check_size(node, "zero points", points, of.columns * of.blocks)
        if scales.dtype == _BFLOAT:
            # Later steps hold constants of this type in f32.
            scales, points = (_widened(each) for each in (scales, points))
            assert scales is not None
        return cls(of, codes.reshape(of.codes.shape), scales.reshape(of.columns, of.blocks), points)

    def stored(self, emit: Emitter) -> list[str]:
        """Names of constants in the shapes that ONNX Runtime takes in any version."""
        parts = {"codes": self.codes, "scales": self.scales.reshape(-1)}
        if self.points is not None:
            parts["points"] = self.points.reshape(-1)
        return [emit.constant(array, name) for name, array in parts.items()]

    def decoded(self) -> Array:
        """The weight [K, N] in float64."""
        return self.encoding.decoded(self.codes, self.scales, split_points(self.points, self.encoding))


def _widened(array: Array | None) -> Array | None:
    return array.astype(np.float32) if array is not None and array.dtype == _BFLOAT else array


def split_points(points: Array | None, encoding: BlockEncoding) -> Array | None:
    """One zero point per column and block, [N, blocks], in uint8 if they were packed, each column in whole bytes."""
    if points is None:
        return None
    if points.dtype != np.uint8:
        return points.reshape(encoding.columns, encoding.blocks)
    return unpacked(points.reshape(encoding.columns, -1), encoding.bits)[:, : encoding.blocks]


def _check_size(node: NodeProto, what: str, array: Array, elements: int) -> None:
    if array.size != elements:
        raise UnsupportedModelError(
            f"{describe_node(node)} has {array.size} elements of {what}; {elements} were expected from its K, N, bits "
            "and block_size; quantise the model again"
        )


def _gather(node: NodeProto, editor: GraphEditor) -> list[NodeProto]:
    """``GatherBlockQuantized(data, indices, scales, zero_points)``; blocks lie along the last axis."""
    found = attributes(node)
    data, scales = _constant(node, editor, 0), _constant(node, editor, 2)
    kind, bits = editor.element_type(node.input[0]), found.get("bits", 4)
    if data is None or scales is None or found.get("quantize_axis", 1) % data.ndim != data.ndim - 1:
        raise UnsupportedModelError(f"{describe_node(node)} quantises another axis than the last, which is unsupported")
    is_packed = kind == TensorProto.UINT8
    codes = (unpacked(data, bits) if is_packed else data).astype(np.float64)
    points = _constant(node, editor, 3)
    offset: Array = np.full((), float(2 ** (bits - 1) if is_packed else 0))
    if points is not None:
        given = unpacked(points, bits)[..., : scales.shape[-1]] if is_packed else points
        offset = np.repeat(given.astype(np.float64), found.get("block_size", 128), axis=-1)[..., : codes.shape[-1]]
    factors = np.repeat(scales.astype(np.float64), found.get("block_size", 128), axis=-1)[..., : codes.shape[-1]]
    emit = Emitter(editor, node)
    table = emit.constant(((codes - offset) * factors).astype(scales.dtype), "table")
    emit("Gather", table, node.input[1], output=node.output[0], axis=found.get("gather_axis", 0))
    return emit.nodes


BLOCK_QUANTISED: Mapping[str, Lowering] = {"GatherBlockQuantized": _gather, "MatMulNBits": _matmul}
