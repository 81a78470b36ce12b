"""Sizes of strips and of their register tiles worth trying, best guess first, and a model of their cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from sartor.codegen.analysis.register_tiles import balanced
from sartor.codegen.ir.machines.core import WIDE, Core
from sartor.codegen.ir.variants.traits import Sizes as Numbers
from sartor.codegen.kernels.isa.word_pairs import WordPairElement
from sartor.codegen.kernels.layers.analytic_costs import DotCost, positions
from sartor.codegen.kernels.loops.partition import long_workgroups, many_workgroups_of_two
from sartor.codegen.kernels.loops.tiling import Sizes, Tiling
from sartor.codegen.kernels.loops.tilings import Shape
from sartor.codegen.kernels.widened.strips import ELEMENT_BYTES, SCRATCH_BYTES
from sartor.codegen.mlir.machine import Machine

_WIDTHS = (1, 2, 3, 4, 6)
# Vectors of a tile whose bytes are stored at once, and most vectors of one pixel, whose filters are operands in memory.
_OF_STORE, _OF_PIXEL = 4, 12
_TRIED = 3
# Registers for the number of a pixel and for a product before it is added.
_BESIDE = 2
# Registers that stay free when two steps are written out.
_SPARE = 4
# Part of the scratch that leaves room for filters in the first-level cache.
_NEAR_BYTES = 16 << 10
_CACHE_BYTES = 32 << 10
# Instructions that widen a vector, and the pixels of padding and neighbours that several strips widen.
_WIDENING_INSTRUCTIONS = 4
# Those that storing a vector of the result takes more than beside three others, by the vectors of a tile beside each
# other, and how many start in a cycle.
_MORE_STORED = {1: 3, 2: 1, 3: 1, 4: 0}
_STARTED = 4
_FLOAT_BYTES, _LINE_BYTES = 4, 64


@dataclass(frozen=True)
class StripTiling(Sizes):
    """Sizes of strips and tiles.

    Attributes:
        band: rows of the result of a strip, or pixels if those of all rows form one sequence.
        columns: of a register tile.
        vectors: vectors of channels in a register tile, and in a panel.
        row_groups: workgroups that partition the strips.
        panel_groups: workgroups that partition the panels; each widens what it reads.
        unroll: steps over pairs of input channels that are written out.
    """

    band: int
    columns: int
    vectors: int
    row_groups: int
    panel_groups: int
    unroll: int

    @property
    def tiling(self) -> Tiling:
        """The sizes of the nest of a strip."""
        return Tiling(1, self.columns, self.vectors, self.row_groups, self.panel_groups, self.unroll)


@dataclass(frozen=True)
class StripWork:
    """What is cut into strips.

    Attributes:
        rows: rows of the result, or pixels if those of all rows form one sequence.
        columns: columns of the result; the pixels of the sequence.
        channels: channels of the result.
        pairs: pairs that are multiplied for a number of the result.
        is_sequence: whether the pixels of all rows form one sequence.
        widened: elements that a strip of so many rows widens.
    """

    rows: int
    columns: int
    channels: int
    pairs: int
    is_sequence: bool
    widened: Callable[[int], int]


def strip_tilings(work: StripWork, element: WordPairElement, machine: Machine) -> list[StripTiling]:
    """Sizes worth trying, best guess first."""
    shapes = _shapes(work, element, machine)
    runs = [shape for shape in _runs(work, machine) if _stay_near(work, shape.vectors, machine)]
    tried = [*runs, *shapes][: max(_TRIED, len(runs) + 2)]
    tilings = [_sized(work, shape, machine, SCRATCH_BYTES) for shape in tried]
    tilings += [_sized(work, shape, machine, _NEAR_BYTES) for shape in shapes[:1]]
    filters = 2 * work.pairs * work.channels * element.filter_bytes
    if filters > machine.core.resident_bytes:
        tilings += [_by_panels(work, shape, machine) for shape in shapes[:1]]
    return list(dict.fromkeys(tilings))


def _runs(work: StripWork, machine: Machine) -> Iterator[Shape]:
    """Tiles that are wide, although narrow ones load less: their results are stored as runs of bytes."""
    vectors = -(-work.channels // machine.lanes)
    if vectors > _OF_STORE:
        yield Shape(1, 1, balanced(vectors, _OF_PIXEL), 1)
    if vectors % _OF_STORE == 0:
        yield Shape(1, min(work.columns, (machine.registers - _OF_STORE - _BESIDE) // _OF_STORE), _OF_STORE, 1)


def _stay_near(work: StripWork, vectors: int, machine: Machine) -> bool:
    """Whether the filters of a panel stay in the first-level cache, if that has nothing else to hold."""
    return 2 * ELEMENT_BYTES * work.pairs * vectors * machine.lanes <= _CACHE_BYTES


def _shapes(work: StripWork, element: WordPairElement, machine: Machine) -> list[Shape]:
    """Register tiles, best guess first."""
    vectors = -(-work.channels // machine.lanes)
    rows = 1 if work.is_sequence else work.rows
    core = element.core(machine.core)

    def cost(shape: Shape) -> tuple[float, int]:
        # Filters of 8 bits take half of the lines, and an instruction to widen them.
        line = core.line_cycles * element.filter_bytes / 2
        return shape.cycles(rows, work.columns, vectors, core, line), shape.vectors

    return sorted(set(_register_tiles(work.columns, vectors, machine.registers)), key=cost)


def _register_tiles(columns: int, vectors: int, registers: int) -> Iterator[Shape]:
    for wide in _WIDTHS:
        for spare, unroll in ((0, 1), (_SPARE, 2)):
            pixels = (registers - wide - _BESIDE - spare) // wide
            if wide <= vectors and pixels:
                yield Shape(1, balanced(columns, pixels), wide, unroll)


def _sized(work: StripWork, shape: Shape, machine: Machine, limit: int) -> StripTiling:
    """The largest strips that keep to a limit of bytes."""
    step = shape.columns if work.is_sequence else 1
    band = min(step, work.rows)
    while band < work.rows and work.widened(band + step) * ELEMENT_BYTES <= limit:
        band += step
    band = min(band, work.rows) if work.is_sequence else balanced(work.rows, band)
    bands, panels = -(-work.rows // band), -(-work.channels // (machine.lanes * shape.vectors))
    groups = many_workgroups_of_two(bands, 1 if machine.threads == 1 else panels, machine.threads)
    return StripTiling(band, shape.columns, shape.vectors, *groups, shape.unroll)


def _by_panels(work: StripWork, shape: Shape, machine: Machine) -> StripTiling:
    """A single strip, whose filters are read once."""
    panels = -(-work.channels // (machine.lanes * shape.vectors))
    groups = long_workgroups(panels, machine.threads) if machine.threads > 1 else 1
    return StripTiling(work.rows, shape.columns, shape.vectors, 1, groups, shape.unroll)


@dataclass(frozen=True)
class StripCost(DotCost):
    """The cost of products in strips.

    Attributes:
        element: the instruction.
    """

    element: WordPairElement

    def cycles(self, sizes: Numbers, parameters: Mapping[str, int], core: Core = WIDE) -> float:
        """Predicted cycles: of products, of reading filters for each strip, of storing results apart, and of widening,
        which each workgroup of panels does."""
        given = {name: max(1, parameters.get(name, 1)) for name in StripTiling.names()}
        tile = Shape(1, given["columns"], given["vectors"], given["unroll"])
        rows, columns = positions(sizes)
        vectors, pairs = -(-sizes["channels"] // core.lanes), -(-sizes["depth"] // self.group)
        panel = pairs * self.group * self.element.filter_bytes * tile.vectors * core.vector_bytes // _FLOAT_BYTES
        filters = panel * -(-vectors // tile.vectors)
        strips = -(-(columns if rows == 1 else rows) // given["band"])
        # A panel that leaves the first-level cache is read for each tile.
        line = 0.0 if panel <= _CACHE_BYTES else core.line_cycles * self.element.filter_bytes / 2
        products = tile.cycles(rows, columns, vectors, self.element.core(core), line) * pairs
        far = strips * filters / _LINE_BYTES * core.far_line_cycles * (filters > core.resident_bytes)
        stored = _MORE_STORED[min(tile.vectors, _OF_STORE)] * rows * columns * vectors / _STARTED
        read = sizes["read"] / _FLOAT_BYTES / (2 * core.lanes)
        widening = _WIDENING_INSTRUCTIONS * read / min(core.issue, 2 * core.loads)
        return (products + far + stored) * sizes["batch"] + widening * given["panel_groups"]
