"""Weights of all experts of a mixture: their sizes, and those in few bits as one matrix in blocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import NodeProto

from sartor.codegen.ir.encoding import BlockEncoding, unpacked
from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes, optional_input
from sartor.onnx_model.graphs.walk import describe_node
from sartor.onnx_model.rewrites.operator_sets.contrib.blocks.block_weight import BlockWeight

QUANTISED: list[tuple[int, ...]] = [(2, 3, 4, 11), (5, 6, 7, 12), (8, 9, 10, 13)]
"""The places of each matrix's codes, scales, bias and zero points among the operands of ``QMoE``."""
_RANK, _BITS, _BYTE = 3, (4, 8), 8


@dataclass(frozen=True)
class ExpertMatrix:
    """A weight of all experts, ``[experts, results, depth]``, and its bias, empty if there is none.

    Attributes:
        name: of the weight.
        bias: ``[experts, results]``.
        experts, results, depth: its sizes.
        blocks: the same in few bits, ``[results, experts * blocks of a row]``; None if the weight is of floats.
    """

    name: str
    bias: str
    experts: int
    results: int
    depth: int
    blocks: BlockWeight | None = None


def matrix_of_floats(node: NodeProto, editor: GraphEditor, places: tuple[int, ...]) -> ExpertMatrix | None:
    """The matrix of which the operands at two places are the weight and the bias; None if its shape is not known."""
    name, bias = (optional_input(node, place) for place in places)
    shape = editor.shape(name)
    if shape is None or len(shape) != _RANK:
        return None
    experts, results, depth = shape
    return ExpertMatrix(name, bias, experts, results, depth)


def matrix_of_blocks(node: NodeProto, editor: GraphEditor, places: tuple[int, ...]) -> ExpertMatrix:
    """A matrix in few bits, all experts' blocks of which lie behind each other, as the parts of what it multiplies.

    Raises:
        UnsupportedModelError: if its operands are not constant, or do not fit each other.
    """
    index, scale, bias, zero = places
    codes, scales, points = (editor.constant(optional_input(node, place)) for place in (index, scale, zero))
    if codes is None or scales is None or codes.ndim != _RANK or codes.dtype != np.uint8:
        raise UnsupportedModelError(
            f"{describe_node(node)} has weights that are not constant bytes with scales; quantise the model again"
        )
    if optional_input(node, zero) and (points is None or points.dtype != np.uint8):
        raise UnsupportedModelError(
            f"{describe_node(node)} has zero points that are not constant bytes; quantise the model again"
        )
    bits, (experts, results, row) = _bits_of(node, index), codes.shape
    given = int(attributes(node).get("block_size", 0))
    depth = row * _BYTE // bits if bits in _BITS else row
    block = given or _shared_block(depth)
    if bits not in _BITS or given < 0 or depth % block:
        raise UnsupportedModelError(
            f"{describe_node(node)} has weights of {bits} bits in blocks of {block}, rows of {depth}; 4 or 8 bits in "
            "blocks that fill rows were expected"
        )
    count = depth // block
    sizes = experts, results, count
    # Scales of two dimensions are of rows, also where blocks are given.
    is_by_row = not given or scales.ndim < _RANK
    parts = [codes.reshape(*sizes, block * bits // _BYTE), _scales(node, scales, sizes, is_by_row=is_by_row)]
    if points is not None:
        parts.append(_points(node, points, sizes, bits, is_by_row=is_by_row).astype(scales.dtype))
    blocks = experts * count
    parts = [np.ascontiguousarray(np.moveaxis(part, 0, 1)).reshape(results, blocks, *part.shape[3:]) for part in parts]
    encoding = BlockEncoding(bits, block, blocks * block, results)
    weight = BlockWeight.of(node, encoding, parts[0], parts[1], parts[2] if points is not None else None)
    return ExpertMatrix("", optional_input(node, bias), experts, results, depth, weight)


def _scales(node: NodeProto, scales: Array, sizes: tuple[int, int, int], *, is_by_row: bool) -> Array:
    """Scales of all blocks, ``[experts, results, blocks]``, from those of blocks or of rows."""
    experts, results, count = sizes
    stored = (experts, results, 1 if is_by_row else count)
    _check_shape(node, "scales", scales, stored[: scales.ndim] if scales.ndim == _RANK - 1 else stored)
    return np.broadcast_to(scales.reshape(stored), sizes)


def _points(node: NodeProto, points: Array, sizes: tuple[int, int, int], bits: int, *, is_by_row: bool) -> Array:
    """Zero points of all blocks, ``[experts, results, blocks]``: a byte holds those of some rows, or blocks of one."""
    experts, results, count = sizes
    packed = results if is_by_row else count
    in_bytes = -(-packed * bits // _BYTE)
    _check_shape(node, "zero points", points, (experts, in_bytes) if is_by_row else (experts, results, in_bytes))
    split = unpacked(points, bits)[..., :packed]
    return np.broadcast_to(split[..., None] if is_by_row else split, sizes)


def _check_shape(node: NodeProto, what: str, array: Array, expected: tuple[int, ...]) -> None:
    if array.shape != expected:
        raise UnsupportedModelError(
            f"{describe_node(node)} has {what} of the shape {list(array.shape)}; {list(expected)} was expected from "
            "its weights and block_size; quantise the model again"
        )


def _bits_of(node: NodeProto, index: int) -> int:
    """Bits of a code of the weight at an operand's place."""
    options, number = attributes(node), [places[0] for places in QUANTISED].index(index) + 1
    return int(options.get(f"fc{number}_expert_weight_bits", options.get("expert_weight_bits", 4)))


def _shared_block(depth: int) -> int:
    """A length of blocks by which rows may be divided that have one scale each."""
    fitting = (block for block in (128, 64, 32, 16) if depth % block == 0)
    return next(fitting, depth)
