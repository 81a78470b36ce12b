"""Estimated cycles of kernels of windows, of separable convolutions and of concatenations.

They rank variants for CPUs that cannot be measured. Where variants are measured, their order by the routine counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sartor.codegen.ir.machines.core import WIDE, Core
from sartor.codegen.ir.variants.traits import Sizes
from sartor.codegen.kernels.loops.tilings import Shape

# Instructions of a tile's kernel row besides loads and multiply-adds, and those of a vector of the result.
_ROW_INSTRUCTIONS = 12
_STORE_INSTRUCTIONS = 3
# Measured in MobileNetV2: 0.65 to 0.8 of the window's time, and 0.63 to 0.81.
_CONVERTED_ONCE = 0.75
_PAIRED = 0.63


@dataclass(frozen=True)
class WindowCost:
    """The cost of windows over vectors of channels, whose pixels are loaded once per kernel row."""

    def cycles(self, sizes: Sizes, parameters: Mapping[str, int], core: Core = WIDE) -> float:
        columns, wide = (max(1, parameters.get(name, 1)) for name in ("columns", "vectors"))
        height, width, stride = sizes["kernel_height"], sizes["kernel_width"], sizes["stride"]
        vectors = -(-sizes["channels"] // core.lanes)
        tiles = sizes["rows"] * -(-sizes["columns"] // columns) * -(-vectors // wide)
        combined, loads = columns * width * wide, ((columns - 1) * stride + 2 * width) * wide
        row = max(
            combined / core.multiplies,
            loads / core.loads,
            (combined + loads + _ROW_INSTRUCTIONS) / core.issue,
            width * core.latency,
        )
        stores = _STORE_INSTRUCTIONS * sizes["rows"] * sizes["columns"] * vectors / core.issue
        return (row * height * tiles + stores) * sizes["batch"]


@dataclass(frozen=True)
class ConvertedCost(WindowCost):
    """The cost of windows over 8 bits whose pixels become f32 once: a part of that of converting where they read."""

    def cycles(self, sizes: Sizes, parameters: Mapping[str, int], core: Core = WIDE) -> float:
        return _CONVERTED_ONCE * super().cycles(sizes, parameters, core)


@dataclass(frozen=True)
class PairedCost(WindowCost):
    """The cost of windows over 8 bits whose pixels are multiplied in pairs of 16 bits."""

    def cycles(self, sizes: Sizes, parameters: Mapping[str, int], core: Core = WIDE) -> float:
        return _PAIRED * super().cycles(sizes, parameters, core)


@dataclass(frozen=True)
class SeparableCost:
    """The cost of a depthwise and a 1x1 convolution in one kernel, whose sums are taken together."""

    def cycles(self, sizes: Sizes, parameters: Mapping[str, int], core: Core = WIDE) -> float:
        columns, wide, unroll = (max(1, parameters.get(name, 1)) for name in ("columns", "vectors", "unroll"))
        vectors = -(-sizes["channels"] // core.lanes)
        shape = Shape(1, columns, wide, unroll)
        positions = sizes["rows"] * sizes["columns"]
        steps = shape.cycles(1, positions, vectors, core, core.line_cycles) * sizes["depth"]
        return (steps + _STORE_INSTRUCTIONS * positions * vectors / core.issue) * sizes["batch"]


@dataclass(frozen=True)
class CopyCost:
    """The cost of reading and writing everything vector by vector.

    Attributes:
        instructions: of a vector that is read or written.
    """

    instructions: float = 2

    def cycles(self, sizes: Sizes, parameters: Mapping[str, int], core: Core = WIDE) -> float:
        vectors = (sizes["read"] + sizes["written"]) / core.vector_bytes
        return self.instructions * vectors / min(core.issue, 2 * core.loads)
