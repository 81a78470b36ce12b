"""Products by weights in blocks, their numbers, and what they mean by definition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, NodeProto

from sartor.codegen.ir.encoding import BlockEncoding
from tests.plugin.onnx_model.builders import FLOAT, MS, Array, Value, model, node, weights


@dataclass(frozen=True)
class BlockedProduct:
    """A product: its rows, its weight, and how that is stored."""

    rows: int
    encoding: BlockEncoding
    scales: type = np.float32
    points: str = ""
    has_bias: bool = False

    def parts(self) -> dict[str, Array]:
        """Codes, scales and, if there are any, zero points, as the operator takes them."""
        random, of = np.random.default_rng(self.encoding.depth), self.encoding
        found = {
            "w": random.integers(0, 256, of.codes.shape, dtype=np.uint8),
            "s": (random.random(of.columns * of.blocks) + 0.5).astype(self.scales),
        }
        if self.points == "packed":
            found["z"] = random.integers(0, 256, of.columns * -(-of.blocks * of.bits // 8), dtype=np.uint8)
        elif self.points == "real":
            found["z"] = (random.random(of.columns * of.blocks) * 9).astype(self.scales)
        if self.has_bias:
            found["b"] = weights(of.columns)
        return found

    def values(self) -> Array:
        """The weight, element by element, in float64."""
        parts, of = self.parts(), self.encoding
        found = np.zeros((of.depth, of.columns))
        for row in range(of.depth):
            block, place = divmod(row, of.block)
            codes = _code(parts["w"][:, block], place, of.bits)
            scales = parts["s"].reshape(of.columns, of.blocks)[:, block].astype(np.float64)
            found[row] = (codes - self._points(block)) * scales
        return found

    def _points(self, block: int) -> Array:
        of, points = self.encoding, self.parts().get("z")
        if points is None:
            return np.full(of.columns, float(1 << (of.bits - 1)))
        if self.points == "real":
            return points.reshape(of.columns, of.blocks)[:, block].astype(np.float64)
        return _code(points.reshape(of.columns, -1), block, of.bits).astype(np.float64)


def _code(data: Array, index: int, bits: int) -> Array:
    """A code of each row of bytes, which may lie in two of them."""
    byte, part = divmod(index * bits, 8)
    following = data[:, min(byte + 1, data.shape[1] - 1)].astype(np.uint16)
    codes: Array = (data[:, byte] | following << 8) >> part & (1 << bits) - 1
    return codes


def model_of(cases: Mapping[str, BlockedProduct]) -> ModelProto:
    """One model of all products."""
    nodes: list[NodeProto] = []
    inputs: list[Value] = []
    constants: dict[str, Array] = {}
    for name, case in cases.items():
        of, parts = case.encoding, case.parts()
        inputs.append((f"{name}.x", (1, case.rows, of.depth), FLOAT))
        constants |= {f"{name}.{part}": array for part, array in parts.items()}
        read = [f"{name}.{part}" if part in ("x", *parts) else "" for part in ("x", "w", "s", "z", "g", "b")]
        while not read[-1]:
            read.pop()
        sizes = {"K": of.depth, "N": of.columns, "bits": of.bits, "block_size": of.block}
        nodes.append(node("MatMulNBits", read, [f"{name}.y"], name=name, domain=MS, **sizes))
    return model(nodes, inputs, [f"{name}.y" for name in cases], constants)
