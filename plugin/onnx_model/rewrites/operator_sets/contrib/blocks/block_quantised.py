"""Lowers products and look-ups of weights that ONNX Runtime stores in few bits, quantised block by block.

The weights must be constant. Those of products of floats, and tables whose rows are looked up, stay as they are, but
for codes that lie across bytes; others are dequantised when the model is prepared.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto

from sartor.codegen.ir.encoding import BlockEncoding
from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes, optional_input
from sartor.onnx_model.graphs.walk import describe_node
from sartor.onnx_model.rewrites.number_types.quantized import Lowering
from sartor.onnx_model.rewrites.operator_sets.contrib.blocks.block_weight import BlockWeight, constant_part
from sartor.onnx_model.rewrites.operator_sets.contrib.blocks.looked_up_rows import LOOK_UP, is_encoded_look_up, look_up

DOMAIN = "com.microsoft"
"""The domain of ONNX Runtime's operators."""
_PRODUCT = "MatMulNBits"
_SIZES = {"K", "N", "bits", "block_size"}
_LEVEL = "accuracy_level"
# By this level a model permits to round the other operand to 8 bits, block by block; others name floats.
_IN_BYTES = 4
_BITS, _LEAST_BITS, _MOST_BITS = (2, 4, 8), 2, 8
# The LHS, codes, scales and zero points.
_INPUTS = 4
# What rows are multiplied by that fill a block up.
_NOTHING = np.zeros((), np.float32)
_HALVES, _F32 = (TensorProto.FLOAT16, TensorProto.BFLOAT16), np.dtype(np.float32)


def _matmul(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """``MatMulNBits(A, B, scales, zero_points, group_indices, bias)``; B is [N, blocks of K, packed block].

    Products of floats keep their weights as they are, in a node of f32 with its first inputs alone, and a permission to
    round to 8 bits; others are dequantised.
    """
    if is_kept(node, editor):
        return None
    weight, groups, emit = _weight(node, editor), _groups(node, editor), Emitter(editor, node)
    bias = optional_input(node, 5)
    output = "" if bias else node.output[0]
    kind = editor.element_type(node.input[0])
    if _may_stay(node, editor, (TensorProto.FLOAT, *_HALVES)):
        lhs = node.input[0]
        if kind in _HALVES:
            lhs, weight = emit("Cast", lhs, part="wide", to=TensorProto.FLOAT), weight.with_scales_of(_F32)
        if groups is not None:
            weight, order, is_row = weight.sorted_by(groups)
            lhs = emit("Gather", lhs, emit.constant(order, "order"), part="order", axis=-1)
            if not is_row.all():
                lhs = emit("Where", emit.constant(is_row, "is_row"), lhs, emit.constant(_NOTHING, "nothing"))
        product = encoded_product(emit, lhs, weight, "" if kind in _HALVES else output, may_round=may_round(node))
        if kind in _HALVES:
            product = emit("Cast", product, part="narrow", output=output, to=kind)
    else:
        values = weight.decoded(groups).astype(emit.dtype(node.input[0]))
        product = emit("MatMul", node.input[0], emit.constant(np.ascontiguousarray(values), "weight"), output=output)
    if bias:
        emit("Add", product, bias, part="bias", output=node.output[0])
    return emit.nodes


def encoded_product(emit: Emitter, lhs: str, weight: BlockWeight, output: str = "", *, may_round: bool = False) -> str:
    """Emit a product by a weight that stays encoded; returns its result. ``may_round`` permits to round ``lhs``."""
    of = weight.encoding
    sizes: dict[str, Any] = {"K": of.depth, "N": of.columns, "bits": of.bits, "block_size": of.block}
    if may_round:
        sizes[_LEVEL] = _IN_BYTES
    return emit(_PRODUCT, lhs, *weight.stored(emit), output=output, domain=DOMAIN, **sizes)


def _groups(node: NodeProto, editor: GraphEditor) -> Array | None:
    """The block of each row of the weight; None if they are in order.

    Raises:
        UnsupportedModelError: if there are too few, or one is out of range.
    """
    given, of = constant_part(node, editor, 4), _encoding(node)
    if given is None:
        return None
    groups = given.reshape(-1)[: of.depth].astype(np.int64)
    if groups.size < of.depth or groups.min(initial=0) < 0 or groups.max(initial=0) >= of.blocks:
        raise UnsupportedModelError(
            f"{describe_node(node)} has group indices that do not name one of {of.blocks} blocks for each of "
            f"{of.depth} rows; quantise the model again"
        )
    return None if np.array_equal(groups, np.arange(of.depth) // of.block) else groups


def _weight(node: NodeProto, editor: GraphEditor) -> BlockWeight:
    of = _encoding(node)
    codes, scales, points = (constant_part(node, editor, index) for index in (1, 2, 3))
    if not _LEAST_BITS <= of.bits <= _MOST_BITS:
        raise UnsupportedModelError(
            f"{describe_node(node)} has weights of {of.bits} bits; {_LEAST_BITS} to {_MOST_BITS} were expected"
        )
    if codes is None or scales is None or attributes(node).get("weight_prepacked"):
        raise UnsupportedModelError(
            f"{describe_node(node)} has weights that are packed for a GPU, or none; export it without weight_prepacked"
        )
    return BlockWeight.of(node, of, codes, scales, points)


def is_kept(node: NodeProto, editor: GraphEditor) -> bool:
    """Whether a node is a product or a look-up whose weight stays encoded.

    Products are of f32, with constant parts whose sizes fit, and without a bias or a permission to round to floats.
    """
    if node.op_type == LOOK_UP and node.domain == DOMAIN:
        return is_encoded_look_up(node, editor)
    is_product = node.op_type == _PRODUCT and node.domain == DOMAIN and _may_stay(node, editor)
    named = _SIZES | ({_LEVEL} if may_round(node) else set())
    if not is_product or len(node.input) > _INPUTS or set(attributes(node)) != named:
        return False
    of = _encoding(node)
    shapes: list[Collection[tuple[int, ...]]] = [
        [of.codes.shape],
        [(of.columns * of.blocks,)],
        [(of.packed_points,), (of.columns * of.blocks,)],
    ]
    parts = list(zip(node.input[1:], shapes, strict=False))
    is_fitting = all(editor.is_constant(name) and editor.shape(name) in allowed for name, allowed in parts)
    scales = editor.element_type(node.input[2])
    is_supported = of.bits in _BITS and scales in (TensorProto.FLOAT, TensorProto.FLOAT16)
    return is_fitting and is_supported


def may_round(node: NodeProto) -> bool:
    """Whether a product permits to round its LHS to 8 bits, block by block."""
    return bool(attributes(node).get(_LEVEL) == _IN_BYTES)


def _may_stay(node: NodeProto, editor: GraphEditor, types: Collection[int] = (TensorProto.FLOAT,)) -> bool:
    """Whether the LHS of a product is of one of some types, has elements, and belongs to the main graph."""
    lhs = node.input[0]
    is_real = editor.element_type(lhs) in types
    return is_real and not editor.is_nested and 0 not in (editor.shape(lhs) or ())


def _encoding(node: NodeProto) -> BlockEncoding:
    settings = attributes(node)
    return BlockEncoding(settings.get("bits", 4), settings["block_size"], settings["K"], settings["N"])


BLOCK_QUANTISED: Mapping[str, Lowering] = {LOOK_UP: look_up, _PRODUCT: _matmul}
