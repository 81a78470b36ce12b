"""Predicted cycles of our own kernels, by models of registers and ports.

``loops/tilings.py`` counts the cycles of register tiles. The learned cost model corrects for what these models leave
out: caches, layouts and memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sartor.codegen.ir.variants.traits import Sizes
from sartor.codegen.kernels.loops.tilings import Shape

LANES = 16
"""Elements of f32 in a vector of 64 bytes. Other lengths change all cycles by about the same factor."""
BYTES_PER_CYCLE = 8
"""Bytes that a core reads from memory, or writes to it, in a cycle."""

# Cycles to move a line of filters from the second-level cache to the first.
_LINE_CYCLES = 3
# Additions to encode and to decode a number of a tile by Winograd's method.
_TRANSFORM = 3
# AMX multiplies two tiles in a cycle per row, but not in less than ``_LEAST_TILE_CYCLES``. Meanwhile tiles are loaded:
# filters mostly from the second-level cache, pixels from nearer unless a workgroup's copies exceed that cache.
_TILE_SIZES = ("lines", "tiles", "pixels", "vectors", "depth")
_LEAST_TILE_CYCLES = 9
_FILTER_TILE_CYCLES, _PIXEL_TILE_CYCLES, _FAR_PIXEL_TILE_CYCLES = 20, 10, 20
_COPIED_BYTES = 1 << 20
_STORE_CYCLES = 4
_BYTES = {"bf16": 2, "f16": 2, "i8": 1}
_FLOAT_BYTES = 4

_Numbers = Mapping[str, int]


@dataclass(frozen=True)
class DirectCost:
    """The cost of products in register tiles, one number at a time."""

    def cycles(self, sizes: Sizes, parameters: _Numbers) -> float:
        rows, columns = _positions(sizes)
        tile = Shape(*(max(1, parameters.get(each, 1)) for each in ("lines", "columns", "vectors", "unroll")))
        steps = sizes["depth"] * sizes["batch"]
        return tile.cycles(rows, columns, _vectors(sizes), _LINE_CYCLES) * steps


@dataclass(frozen=True)
class DotCost:
    """The cost of products in register tiles, in groups.

    Some CPUs start instructions for bf16 in every other cycle only, but most of these have AMX.

    Attributes:
        group: numbers that an instruction multiplies instead of one.
        dtype: element type of the packed weights.
    """

    group: int
    dtype: str

    def cycles(self, sizes: Sizes, parameters: _Numbers) -> float:
        return max(DirectCost().cycles(sizes, parameters) / self.group, _reading_cycles(sizes, self.dtype))


@dataclass(frozen=True)
class TileCost:
    """The cost of products with AMX.

    Attributes:
        dtype: element type of the packed weights.
    """

    dtype: str

    def cycles(self, sizes: Sizes, parameters: _Numbers) -> float:
        return max(_tile_cycles(sizes, parameters), _reading_cycles(sizes, self.dtype))


@dataclass(frozen=True)
class WinogradCost:
    """The cost of Winograd's method in the cache.

    Attributes:
        group: numbers that an instruction multiplies instead of one.
    """

    group: int

    def cycles(self, sizes: Sizes, parameters: _Numbers) -> float:
        height, width = max(1, parameters.get("height", 1)), max(1, parameters.get("width", 1))
        numbers = (height + sizes["kernel_height"] - 1) * (width + sizes["kernel_width"] - 1)
        tiles = -(-sizes["rows"] // height) * -(-sizes["columns"] // width)
        depth, vectors = max(1, sizes["depth"] // sizes["taps"]), _vectors(sizes)
        register = Shape(1, *(max(1, parameters.get(each, 1)) for each in ("columns", "vectors", "unroll")))
        products = register.cycles(1, tiles, vectors, _LINE_CYCLES) * depth / self.group * numbers
        transforms = _TRANSFORM * tiles * numbers * (depth / LANES + vectors)
        return (products + transforms) * sizes["batch"]


def _positions(sizes: Sizes) -> tuple[int, int]:
    """Rows and columns of the result; a single row if pixels may be rearranged."""
    joined = sizes["taps"] == 1 and sizes["stride"] == 1
    return (1, sizes["rows"] * sizes["columns"]) if joined else (sizes["rows"], sizes["columns"])


def _vectors(sizes: Sizes) -> int:
    return -(-sizes["channels"] // LANES)


def _reading_cycles(sizes: Sizes, dtype: str) -> float:
    """Cycles to read packed weights once; a narrower type takes fewer."""
    return sizes["weights"] * _BYTES.get(dtype, _FLOAT_BYTES) / _FLOAT_BYTES / BYTES_PER_CYCLE


def _tile_cycles(sizes: Sizes, given: _Numbers) -> float:
    rows, columns = _positions(sizes)
    lines, tiles, pixels, wide, depth = (max(1, given.get(each, 1)) for each in _TILE_SIZES)
    vectors = _vectors(sizes)
    blocks = -(-rows // lines) * -(-columns // (tiles * pixels)) * -(-vectors // wide)
    chunks = sizes["taps"] * -(-max(1, sizes["depth"] // sizes["taps"]) // depth)
    is_far = sizes["taps"] > 1 and sizes["read"] // max(1, given.get("row_groups", 1)) > _COPIED_BYTES
    loads = wide * _FILTER_TILE_CYCLES + lines * tiles * (_FAR_PIXEL_TILE_CYCLES if is_far else _PIXEL_TILE_CYCLES)
    products = blocks * chunks * max(lines * tiles * wide * max(pixels, _LEAST_TILE_CYCLES), loads)
    return (products + rows * columns * vectors * _STORE_CYCLES) * sizes["batch"]
