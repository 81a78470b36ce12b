"""Sizes and offsets of Winograd's minimal filtering as one kernel.

Lavin and Gray (2016), section 4.1, with n = m + r - 1: an n x n tile of the image becomes n^2 numbers per channel, each
of which belongs to a matrix product of its own; the n^2 products give an m x m tile of the result. A workgroup
processes one block of tiles after the other in the same workspace, so that intermediate values stay in the second-level
cache.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.winograd import Transforms, exact_transforms, transforms
from sartor.codegen.kernels.isa.multipliers import FMA, Multiplier
from sartor.codegen.kernels.loops.access import Access, ImageStrides
from sartor.codegen.kernels.loops.epilogue import Epilogue
from sartor.codegen.kernels.loops.panels import PanelGrid
from sartor.codegen.kernels.loops.tiles import Axis
from sartor.codegen.kernels.loops.tiling import Sizes

_FLOAT_BYTES = 4
SHORT_BYTES = 2
"""Bytes of an encoded integer before it is scaled to 8 bits."""


@dataclass(frozen=True)
class WinogradTiling(Sizes):
    """Sizes of tiles.

    Attributes:
        height: m along H, pixels of the result in a column of a tile.
        width: m along W.
        columns: tiles in a register tile.
        vectors: vectors of channels in a register tile, and in a panel.
        block: tiles that a workgroup processes at a time, a multiple of ``columns``.
        groups: workgroups that partition the tiles.
        panels: panels of channels that one workgroup computes.
        unroll: steps over input channels that are written out.
    """

    height: int
    width: int
    columns: int
    vectors: int
    block: int
    groups: int
    panels: int
    unroll: int

    def __post_init__(self) -> None:
        """Raises RejectionError if the last register tile of a block would reach beyond its workspace."""
        if self.block % self.columns:
            raise RejectionError(f"a block of {self.block} tiles does not divide into register tiles of {self.columns}")


@dataclass(frozen=True)
class WinogradConvolution:
    """A convolution of stride 1 over memory.

    Attributes:
        batches: N.
        depth: IC.
        channels: OC.
        rows: windows along H.
        columns: windows along W.
        image: strides of the image.
        memories: positions of image and filters among the buffers; filters are
            ``[panel, n * n, steps, panel size, group]``. Integers of a panel are followed by their scales and
            sums, both f32 ``[n * n, panel size]``, exact ones by scales ``[panel size]`` alone.
        result: access by which results are stored.
        epilogue: the ops around the root.
        lanes: elements of a vector.
        tiling: sizes of tiles.
        multiplier: how encoded tiles and filters are multiplied; the workspace has their element type.
        transforms_filters: whether filters are as in the model, ``[panel, tap, IC, panel size]`` in f32, and each
            workgroup transforms those that it multiplies into its workspace.
        is_exact: whether tiles of a quantised image are encoded to 16 bits, and nothing is rounded.
    """

    batches: int
    depth: int
    channels: int
    rows: Axis
    columns: Axis
    image: ImageStrides
    memories: tuple[int, int]
    result: Access
    epilogue: Epilogue
    lanes: int
    tiling: WinogradTiling
    multiplier: Multiplier = FMA
    transforms_filters: bool = False
    is_exact: bool = False

    @property
    def transforms(self) -> tuple[Transforms, Transforms]:
        """The transforms along H and W."""
        rounded = self.multiplier.group > 1 and not self.is_integer
        rows, columns = (
            exact_transforms(*size)[0] if self.is_exact else transforms(*size, rounded=rounded) for size in self._sizes
        )
        return rows, columns

    @property
    def _sizes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """m and r along H and W."""
        return (self.tiling.height, self.rows.kernel), (self.tiling.width, self.columns.kernel)

    @property
    def is_integer(self) -> bool:
        """Whether tiles of a quantised image are encoded in integers, and these are scaled to 8 bits."""
        return self.multiplier.is_quantised and not self.is_exact

    @property
    def factor(self) -> int:
        """What exact sums are multiples of: their filters are transformed without fractions."""
        return math.prod(exact_transforms(*size)[1] for size in self._sizes)

    @property
    def steps(self) -> int:
        """Groups of input channels that are multiplied at once."""
        return -(-self.depth // self.multiplier.group)

    @property
    def filters(self) -> int:
        """Elements of a panel of filters for one product."""
        return self.steps * self.step

    @property
    def taps(self) -> int:
        """Elements of a filter for each input channel."""
        return self.rows.kernel * self.columns.kernel

    @property
    def panel_elements(self) -> int:
        """Elements of a panel of filters for all products, with scales and sums."""
        scales = self.panel * self.float_size
        if self.is_exact:
            return self.points * self.filters + scales
        return self.points * (self.filters + (2 * scales if self.is_integer else 0))

    @property
    def step(self) -> int:
        """Elements of a panel of filters that are multiplied in one step."""
        return self.panel * self.multiplier.group

    @property
    def float_size(self) -> int:
        """Elements of the workspace that a float takes."""
        return _FLOAT_BYTES // self.multiplier.bytes

    @property
    def height(self) -> int:
        """n along H, pixels of the image in a column of a tile."""
        return self.tiling.height + self.rows.kernel - 1

    @property
    def width(self) -> int:
        """n along W, pixels of the image in a row of a tile."""
        return self.tiling.width + self.columns.kernel - 1

    @property
    def points(self) -> int:
        """Products of matrices, one for each pixel of a tile of the image."""
        return self.height * self.width

    @property
    def across(self) -> int:
        """Tiles in a row of tiles."""
        return -(-self.columns.output // self.tiling.width)

    @property
    def tiles(self) -> int:
        """Tiles of one image."""
        return -(-self.rows.output // self.tiling.height) * self.across

    @property
    def grid(self) -> PanelGrid:
        """How channels are cut into panels."""
        return PanelGrid(self.channels, self.lanes, self.tiling.vectors)

    @property
    def panel(self) -> int:
        """Channels of a panel."""
        return self.grid.width

    @property
    def groups(self) -> tuple[int, int, int]:
        """Workgroups along tiles, panels and batches."""
        return self.tiling.groups, -(-self.grid.panels // self.tiling.panels), self.batches

    @property
    def row(self) -> int:
        """Elements of the workspace per encoded tile and point; one register more than needed, or rows of a power of
        two would all be in the same sets of the cache."""
        return (-(-self.depth // self._register) + 1) * self._register

    @property
    def encoded(self) -> int:
        """Elements of the workspace that hold encoded tiles."""
        return self.points * self.tiling.block * self.row

    @property
    def scales(self) -> int:
        """Offset of the scales of encoded integer tiles in the workspace: f32, a row for each tile."""
        return self.encoded + self.points * self.product

    @property
    def scale_row(self) -> int:
        """Elements of the workspace that the scales of a tile take."""
        return -(-self.points // self.lanes) * self._register

    @property
    def shorts(self) -> int:
        """Offset of one tile in 16 bits, ``[n * n, channel]``, before it is scaled to 8 bits."""
        return self.scales + self.tiling.block * self.scale_row

    @property
    def short_row(self) -> int:
        """Elements of the workspace per point of that tile."""
        return (-(-SHORT_BYTES * self.depth // self._register) + 1) * self._register

    @property
    def multipliers(self) -> int:
        """Offset of the multipliers that scale that tile, of 16 bits for each point."""
        return self.shorts + self.points * self.short_row

    @property
    def workspace(self) -> int:
        """Elements of the workspace of one workgroup; transformed filters are its end, from ``scales`` on."""
        if self.transforms_filters:
            return self.scales + self.tiling.panels * self.panel_elements
        return self.multipliers + self.scale_row if self.is_integer else self.scales

    @property
    def _register(self) -> int:
        """Elements of the workspace that fill a register."""
        return self.lanes * self.float_size

    @property
    def product(self) -> int:
        """Elements of the workspace that hold one product."""
        return self.tiling.block * self.panel * self.float_size
