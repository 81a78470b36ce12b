"""Networks that look rows up in the weight of their last product."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto

from sartor.codegen.ir.encoding import BlockEncoding
from tests.plugin.onnx_model.builders import INT64, MS, Array, model, node, weights


def parts_of(of: BlockEncoding, *, has_points: bool) -> dict[str, Array]:
    """Codes, scales that f16 holds and, if there are any, zero points, as both operators take them."""
    random = np.random.default_rng(of.columns)
    found: dict[str, Array] = {
        "w": random.integers(0, 256, of.codes.shape, dtype=np.uint8),
        "s": (random.integers(1, 64, (of.columns, of.blocks)) / 64).astype(np.float32),
    }
    if has_points:
        found["z"] = random.integers(0, 256, (of.columns, of.packed_points // of.columns), dtype=np.uint8)
    return found


def values_of(of: BlockEncoding, parts: dict[str, Array]) -> Array:
    """The table ``[columns, depth]`` in float64, digit by digit."""
    digits = np.unpackbits(parts["w"].reshape(of.columns, of.blocks, -1), axis=-1, bitorder="little")
    codes = digits.reshape(of.columns, of.blocks, of.block, of.bits) @ (1 << np.arange(of.bits))
    points = np.full((of.columns, of.blocks), 1 << (of.bits - 1))
    if "z" in parts:
        digits = np.unpackbits(parts["z"], axis=-1, bitorder="little")[:, : of.blocks * of.bits]
        points = digits.reshape(of.columns, of.blocks, of.bits) @ (1 << np.arange(of.bits))
    values = (codes - points[..., None]) * parts["s"][..., None].astype(np.float64)
    table: Array = values.reshape(of.columns, -1)[:, : of.depth]
    return table


def tied(of: BlockEncoding, *, has_points: bool) -> ModelProto:
    """Looks tokens up in a table ``[columns, depth]``, adds a vector to each, and multiplies by the table."""
    parts = parts_of(of, has_points=has_points)
    rows = {"e.w": parts["w"].reshape(of.columns, -1)[:, : of.depth * of.bits // 8], "e.s": parts["s"]}
    constants = {**parts, **rows, "v": np.arange(of.depth, dtype=np.float32)}
    points = ["z"] if has_points else []
    sizes = {"bits": of.bits, "block_size": of.block}
    read = ["e.w", "i", "e.s", *points]
    nodes = [
        node("GatherBlockQuantized", read, ["h"], name="rows", domain=MS, quantize_axis=1, gather_axis=0, **sizes),
        node("Add", ["h", "v"], ["x"]),
        node("MatMulNBits", ["x", "w", "s", *points], ["y"], name="head", domain=MS, K=of.depth, N=of.columns, **sizes),
    ]
    return model(nodes, [("i", (1, 5), INT64)], ["y"], constants)


def tied_floats(columns: int, depth: int, *, is_turned: bool) -> ModelProto:
    """Looks tokens up in a table of floats, adds a vector to each, and multiplies by the table: by a Gemm that turns
    it, or after a Transpose."""
    constants = {"w": weights(columns, depth), "v": weights(depth, seed=1)}
    nodes = [node("Gather", ["w", "i"], ["h"], name="rows"), node("Add", ["h", "v"], ["x"])]
    if is_turned:
        constants["s"] = np.array([5, depth])
        nodes.append(node("Reshape", ["x", "s"], ["m"]))
        nodes.append(node("Gemm", ["m", "w"], ["y"], name="head", transB=1))
    else:
        nodes.append(node("Transpose", ["w"], ["t"], perm=[1, 0]))
        nodes.append(node("MatMul", ["x", "t"], ["y"], name="head"))
    return model(nodes, [("i", (1, 5), INT64)], ["y"], constants)
