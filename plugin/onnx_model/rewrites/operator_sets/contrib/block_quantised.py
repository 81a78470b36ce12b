"""Lowers products and look-ups of weights that ONNX Runtime stores in few bits, quantised block by block.

The weights must be constant; they are dequantised when the model is prepared.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from onnx import NodeProto, TensorProto

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes, optional_input
from sartor.onnx_model.graphs.walk import describe_node
from sartor.onnx_model.rewrites.number_types.quantized import Lowering

_IN_8_BITS = 4


def rounds_products(node: NodeProto) -> bool:
    """Whether ONNX Runtime may round what a node multiplies by such weights to 8 bits, which is up to it."""
    is_product = node.op_type == "MatMulNBits" and bool(node.domain)
    return is_product and attributes(node).get("accuracy_level") == _IN_8_BITS


def unpacked(data: Array, bits: int) -> Array:
    """Unsigned integers of ``bits`` bits, packed along the last axis into bytes, lowest bits first."""
    if bits == 8:
        return data
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    codes: Array = (data[..., None] >> shifts) & (2**bits - 1)
    return codes.reshape(*data.shape[:-1], -1)


def _constant(node: NodeProto, editor: GraphEditor, index: int) -> Array | None:
    """The values of an optional input, which must be constant."""
    name = optional_input(node, index)
    values = editor.constant(name) if name else None
    if name and values is None:
        raise UnsupportedModelError(
            f"{describe_node(node)} has packed weights that are not constant; export it with weights in floats"
        )
    return values


def _zero_points(found: Array | None, rows: int, blocks: int, bits: int) -> Array:
    """One zero point per row and block, [rows, blocks, 1]; packed ones fill whole bytes in each row."""
    if found is None:
        return np.full((rows, blocks, 1), float(2 ** (bits - 1)))
    if found.dtype == np.uint8:
        return unpacked(found.reshape(rows, -1), bits)[:, :blocks, None].astype(np.float64)
    return found.reshape(rows, blocks, 1).astype(np.float64)


def _matmul(node: NodeProto, editor: GraphEditor) -> list[NodeProto]:
    """``MatMulNBits(A, B, scales, zero_points, group_indices, bias)``; B is [N, blocks of K, packed block]."""
    found = attributes(node)
    rows, depth, size, bits = found["N"], found["K"], found["block_size"], found.get("bits", 4)
    packed, scales = _constant(node, editor, 1), _constant(node, editor, 2)
    if packed is None or scales is None or bits not in (2, 4, 8) or found.get("weight_prepacked"):
        raise UnsupportedModelError(f"{describe_node(node)} has weights of {bits} bits; 2, 4 or 8 were expected")
    if _constant(node, editor, 4) is not None:
        raise UnsupportedModelError(
            f"{describe_node(node)} reorders its weights by group indices; quantise the model without act-order"
        )
    blocks = -(-depth // size)
    points = _zero_points(_constant(node, editor, 3), rows, blocks, bits)
    codes = unpacked(packed.reshape(rows, blocks, -1), bits).astype(np.float64)
    values = (codes - points) * scales.reshape(rows, blocks, 1).astype(np.float64)
    emit = Emitter(editor, node)
    kind = emit.dtype(node.input[0])
    weight = emit.constant(np.ascontiguousarray(values.reshape(rows, -1)[:, :depth].T.astype(kind)), "weight")
    bias = optional_input(node, 5)
    product = emit("MatMul", node.input[0], weight, output="" if bias else node.output[0])
    if bias:
        emit("Add", product, bias, part="bias", output=node.output[0])
    return emit.nodes


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
