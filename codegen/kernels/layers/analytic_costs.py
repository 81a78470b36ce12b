"""Predicted cycles of our own kernels, by models of registers and ports.

``loops/tilings.py`` counts the cycles of register tiles. The learned cost model corrects for what these models leave
out: caches, layouts and memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sartor.codegen.ir.machines.core import WIDE, Core
from sartor.codegen.ir.variants.traits import Sizes
from sartor.codegen.kernels.loops.tilings import Shape, pair_cycles

# Operations to encode and to decode a vector of a tile by Winograd's method, and all instructions for it.
_TRANSFORM = 6
_TRANSFORM_INSTRUCTIONS = 12
# Instructions that begin and end a register tile, and those for each of its vectors: to start it, to finish it by an
# elementwise operation, and to store it.
_TILE_INSTRUCTIONS = 30
_STORE_INSTRUCTIONS = 3
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
    """The cost of products in register tiles, one number at a time.

    Attributes:
        weights: element type of the packed weights, which are widened where they are read; None for the model's own.
        prepares: whether the image's numbers are converted where they are read, from 8 bits.
    """

    weights: str | None = None
    prepares: bool = False

    def cycles(self, sizes: Sizes, parameters: _Numbers, core: Core = WIDE) -> float:
        return _products(sizes, parameters, core, 1, self.weights, prepares=self.prepares)


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

    @property
    def prepares(self) -> bool:
        """Whether the image's numbers are changed before they are multiplied."""
        return False

    def cycles(self, sizes: Sizes, parameters: _Numbers, core: Core = WIDE) -> float:
        products = _products(sizes, parameters, core, self.group, prepares=self.prepares)
        return max(products, _reading_cycles(sizes, self.dtype, core))


@dataclass(frozen=True)
class PairCost:
    """The cost of products by pairs of channels, on a device whose loads take far longer than its multiply-adds."""

    def cycles(self, sizes: Sizes, parameters: _Numbers, core: Core = WIDE) -> float:
        rows, columns = positions(sizes)
        tile = Shape(1, *(max(1, parameters.get(name, 1)) for name in ("columns", "vectors", "unroll")))
        vectors, depth = _vectors(sizes, core.lanes), sizes["depth"] // 2
        return pair_cycles(tile, rows, columns, vectors, depth, core.lanes) * sizes["batch"]


@dataclass(frozen=True)
class TileCost:
    """The cost of products with AMX.

    Attributes:
        dtype: element type of the packed weights.
    """

    dtype: str

    def cycles(self, sizes: Sizes, parameters: _Numbers, core: Core = WIDE) -> float:
        return max(_tile_cycles(sizes, parameters), _reading_cycles(sizes, self.dtype, core))


@dataclass(frozen=True)
class WinogradCost:
    """The cost of Winograd's method in the cache.

    Attributes:
        group: numbers that an instruction multiplies instead of one.
    """

    group: int

    def cycles(self, sizes: Sizes, parameters: _Numbers, core: Core = WIDE) -> float:
        height, width = max(1, parameters.get("height", 1)), max(1, parameters.get("width", 1))
        numbers = (height + sizes["kernel_height"] - 1) * (width + sizes["kernel_width"] - 1)
        tiles = -(-sizes["rows"] // height) * -(-sizes["columns"] // width)
        depth, vectors = max(1, sizes["depth"] // sizes["taps"]), _vectors(sizes, core.lanes)
        register = Shape(1, *(max(1, parameters.get(name, 1)) for name in ("columns", "vectors", "unroll")))
        products = register.cycles(1, tiles, vectors, core, core.line_cycles) * depth / self.group * numbers
        one = max(_TRANSFORM / core.multiplies, _TRANSFORM_INSTRUCTIONS / core.issue)
        transforms = one * tiles * numbers * (depth / core.lanes + vectors)
        return (products + transforms) * sizes["batch"]


def _products(
    sizes: Sizes, parameters: _Numbers, core: Core, group: int, narrow: str | None = None, *, prepares: bool = False
) -> float:
    """Cycles of sums in register tiles, ``group`` products in a step, by weights that are widened from ``narrow``."""
    rows, columns = positions(sizes)
    lines, width, wide, unroll = (max(1, parameters.get(name, 1)) for name in ("lines", "columns", "vectors", "unroll"))
    vectors = _vectors(sizes, core.lanes)
    if core.indexes and sizes["depth"] // sizes["taps"] // group % unroll:
        # The channels of a tap do not divide into so many steps.
        unroll = 1
    tile = Shape(lines, width, wide, unroll)
    line_cycles = core.line_cycles * _BYTES.get(narrow or "", _FLOAT_BYTES) / _FLOAT_BYTES
    step = tile.cycles(rows, columns, vectors, core, line_cycles, prepares=prepares, widens=narrow is not None)
    steps = step * sizes["depth"] / group
    tiles = -(-rows // lines) * -(-columns // width) * -(-vectors // wide)
    # A kernel row has a loop of its own.
    around = _TILE_INSTRUCTIONS * tiles * sizes["kernel_height"] + _STORE_INSTRUCTIONS * rows * columns * vectors
    return (steps + around / core.issue) * sizes["batch"]


def positions(sizes: Sizes) -> tuple[int, int]:
    """Rows and columns of the result; a single row if pixels may be rearranged."""
    joined = sizes["taps"] == 1 and sizes["stride"] == 1
    return (1, sizes["rows"] * sizes["columns"]) if joined else (sizes["rows"], sizes["columns"])


def _vectors(sizes: Sizes, lanes: int) -> int:
    return -(-sizes["channels"] // lanes)


def _reading_cycles(sizes: Sizes, dtype: str, core: Core) -> float:
    """Cycles to read packed weights once; a narrower type takes fewer."""
    return sizes["weights"] * _BYTES.get(dtype, _FLOAT_BYTES) / _FLOAT_BYTES / core.bytes_per_cycle


def _tile_cycles(sizes: Sizes, given: _Numbers) -> float:
    rows, columns = positions(sizes)
    lines, tiles, pixels, wide, depth = (max(1, given.get(tile_size, 1)) for tile_size in _TILE_SIZES)
    vectors = _vectors(sizes, WIDE.lanes)
    blocks = -(-rows // lines) * -(-columns // (tiles * pixels)) * -(-vectors // wide)
    chunks = sizes["taps"] * -(-max(1, sizes["depth"] // sizes["taps"]) // depth)
    is_far = sizes["taps"] > 1 and sizes["read"] // max(1, given.get("row_groups", 1)) > _COPIED_BYTES
    loads = wide * _FILTER_TILE_CYCLES + lines * tiles * (_FAR_PIXEL_TILE_CYCLES if is_far else _PIXEL_TILE_CYCLES)
    products = blocks * chunks * max(lines * tiles * wide * max(pixels, _LEAST_TILE_CYCLES), loads)
    return (products + rows * columns * vectors * _STORE_CYCLES) * sizes["batch"]
