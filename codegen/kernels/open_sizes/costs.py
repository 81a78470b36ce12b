"""Predicted cycles of kernels of any size, by their loops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from sartor.codegen.ir.machines.core import LINE_BYTES, WIDE, Core
from sartor.codegen.ir.variants.traits import AnalyticCost, Sizes
from sartor.codegen.kernels.layers.analytic_costs import WinogradCost
from sartor.codegen.kernels.loops.tilings import Shape

WINOGRAD_SIDE = 3
"""Taps of a side of the filters that Winograd's method is offered for."""

FEW, MANY, LEAST = "few_", "many_", "least"
"""Of a kernel in two versions: what begins the names of the parameters of each, and the name of the number of places
from which on the second runs."""

# Elements of a query, a key and a value in most networks; the facts of a task, whose result may have all heads in a
# row, do not tell them.
_USUAL_WIDTH = 64
# A query meets each key in two products of a multiply-add, which is two operations, for each element.
_OPERATIONS = 4 * _USUAL_WIDTH
# Instructions of a vector of scores: elementwise steps, the largest of a row, an exponential, and their sum.
_INSTRUCTIONS = 32
# Keys of a block, cycles in which a tile's sums are loaded, corrected and stored for each, and those to load a line
# that a workgroup wrote before. To copy keys takes what is saved by reading them so.
_USUAL_BLOCK, _BLOCK_CYCLES, _NEAR_CYCLES = 128, 100, 1.0
# Instructions that find a patch, and those of a vector of it or of a result. Taps of a row of most windows.
_PATCH_INSTRUCTIONS, _COPY_INSTRUCTIONS, _STORE_INSTRUCTIONS = 40, 4, 3
_USUAL_TAPS = 3
# Vectors in a row after which the hardware fetches the next ones ahead.
_LONG_RUN = 4
_FLOAT_BYTES = 4
# That are filled with zeros in a cycle.
_ZEROED_BYTES = 32
# Sums that registers hold beside what is multiplied; others are loaded and stored in each step.
_HELD_SUMS = 24


