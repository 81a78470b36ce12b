"""Operators of quantised values."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from sartor.reference.trusted.oracles.call import Call
from sartor.runtime.driver.signature import Array

# Columns of a matrix in blocks that are decoded at once.
_DECODED = 128


def qlinear_reduce_mean(call: Call) -> list[Array]:
    """QLinearReduceMean: the mean of real numbers, quantised."""
    data = call.given(0)
    axes = tuple(axis % data.ndim for axis in call.attributes.get("axes", ())) or None
    real = (call.wide(0) - call.wide_or(2, 0.0)) * call.wide(1)
    mean = real.mean(axes, keepdims=bool(call.whole("keepdims", 1)))
    limits = np.iinfo(data.dtype)
    steps = np.rint(mean / call.wide(3)) + call.wide_or(4, 0.0)
    return [np.clip(steps, limits.min, limits.max).astype(data.dtype)]


def product_by_blocks(call: Call) -> list[Array]:
    """MatMulNBits: the product by the transpose of a matrix in blocks, whose codes follow each other bit by bit.

    A few columns are decoded at a time: in float64 the whole matrix is up to 16 times as large as it is stored.
    """
    depth, columns, bits = call.whole("K", 0), call.whole("N", 0), call.whole("bits", 4)
    block = call.whole("block_size", 0)
    blocks, lhs = -(-depth // block), call.given(0)
    points = np.full((columns, blocks), 2.0 ** (bits - 1))
    if (given := call.input(3)) is not None:
        is_packed = given.dtype == np.uint8
        numbers = integers(given.reshape(columns, -1), bits) if is_packed else call.wide(3)
        points = numbers.reshape(columns, -1)[:, :blocks].astype(np.float64)
    group = call.input(4)
    groups = np.arange(depth) // block if group is None else group.reshape(-1)[:depth].astype(np.int64)
    codes, scales, rows = (
        call.given(1).reshape(columns, blocks, -1),
        call.wide(2).reshape(columns, blocks),
        call.wide(0),
    )
    products = []
    for start in range(0, columns, _DECODED):
        part = slice(start, start + _DECODED)
        decoded = integers(codes[part], bits).reshape(len(codes[part]), -1)[:, :depth]
        products.append(rows @ ((decoded - points[part, groups]) * scales[part, groups]).T)
    return [(np.concatenate(products, -1) + call.wide_or(5, 0.0)).astype(lhs.dtype)]


def integers(data: Array, bits: int) -> Array:
    """Integers without a sign of up to 8 bits, lowest first, that fill the last axis of bytes without gaps."""
    digits = np.unpackbits(data, axis=-1, bitorder="little")
    count = digits.shape[-1] // bits
    weights = np.left_shift(np.uint8(1), np.arange(bits, dtype=np.uint8))
    numbers: Array = digits[..., : count * bits].reshape(*data.shape[:-1], count, bits) @ weights
    return numbers


def cut_to_four_bits(call: Call) -> list[Array]:
    """Cast, or CastLike, of floats to integers of four bits, which drops the fraction; what does not fit is not
    defined."""
    like = call.input(1)
    kind = helper.tensor_dtype_to_np_dtype(call.whole("to", TensorProto.INT4)) if like is None else like.dtype
    return [np.trunc(call.wide(0)).astype(np.int64).astype(kind)]
