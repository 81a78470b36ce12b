"""Sizes of convolutions and matrix products with AMX: blocks of tiles of pixels by tiles of channels.

A block is a few tiles of pixels times a few of channels. Its sums stay in AMX's tiles for all taps and input channels.
Then they are stored to the first-level cache and loaded to vector registers, for the elementwise ops that follow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.kernels.amx.interleaving import Interleaving
from sartor.codegen.kernels.amx.tilings import TileTiling
from sartor.codegen.kernels.isa.amx import ROWS, TILES, TileElement
from sartor.codegen.kernels.loops.access import Access, ImageStrides
from sartor.codegen.kernels.loops.epilogue import Epilogue
from sartor.codegen.kernels.loops.panels import PanelGrid
from sartor.codegen.kernels.loops.partition import largest_range, smallest_range
from sartor.codegen.kernels.loops.staging import Staging, most_rows
from sartor.codegen.kernels.loops.tiles import Axis

# Smaller filters stay in the second-level cache.
_CACHED_BYTES = 1 << 18
# Two panels of this size, and an image, fit the second-level cache.
_FETCHED_BYTES = 1 << 19
_FLOAT_BYTES = 4
# Steps over a run that are written out.
_WRITTEN_OUT = 4


@dataclass(frozen=True)
class TileContraction:
    """A convolution ``[N, H, W, IC] -> [N, OH, OW, OC]`` over memory.

    Attributes:
        batches: N.
        channels: OC.
        input_channels: IC.
        rows: windows along H.
        columns: windows along W.
        image: strides of the image, channels last.
        memories: positions of image and filters among the buffers.
        result: access by which results are stored.
        epilogue: the ops around the root.
        lanes: elements of a vector.
        tiling: sizes of tiles.
        element: instruction that multiplies tiles.
        is_staged: whether a workgroup copies what it reads first.
        is_merged: whether all that a window reads of a row is one run, for images of few channels.
        interleaving: how filters that are no weights are copied; None for weights, which are packed.
        tied: position of the buffer that the result is written over; None if it has memory of its own.
    """

    batches: int
    channels: int
    input_channels: int
    rows: Axis
    columns: Axis
    image: ImageStrides
    memories: tuple[int, int]
    result: Access
    epilogue: Epilogue
    lanes: int
    tiling: TileTiling
    element: TileElement
    is_staged: bool
    is_merged: bool = False
    interleaving: Interleaving | None = None
    tied: int | None = None

    def __post_init__(self) -> None:
        """Check the sizes.

        Raises:
            RejectionError: if blocks are larger than the result, or need too many or too large tiles.
        """
        sizes, tile_positions = self.tiling, len(self.tile_positions)
        if sizes.pixels > min(ROWS, self.columns.output) or sizes.lines > self.rows.output:
            raise RejectionError("tiles are larger than the result")
        if tile_positions * sizes.vectors + tile_positions + 1 > TILES or sizes.depth > self.element.depth:
            raise RejectionError("blocks are larger than AMX's tiles")

    @property
    def groups(self) -> tuple[int, int, int]:
        """Workgroups along rows, panels and batches."""
        return self.tiling.row_groups, self.tiling.panel_groups, self.batches

    @property
    def chunks(self) -> int:
        """Steps over a run, each by one tile."""
        return -(-self.run // self.tiling.depth)

    @property
    def run(self) -> int:
        """Length of a run of adjacent numbers that are multiplied: the channels of a tap, or of all taps of a row."""
        if not self.is_merged:
            return self.input_channels
        return self.columns.kernel * filled(self.input_channels, self.element)

    @property
    def runs(self) -> int:
        """Runs of a row."""
        return 1 if self.is_merged else self.columns.kernel

    @property
    def writes_out(self) -> bool:
        """Whether steps over a run are written out rather than in a loop."""
        return self.chunks <= _WRITTEN_OUT

    @property
    def row_runs(self) -> int:
        """Runs of a block."""
        return self.rows.kernel * self.runs

    @property
    def steps(self) -> int:
        """Steps of a block."""
        return self.row_runs * self.chunks

    @property
    def parts(self) -> int:
        """Number of points in a block at which a part of the previous block's epilogue is computed.

        They follow each run; or each step, if runs are few or steps are in a loop. Each point repeats the epilogue's
        code.
        """
        of_run = 1 if self.writes_out and self.runs > 1 else self.chunks
        return self.row_runs * of_run

    @property
    def grid(self) -> PanelGrid:
        """How channels of the result are cut into panels."""
        return PanelGrid(self.channels, self.lanes, self.tiling.vectors)

    @property
    def panel(self) -> int:
        """Elements of a panel: filters, and for quantised ones scales and sums."""
        return self.numbers + (2 * _FLOAT_BYTES * self.grid.width if self.element.is_quantised else 0)

    @property
    def numbers(self) -> int:
        """Elements of a panel's filters."""
        return self.row_runs * self.tap

    @property
    def tap(self) -> int:
        """Elements of a panel's filters for one run."""
        return self.chunks * self.tiling.vectors * self.tile

    @property
    def tile(self) -> int:
        """Elements of a tile of filters."""
        return self.tiling.depth * self.lanes

    @property
    def strips(self) -> int:
        """Strips that row groups partition: blocks of rows, or blocks of columns if there is a single row."""
        return self.column_blocks if self.rows.output == 1 else -(-self.rows.output // self.tiling.lines)

    @property
    def column_blocks(self) -> int:
        return -(-self.columns.output // (self.tiling.tiles * self.tiling.pixels))

    @property
    def tile_positions(self) -> list[tuple[int, int]]:
        """Line and tile along the row of each tile of pixels in a block."""
        return [(line, tile) for line in range(self.tiling.lines) for tile in range(self.tiling.tiles)]

    @property
    def offsets(self) -> list[int]:
        """First columns of the tiles of a block; in a short row the last tile overlaps the one before."""
        pixels = self.tiling.pixels
        return [min(tile * pixels, self.columns.output - pixels) for tile in range(self.tiling.tiles)]

    @property
    def streams(self) -> bool:
        """Whether filters come from memory and are prefetched."""
        return self.interleaving is None and self.panel * self.grid.panels * self.element.bytes > _CACHED_BYTES

    @property
    def fetches_panels(self) -> bool:
        """Whether the next panel of filters is prefetched, because it stays in the second-level cache until it is
        used."""
        return self.panel * self.element.bytes <= _FETCHED_BYTES and self.fewest_blocks > 1

    @property
    def staging(self) -> Staging:
        """How a workgroup copies what it reads."""
        lines = self.largest_range * self.tiling.lines
        most = most_rows(self.rows, min(lines, self.rows.output))
        depth = self.run // self.columns.kernel if self.is_merged else self.chunks * self.tiling.depth
        return Staging(self.rows, self.columns, self.image, self.input_channels, depth, most, self.is_merged)

    @property
    def largest_range(self) -> int:
        """Strips of the workgroup that has most."""
        return largest_range(self.strips, self.tiling.row_groups)

    @property
    def fewest_blocks(self) -> int:
        """Blocks of a panel in the workgroup that has fewest but any."""
        strips = max(1, smallest_range(self.strips, self.tiling.row_groups))
        return strips if self.rows.output == 1 else strips * self.column_blocks

    @property
    def workspace(self) -> TensorType | None:
        """Memory for the copies of all workgroups."""
        x, y, z = self.groups
        return TensorType((x * y * z * self.copied,), self.element.dtype) if self.copied else None

    @property
    def copied(self) -> int:
        """Elements of a workgroup's copies: of the image, then of a panel of filters."""
        image = self.staging.elements if self.is_staged else 0
        return image + (self.interleaving.elements if self.interleaving else 0)

    @property
    def overlaps(self) -> bool:
        """Whether blocks or tiles along a row overlap, so that some pixels are computed twice."""
        return self.columns.output % (self.tiling.tiles * self.tiling.pixels) != 0

    def over(self) -> Self | None:
        """The contraction with its result written over an image that the epilogue reads at the same positions.

        None if there is no such image, or blocks of rows overlap: then a number would be read again after it was
        overwritten.
        """
        if self.rows.output % self.tiling.lines:
            return None
        for image in self.epilogue.images:
            is_alike = image == replace(self.result, memory=image.memory)
            if is_alike and image.memory not in self.memories and self.epilogue.reads_only(image):
                return replace(self, tied=image.memory)
        return None


def filled(channels: int, element: TileElement) -> int:
    """Channels of a pixel in a merged run: a power of two, at least a group."""
    return max(element.group, 1 << (channels - 1).bit_length())
