"""Estimated cycles of kernels of one or a few output channels, by the instructions of their loops.

A vector that begins anywhere touches two lines of the cache mostly, so that its load takes as long as two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sartor.codegen.ir.machines.core import LINE_BYTES, WIDE, Core
from sartor.codegen.ir.variants.traits import Sizes
from sartor.codegen.kernels.layers.analytic_costs import positions

_FLOAT_BYTES = 4
# Instructions that begin and end the loop of a tap, or of a kernel row and an input channel, in slots of a cycle.
_LOOP_CYCLES = 1
# Cycles that finishing and storing a vector of the result takes.
_STORE_CYCLES = 4


@dataclass(frozen=True)
class ColumnCost:
    """The cost of sums over pixels in planes, each vector of which is multiplied by the filters of all channels."""

    def cycles(self, sizes: Sizes, parameters: Mapping[str, int], core: Core = WIDE) -> float:
        rows, columns = positions(sizes)
        most, channels = max(1, parameters.get("vectors", 1)), sizes["channels"]
        vectors = -(-columns // core.lanes)
        whole, rest = divmod(vectors, most)
        tiles = [(most, whole), (rest, 1)] if rest else [(most, whole)]
        one = sum(count * self._tile(sizes, wide, channels, core) for wide, count in tiles)
        return sizes["batch"] * rows * one

    def _tile(self, sizes: Sizes, vectors: int, channels: int, core: Core) -> float:
        """Cycles of a tile of so many vectors of pixels."""
        stride = sizes["stride"]
        products, shuffles = vectors * channels, vectors * (stride - 1)
        loads = vectors * stride + channels
        tap = max(
            (products + channels * core.duplicates) / core.multiplies,
            (vectors * stride * _lines(core) + channels) / core.loads,
            # Of several vectors every other pixel, or fewer, are put together by shuffles, one in a cycle.
            shuffles,
            core.latency,
            (products + loads + shuffles) / core.issue,
        )
        around = sizes["depth"] // sizes["kernel_width"] * _LOOP_CYCLES
        return tap * sizes["depth"] + around + products * _STORE_CYCLES


@dataclass(frozen=True)
class LaneCost:
    """The cost of sums over input channels in the lanes of vectors, which are added up at the end."""

    def cycles(self, sizes: Sizes, parameters: Mapping[str, int], core: Core = WIDE) -> float:
        rows, columns = positions(sizes)
        whole, rest = divmod(columns, core.lanes)
        tiles = [(core.lanes, whole), (rest, 1)] if rest else [(core.lanes, whole)]
        one = sum(count * self._tile(sizes, pixels, core) for pixels, count in tiles)
        return sizes["batch"] * rows * sizes["channels"] * one

    def _tile(self, sizes: Sizes, pixels: int, core: Core) -> float:
        """Cycles of a channel's tile of so many pixels."""
        depth = sizes["depth"] // sizes["taps"]
        lines = 1 if depth % core.lanes == 0 else _lines(core)
        step = max(
            pixels / core.multiplies,
            (pixels * lines + 1) / core.loads,
            core.latency,
            (2 * pixels + 1) / core.issue,
        )
        steps = sizes["taps"] * -(-depth // core.lanes)
        # Vectors are halved until each is a number: two shuffles, one in a cycle, and a sum for each but one.
        return step * steps + sizes["taps"] * _LOOP_CYCLES + 2 * (core.lanes - 1) + _STORE_CYCLES


def _lines(core: Core) -> float:
    """Lines of the cache that a vector touches in the mean, wherever it begins."""
    return 1 + core.lines - _FLOAT_BYTES / LINE_BYTES