@dataclass(frozen=True)
class OpenAttentionCost:
    """The cost of scores, exponentials and sums of values of tiles of ``rows`` queries, by ``vectors`` of keys.

    A tile reads the keys and values of its head once, mostly from the second-level cache.
    """

    def cycles(self, sizes: Sizes, parameters: Mapping[str, int], core: Core = WIDE) -> float:
        rows, vectors = parameters["rows"], parameters["vectors"]
        # A vector of keys for a tile of queries is computed so many times.
        tiles = sizes["operations"] / _OPERATIONS / (rows * core.lanes)
        scores = _step(rows, vectors, core) * _USUAL_WIDTH / vectors
        exponentials = rows * _INSTRUCTIONS / min(core.issue, 2 * core.loads)
        mixed = _step(rows, -(-_USUAL_WIDTH // core.lanes), core) * core.lanes
        return tiles * (scores + exponentials + mixed)


@dataclass(frozen=True)
class BlockedAttentionCost:
    """The same by blocks of keys: those are copied for some tens of queries, and for each block sums are corrected."""

    def cycles(self, sizes: Sizes, parameters: Mapping[str, int], core: Core = WIDE) -> float:
        near = OpenAttentionCost().cycles(sizes, parameters, replace(core, line_cycles=_NEAR_CYCLES))
        blocks = sizes["operations"] / _OPERATIONS / (parameters["rows"] * _USUAL_BLOCK)
        return near + _BLOCK_CYCLES * blocks


@dataclass(frozen=True)
class OpenConvolutionCost:
    """The cost of patches that are gathered and multiplied in register tiles of ``columns`` places."""

    def cycles(self, sizes: Sizes, parameters: Mapping[str, int], core: Core = WIDE) -> float:
        columns, wide, unroll = (max(1, parameters.get(name, 1)) for name in ("columns", "vectors", "unroll"))
        places, vectors = places_of(sizes), -(-sizes["channels"] // core.lanes)
        tile = Shape(1, columns, wide, unroll)
        products = tile.cycles(1, places, vectors, core, core.line_cycles) * sizes["depth"]
        copies = _PATCH_INSTRUCTIONS + _COPY_INSTRUCTIONS * -(-sizes["depth"] // core.lanes)
        return products + places * (copies + _STORE_INSTRUCTIONS * vectors) / core.issue


@dataclass(frozen=True)
class OpenStripsCost:
    """The cost of strips of an image that are copied and multiplied in register tiles of ``columns`` places.

    A line of most windows has three taps, and a strip has one or two pixels of a line for each place.
    """

    def cycles(self, sizes: Sizes, parameters: Mapping[str, int], core: Core = WIDE) -> float:
        columns, wide, unroll = (max(1, parameters.get(name, 1)) for name in ("columns", "vectors", "unroll"))
        places, vectors = places_of(sizes), -(-sizes["channels"] // core.lanes)
        tile = Shape(1, columns, wide, unroll)
        products = tile.cycles(1, places, vectors, core, core.line_cycles) * sizes["depth"]
        copies = _COPY_INSTRUCTIONS * sizes["depth"] / 2 / core.lanes
        return products + places * (copies + _STORE_INSTRUCTIONS * vectors) / core.issue


@dataclass(frozen=True)
class OpenSeparableCost:
    """The cost of windows that stay in the cache, and of their product in register tiles of ``columns`` places: both
    are operations, of which the product has nearly all."""

    def cycles(self, sizes: Sizes, parameters: Mapping[str, int], core: Core = WIDE) -> float:
        columns, wide, unroll = (max(1, parameters.get(name, 1)) for name in ("columns", "vectors", "unroll"))
        places, vectors = places_of(sizes), -(-sizes["channels"] // core.lanes)
        products = Shape(1, columns, wide, unroll).cycles(1, places, vectors, core, core.line_cycles) * sizes["depth"]
        return products + places * _STORE_INSTRUCTIONS * vectors / core.issue


@dataclass(frozen=True)
class OpenWinogradCost:
    """The cost of Winograd's method by filters of 3x3, of whose patches the task is a product.

    Encoded filters are read for each block of tiles, which hides the products of few tiles.
    """

    def cycles(self, sizes: Sizes, parameters: Mapping[str, int], core: Core = WIDE) -> float:
        kernel = {"kernel_height": WINOGRAD_SIDE, "kernel_width": WINOGRAD_SIDE, "taps": WINOGRAD_SIDE**2}
        # The rows of a product are places of whole images.
        height, width, block = (max(1, parameters.get(name, 1)) for name in ("height", "width", "block"))
        places = places_of(sizes)
        image = {"batch": 1, "rows": height, "columns": -(-places // height)}
        points = (height + WINOGRAD_SIDE - 1) * (width + WINOGRAD_SIDE - 1)
        filters = points * sizes["depth"] // kernel["taps"] * sizes["channels"] * _FLOAT_BYTES
        line_cycles = core.line_cycles if filters <= core.resident_bytes else core.far_line_cycles
        blocks = -(-places // (height * width * block))
        reading = blocks * filters / LINE_BYTES * line_cycles
        multiplying = WinogradCost(1).cycles({**sizes, **kernel, **image}, parameters, core)
        return max(reading, multiplying) + self._zeroing(sizes, parameters, points, core)

    @staticmethod
    def _zeroing(sizes: Sizes, parameters: Mapping[str, int], points: int, core: Core) -> float:
        """Cycles in which IREE fills the workspace with zeros in each call."""
        groups, block, wide = (max(1, parameters.get(name, 1)) for name in ("groups", "block", "vectors"))
        row = sizes["depth"] // WINOGRAD_SIDE**2 + (1 + wide) * core.lanes
        return groups * block * points * row * _FLOAT_BYTES / _ZEROED_BYTES


@dataclass(frozen=True)
class OpenVersionsCost:
    """The cost of a kernel in two versions: that of the one that runs.

    Attributes:
        few: of the version for few places.
        many: of the other.
    """

    few: AnalyticCost
    many: AnalyticCost

    def cycles(self, sizes: Sizes, parameters: Mapping[str, int], core: Core = WIDE) -> float:
        is_few = places_of(sizes) < parameters[LEAST]
        cost, prefix = (self.few, FEW) if is_few else (self.many, MANY)
        return cost.cycles(sizes, own_parameters(parameters, prefix), core)


_Value = TypeVar("_Value")


def own_parameters(parameters: Mapping[str, _Value], prefix: str) -> dict[str, _Value]:
    """The parameters of one version, by its own names."""
    return {name.removeprefix(prefix): value for name, value in parameters.items() if name.startswith(prefix)}


@dataclass(frozen=True)
class OpenPatchesCost:
    """The cost of patches that are written to memory."""

    def cycles(self, sizes: Sizes, parameters: Mapping[str, int], core: Core = WIDE) -> float:
        vectors = sizes["written"] / core.vector_bytes
        return _COPY_INSTRUCTIONS * vectors / min(core.issue, 2 * core.loads)


@dataclass(frozen=True)
class OpenWindowCost:
    """The cost of windows over each channel, in register tiles of ``columns`` places whose pixels are loaded once for a
    row of taps. Memory that is read in short runs is not fetched ahead."""

    def cycles(self, sizes: Sizes, parameters: Mapping[str, int], core: Core = WIDE) -> float:
        columns, wide = (max(1, parameters.get(name, 1)) for name in ("columns", "vectors"))
        places, vectors = places_of(sizes), -(-sizes["channels"] // core.lanes)
        combined = places * vectors * sizes["depth"]
        # A row of taps loads its filters, and about one pixel more for each of its taps than it has places.
        loads = combined * (1 / _USUAL_TAPS + 2 / columns)
        instructions = combined + loads + _STORE_INSTRUCTIONS * places * vectors
        reading = sizes["read"] / core.bytes_per_cycle * runs_of_pixel(vectors, wide)
        return max(combined / core.multiplies, loads / core.loads, instructions / core.issue, reading)


def runs_of_pixel(vectors: int, wide: int) -> int:
    """How many runs of ``wide`` vectors a pixel's channels are read in; of long pixels, those of a long enough part."""
    return -(-min(vectors, _LONG_RUN) // wide)


def places_of(sizes: Sizes) -> int:
    """Places of the result, each of which has all channels."""
    return sizes["batch"] * sizes["rows"] * sizes["columns"]


def _step(rows: int, vectors: int, core: Core) -> float:
    """Cycles in which vectors are loaded and multiplied by a number of each row."""
    sums = rows * vectors
    spilled = 2 * max(0, sums - _HELD_SUMS) / core.loads
    loads = (rows + vectors) / core.loads
    return spilled + max(sums / core.multiplies, loads, core.latency, vectors * core.lines * core.line_cycles)
