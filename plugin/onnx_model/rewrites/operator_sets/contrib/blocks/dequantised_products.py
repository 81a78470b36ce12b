"""Products by weights that DequantizeLinear makes of small integers, as products by weights in blocks.

These are blocks along the depth, or a scale for each column, as ONNX writes both since opset 21.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from sartor.codegen.ir.encoding import BlockEncoding, packed
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes, optional_input
from sartor.onnx_model.rewrites.operator_sets.contrib.blocks.block_quantised import DOMAIN, encoded_product
from sartor.onnx_model.rewrites.operator_sets.contrib.blocks.block_weight import BlockWeight, joined_points

# Bits of a code, and what makes it one without a sign.
_TYPES: Mapping[int, tuple[int, int]] = {
    TensorProto.INT4: (4, 8),
    TensorProto.UINT4: (4, 0),
    TensorProto.INT8: (8, 128),
    TensorProto.UINT8: (8, 0),
    TensorProto.INT2: (2, 2),
    TensorProto.UINT2: (2, 0),
}
_REALS: Mapping[int, np.dtype[Any]] = {
    TensorProto.FLOAT: np.dtype(np.float32),
    TensorProto.FLOAT16: np.dtype(np.float16),
}
_IN_BYTES = (TensorProto.INT8, TensorProto.UINT8)
_LEAST_BLOCK = 16
_VERSION = 1


def encode_products(model: ModelProto) -> tuple[str, ...]:
    """Write products of f32 by such weights as ``MatMulNBits``, and those of f16 as ones of f32 between casts; returns
    their names."""
    editor = GraphEditor(model.graph)

    def rule(node: NodeProto) -> list[NodeProto] | None:
        product = _Product.of(node, editor)
        weight = None if product is None else product.weight()
        return None if product is None or weight is None else product.nodes(weight)

    changed = editor.rewrite(rule)
    if changed and all(item.domain != DOMAIN for item in model.opset_import):
        model.opset_import.append(helper.make_opsetid(DOMAIN, _VERSION))
    return changed


@dataclass(frozen=True)
class _Product:
    """A product whose RHS is dequantised.

    Attributes:
        emit: emits the nodes that replace it.
        source: the DequantizeLinear.
        is_turned: whether its result is transposed before it is multiplied.
        values: the integers, [K, N], or [N, K] if it is.
    """

    emit: Emitter
    source: NodeProto
    is_turned: bool
    values: Array

    @classmethod
    def of(cls, node: NodeProto, editor: GraphEditor) -> _Product | None:
        """The product that a node computes; None if it is none of floats by constant integers of two dimensions."""
        if node.domain or node.op_type not in ("MatMul", "Gemm") or editor.is_nested:
            return None
        settings, lhs = attributes(node), editor.shape(node.input[0])
        if editor.element_type(node.input[0]) not in _REALS or 0 in (lhs or ()) or len(lhs or (0, 0)) < 2:
            return None
        if settings.get("transA") or settings.get("alpha", 1.0) != 1.0 or settings.get("beta", 1.0) != 1.0:
            return None
        source, is_turned = editor.producer(node.input[1]), bool(settings.get("transB"))
        if source is not None and source.op_type == "Transpose" and attributes(source).get("perm", [1, 0]) == [1, 0]:
            source, is_turned = editor.producer(source.input[0]), not is_turned
        if source is None or source.op_type != "DequantizeLinear" or source.domain:
            return None
        values = editor.constant(source.input[0])
        kind = editor.element_type(source.input[0])
        if values is None or values.ndim != 2 or 0 in values.shape or kind not in _TYPES:
            return None
        if kind in _IN_BYTES and not attributes(source).get("block_size"):
            return None
        return cls(Emitter(editor, node), source, is_turned, values)

    def weight(self) -> BlockWeight | None:
        """The weight in blocks; None if its blocks lie in another way, or are not constant."""
        editor = self.emit.editor
        scales, points = (self._of_blocks(optional_input(self.source, index)) for index in (1, 2))
        kind = _REALS[editor.element_type(self.emit.node.input[0])]
        if scales is None or (optional_input(self.source, 2) and points is None) or scales.dtype != kind:
            return None
        bits, offset = _TYPES[editor.element_type(self.source.input[0])]
        columns = self.values if self.is_turned else self.values.T
        block = self._block
        of = BlockEncoding(bits, block, columns.shape[1], columns.shape[0])
        codes = np.zeros((of.columns, of.blocks * block), np.uint8)
        codes[:, : of.depth] = columns.astype(np.int16) + offset
        origin = np.zeros(scales.shape, np.int16) if points is None else points.astype(np.int16)
        origin += offset
        stored = None
        if (origin != of.middle).any():
            stored = joined_points(origin, of)
        return BlockWeight.of(self.emit.node, of, packed(codes, bits), scales.astype(np.float32), stored)

    @property
    def _block(self) -> int:
        """Rows of a block: those of the model, or for a scale for each column so many that few are filled up."""
        given = int(attributes(self.source).get("block_size", 0))
        depth = self.values.shape[1 if self.is_turned else 0]
        return given or max(_LEAST_BLOCK, depth & -depth)

    def _of_blocks(self, name: str) -> Array | None:
        """Scales or zero points, [N, blocks]; None if they are not constant, or belong to other parts of the matrix."""
        values, (depth, columns) = self.emit.editor.constant(name) if name else None, self._sizes
        if values is None:
            return None
        settings, block = attributes(self.source), self._block
        blocks, axis = -(-depth // block), settings.get("axis", 1) % 2
        if settings.get("block_size"):
            is_along_depth = axis == (1 if self.is_turned else 0)
            is_power = block >= _LEAST_BLOCK and block & (block - 1) == 0
            if not is_along_depth or not is_power or values.shape != ((columns, blocks) if axis else (blocks, columns)):
                return None
            return values if axis else values.T
        if values.size == 1:
            return np.full((columns, blocks), values.reshape(-1)[0])
        if values.shape != (columns,) or axis != (0 if self.is_turned else 1):
            return None
        return np.repeat(values[:, None], blocks, axis=1)

    @property
    def _sizes(self) -> tuple[int, int]:
        """K and N."""
        first, second = self.values.shape
        return (second, first) if self.is_turned else (first, second)

    def nodes(self, weight: BlockWeight) -> list[NodeProto]:
        """The nodes that compute the product."""
        node, emit = self.emit.node, self.emit
        bias, lhs, output = optional_input(node, 2), node.input[0], node.output[0]
        kind = emit.editor.element_type(lhs)
        is_half = kind == TensorProto.FLOAT16
        if is_half:
            lhs = emit("Cast", lhs, part="wide", to=TensorProto.FLOAT)
        product = encoded_product(emit, lhs, weight, "" if bias or is_half else output)
        if is_half:
            product = emit("Cast", product, part="narrow", output="" if bias else output, to=kind)
        if bias:
            emit("Add", product, bias, part="bias", output=output)
        return emit.nodes
