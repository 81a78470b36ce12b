"""Predicted cycles of products by weights in blocks of integers, by the instructions of their loops.

Blocks are taken to have 32 rows, and codes as many bits as the bytes of a task's weights tell.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from sartor.codegen.ir.machines.core import WIDE, Core
from sartor.codegen.ir.machines.cuda import CudaArchitecture
from sartor.codegen.ir.variants.traits import Sizes
from sartor.codegen.kernels.isa.multipliers import DotElement
from sartor.codegen.kernels.layers.analytic_costs import DirectCost

_BLOCK, _WORD_BITS, _BYTE_BITS = 32, 32, 8
# Bytes of a weight's element, scales included, up to which its codes have so many bits.
_BITS = ((0.4, 2), (0.5, 3), (0.9, 4))
# Of the vectors that a table of 16 numbers fits, instructions that turn a code into a number, and of others; and those
# that multiply it by its scale, or store it.
_LOOKED_UP, _CONVERTED, _SCALED, _STORED = 2, 3, 1, 1
_TABLE = 16
# Instructions that round a vector of a row's numbers, and those for each vector of sums at the end of a block.
_ROUNDED, _SUMMED = 8, 4
# Of a register tile, to begin and end it.
_TILE = 16.0
# On a GPU, estimates: schedulers of a multiprocessor, cycles until a workgroup has its first numbers, and those from an
# instruction of a lone warp to its next, most of which it waits for codes from memory.
_SCHEDULERS, _FIRST, _WAITING = 4, 1800.0, 4.0


@dataclass(frozen=True)
class _Tiles:
    """Register tiles of a product, each of which reads all rows of the weight.

    Attributes:
        rows: of the LHS.
        height: rows of a tile.
        width: vectors of a tile.
        vectors: of the result's columns.
        depth: rows of the weight.
        bits: of a code.
    """

    rows: int
    height: int
    width: int
    vectors: int
    depth: int
    bits: int

    @staticmethod
    def of(sizes: Sizes, parameters: Mapping[str, int], core: Core) -> _Tiles:
        rows = sizes["batch"] * sizes["rows"] * sizes["columns"]
        vectors, depth = -(-sizes["channels"] // core.lanes), sizes["depth"]
        stored = sizes["weights"] / max(depth * sizes["channels"], 1)
        bits = next((bits for most, bits in _BITS if stored <= most), _BYTE_BITS)
        height, width = (max(1, parameters.get(name, 1)) for name in ("columns", "vectors"))
        return _Tiles(rows, min(height, rows), min(width, vectors), vectors, depth, bits)

    def cycles_of_warps(self, gpu: CudaArchitecture, decoding: float, warps: int) -> float:
        """Cycles where each of some warps computes a share of the tiles: as long as a warp waits for its own
        instructions, or as all warps of a scheduler take to start theirs."""
        tiles = -(-self.rows // self.height) * -(-self.vectors // self.width)
        instructions = self.depth * (self.width * (decoding + self.height) + self.height)
        waiting = max(_WAITING, warps / (gpu.multiprocessors * _SCHEDULERS))
        return _FIRST + -(-tiles // warps) * instructions * waiting

    def cycles(self, core: Core, decoding: float, multiplying: float, loads: float, latency: float) -> float:
        """Cycles of all tiles.

        Args:
            core: the CPU's core.
            decoding: instructions for each vector of codes, once for the rows of a tile.
            multiplying: instructions for each vector of codes and row.
            loads: of numbers of a row for each row of the weight.
            latency: cycles until a sum takes the products of the next row of the weight.
        """
        down, across = -(-self.rows // self.height), -(-self.vectors // self.width)
        busiest = max(
            self.width * (decoding + self.height * multiplying) / core.multiplies,
            (self.height * loads + self.width * self.bits / _WORD_BITS) / core.loads,
            latency,
        )
        filled = self.rows / (down * self.height) * self.vectors / (across * self.width)
        return down * across * filled * busiest * self.depth + down * across * _TILE


@dataclass(frozen=True)
class DecodedCost:
    """The cost of products of f32 by codes that become numbers in registers."""

    def cycles(self, sizes: Sizes, parameters: Mapping[str, int], core: Core = WIDE) -> float:
        tiles = _Tiles.of(sizes, parameters, core)
        # Of one row, sums of a block are multiplied by its scale.
        scaled = _SCALED * (tiles.height > 1)
        if core.gpu is not None:
            groups = (max(1, parameters.get(name, 1)) for name in ("row_groups", "panel_groups"))
            return tiles.cycles_of_warps(core.gpu, _CONVERTED + scaled, math.prod(groups))
        decoding = decoding_instructions(tiles.bits, core) + scaled
        # Where elements of a vector are repeated at no cost, those for as many codes as it has are one load.
        together = core.indexes and _WORD_BITS // tiles.bits % core.lanes == 0
        loads = 1 / core.lanes if together else 1
        return tiles.cycles(core, decoding, 1, loads, 0 if tiles.height == 1 else core.latency)


@dataclass(frozen=True)
class PanelCost:
    """The cost of products of f32 by panels that are decoded once for all rows."""

    def cycles(self, sizes: Sizes, parameters: Mapping[str, int], core: Core = WIDE) -> float:
        tiles = _Tiles.of(sizes, parameters, core)
        decoding = decoding_instructions(tiles.bits, core) + _SCALED + _STORED
        decoded = tiles.depth * tiles.vectors * decoding / core.multiplies
        return decoded + DirectCost().cycles(sizes, parameters, core)


@dataclass(frozen=True)
class RoundedCost:
    """The cost of products of rows that each workgroup rounds to integers, block by block.

    Attributes:
        element: instruction that multiplies groups of integers.
        bytes: of an integer.
    """

    element: DotElement
    bytes: int

    def cycles(self, sizes: Sizes, parameters: Mapping[str, int], core: Core = WIDE) -> float:
        tiles, paced = _Tiles.of(sizes, parameters, core), self.element.core(core)
        parts = max(1, self.bytes * _BYTE_BITS // tiles.bits)
        unpacking = (2 * parts - 1) * tiles.bits / _WORD_BITS
        multiplying = core.multiplies / paced.multiplies / self.element.group + _SUMMED / _BLOCK
        latency = paced.latency / self.element.group
        vectors = tiles.rows * tiles.depth / core.lanes * max(1, parameters.get("panel_groups", 1))
        rounding = vectors * _ROUNDED / core.multiplies
        return rounding + tiles.cycles(core, unpacking, multiplying, 1 / self.element.group, latency)


def decoding_instructions(bits: int, core: Core) -> int:
    """Instructions that turn a vector of codes into numbers."""
    return _LOOKED_UP if 1 << bits <= min(core.lanes, _TABLE) else _CONVERTED
